"""What has been measured so far in a run, gathered chunk by chunk."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

from fedlin.checks import true_or_false
from fedlin.engines.local import read_wide_sum
from fedlin.engines.simulation.program import DIVERGED, RUNNING, STOPPED, Records
from fedlin.engines.simulation.run import Run
from fedlin.errors import CheckpointError
from fedlin.problems.problem import Measures
from fedlin.result import Result, Status

NAMES: dict[int, Status] = {RUNNING: "done", STOPPED: "stopped", DIVERGED: "diverged"}
T = TypeVar("T")
KEPT_BY_DEFAULT = 10**7  # numbers of iterates kept without asking


class RunRecords:
    """Rows for the start and for every round played; grows by whole chunks."""

    def __init__(self, run: Run, iterates: bool, first: Measures) -> None:
        self.run = run
        self.iterates = iterates
        self.diverged_at: int | None = None
        self.columns: dict[str, list[Any]] = {
            **{name: [np.asarray(value)[None]] for name, value in first._asdict().items()},
            "x": [run.x0[None]],
            "gradients": [np.zeros(1, np.int64)],
            "bytes_up": [np.zeros(1, np.int64)],
            "bytes_down": [np.zeros(1, np.int64)],
            "seconds": [np.zeros(1)],
        }
        self.rounds = 0
        self.seen = first  # the latest measures there are

    def extend(self, records: Records, seconds: float) -> int:
        """Take in a chunk of one run's records; returns its status."""
        filled, status = int(records.filled), int(records.status)
        if status == DIVERGED:
            self.diverged_at = self.rounds + filled
        kept = filled - (status == DIVERGED)
        up, down = self.run.bytes_sent(self.rounds, kept)
        rows = {
            **{name: value[:kept] for name, value in records.measures._asdict().items()},
            "x": records.x[:kept],
            "gradients": np.cumsum(read_wide_sum(records.calls[:kept])),
            "bytes_up": np.cumsum(up),
            "bytes_down": np.cumsum(down),
            "seconds": np.arange(1, kept + 1) * (seconds / max(filled, 1)),
        }
        for name in ("gradients", "bytes_up", "bytes_down", "seconds"):
            last = self.columns[name][-1][-1]
            rows[name] = (rows[name] + last).astype(last.dtype)
        if kept:
            for name, column in self.columns.items():
                if name == "x" and not self.iterates:
                    column[-1] = rows["x"][-1:]
                else:
                    column.append(rows[name])
        self.rounds += kept
        self._look_back(rows)
        return status

    def _look_back(self, rows: dict[str, Any]) -> None:
        measured = np.flatnonzero(~np.isnan(rows["loss"]))
        if measured.size:
            self.seen = Measures(*(rows[name][measured[-1]] for name in Measures._fields))

    def cut(self, rounds: int, x: Any) -> None:
        """Forget what came after `rounds`; `x` is the model then."""
        whole = self.arrays()
        for name, column in self.columns.items():
            column[:] = [whole[name][: rounds + 1]] if name != "x" or self.iterates else [x[None]]
        self.rounds = rounds
        self.diverged_at = None

    def arrays(self) -> dict[str, Any]:
        """Every column as one array."""
        return {name: np.concatenate(column) for name, column in self.columns.items()}

    def save(self, state: Any) -> dict[str, Any]:
        """The log and the run's state, as a checkpoint's arrays."""
        leaves = {f"state_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
        return {**leaves, **{f"log_{name}": a for name, a in self.arrays().items()}}

    def resume(self, arrays: dict[str, Any], like: T) -> tuple[int, T]:
        """Take over what `save` gave, unless it is of too many rounds or keeps too little.

        The rounds played, and the state, which has the structure of `like`.
        """
        log = {name[4:]: a for name, a in arrays.items() if name.startswith("log_")}
        rounds, most = len(log["loss"]) - 1, self.run.rounds
        if rounds > most:
            raise CheckpointError(f"the checkpoint is at round {rounds}, beyond rounds = {most}: ask for more.")
        if self.iterates and len(log["x"]) != rounds + 1:
            raise CheckpointError("the checkpoint kept no iterates, and this run is to keep them: set iterates=False.")
        for name in self.columns:
            self.columns[name] = [log[name]]
        self.rounds = rounds
        self._look_back(log)
        leaves, shape = jax.tree.flatten(like)
        state: T = jax.tree.unflatten(shape, [arrays[f"state_{i}"] for i in range(len(leaves))])
        return rounds, state

    def result(self, status: Status, measure: Callable[[Any], Measures]) -> Result:
        """The run as the user gets it, the last model measured whether it was its turn or not."""
        known = self.run.problem.known_optimum is not None
        arrays = self.arrays()
        x = arrays.pop("x")
        if np.isnan(arrays["loss"][-1]):
            for name, value in measure(x[-1])._asdict().items():
                arrays[name][-1] = value
        gap, distance = arrays.pop("gap"), arrays.pop("distance")
        return Result(
            self.run.algorithm.name,
            status,
            x[-1],
            **arrays,
            diverged_at=self.diverged_at,
            seed=self.run.seed,
            _gap=gap if known else None,
            _distance=distance if known else None,
            _iterates=x if self.iterates else None,
        )


def keeps_iterates(asked: bool | None, rounds: int, dim: int) -> bool:
    """Whether every model is kept: as asked, or by default up to ten million numbers."""
    return (rounds + 1) * dim <= KEPT_BY_DEFAULT if asked is None else true_or_false("iterates", asked)
