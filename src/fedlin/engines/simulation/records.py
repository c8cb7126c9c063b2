"""What has been measured so far in a run, gathered chunk by chunk."""

from collections.abc import Callable, Collection
from typing import TypeVar

import jax
import numpy as np

from fedlin.checks import true_or_false
from fedlin.columns import MEASURED, SPENT, TRAINING, Measures, column
from fedlin.core import Array, PyTree
from fedlin.engines.evaluation_rounds import Best
from fedlin.engines.local import read_wide_sum
from fedlin.engines.simulation.program import Records
from fedlin.engines.simulation.run import Run
from fedlin.engines.simulation.stop import DIVERGED, RUNNING, STOPPED
from fedlin.errors import CheckpointError
from fedlin.result import Result, Status

NAMES: dict[int, Status] = {RUNNING: "done", STOPPED: "stopped", DIVERGED: "diverged"}
T = TypeVar("T")
KEPT_BY_DEFAULT = 10**7  # numbers of iterates kept without asking


class RunRecords:
    """Rows for the start and for every round; grows by whole chunks."""

    def __init__(self, run: Run, iterates: bool, first: Measures, metrics: Collection[str] = ()) -> None:
        self.run = run
        self.iterates = iterates
        self.diverged_at: int | None = None
        nothing = run.costs(0, np.zeros(0, np.int64), 0.0)
        self.metrics = tuple(metrics)
        self.best: Best | None = None
        self._best_before: Best | None = None  # the last evaluation, which may be cut off
        unknown = (TRAINING, *self.metrics)
        self.columns: dict[str, list[Array]] = {
            **{name: [np.full(1, np.nan)] for name in unknown},
            **{name: [np.asarray(value)[None]] for name, value in first.items()},
            **{
                quantity.name: [np.zeros(1, quantity.cost(nothing).dtype)]
                for quantity in SPENT
                if quantity.cost is not None
            },
        }
        self.models: list[Array] = [run.x0[None]]
        self.rounds = 0
        self.latest = dict(first)  # the last known value of each measure and metric

    def extend(self, records: Records, seconds: float, *, measured_again: bool = False) -> int:
        """Take in a chunk of one run's records; returns its status.

        Where the model before it was `measured_again`, that replaces what was known of it.
        """
        if measured_again:
            for name, rows_again in records.measures.items():
                self.columns[name][-1] = np.append(self.columns[name][-1][:-1], rows_again[-1])
        filled, status = int(records.filled), int(records.status)
        if status == DIVERGED:
            self.diverged_at = self.rounds + filled
        count = filled - (status == DIVERGED)
        costs = self.run.costs(self.rounds, read_wide_sum(records.calls[:count]), seconds / max(filled, 1))
        rows = {name: values[:count] for name, values in records.measures.items()}
        rows[TRAINING] = np.asarray(records.training[:count])
        rows |= {name: np.full(count, np.nan) for name in self.metrics}
        for quantity in SPENT:
            assert quantity.cost is not None
            last = self.columns[quantity.name][-1][-1]
            rows[quantity.name] = (np.cumsum(quantity.cost(costs)) + last).astype(last.dtype)
        if count:
            for name, chunks in self.columns.items():
                chunks.append(rows[name])
            if self.iterates:
                self.models.append(records.x[:count])
            else:
                self.models[-1] = records.x[:count][-1:]
        self.rounds += count
        self._find_latest(rows)
        return status

    def _find_latest(self, rows: dict[str, Array]) -> None:
        for name in (*(quantity.name for quantity in MEASURED), TRAINING, *self.metrics):
            known = rows[name][~np.isnan(rows[name])]
            if known.size:
                self.latest[name] = known[-1]

    def note_metrics(self, values: dict[str, float], better: bool) -> None:
        """Take in the metrics of the latest model, which is kept if it is the best so far."""
        for name, value in values.items():
            self.columns[name][-1][-1] = value
        self.latest |= values
        self._best_before = self.best
        if better:
            self.best = Best(self.rounds, np.array(self.models[-1][-1]), values[self.metrics[0]])

    @property
    def evaluated(self) -> bool:
        """Whether the latest model's metrics are known."""
        return all(not np.isnan(self.columns[name][-1][-1]) for name in self.metrics)

    def cut(self, rounds: int, x: Array) -> None:
        """Forget what came after `rounds`; `x` is the model then."""
        self.columns = {name: [rows[: rounds + 1]] for name, rows in self.arrays().items()}
        self.models = [np.concatenate(self.models)[: rounds + 1] if self.iterates else x[None]]
        self.rounds = rounds
        self.diverged_at = None
        if self.best is not None and self.best.round > rounds:
            self.best = self._best_before

    def arrays(self) -> dict[str, Array]:
        """Every column as one array."""
        return {name: np.concatenate(chunks) for name, chunks in self.columns.items()}

    def save(self, state: PyTree) -> dict[str, Array]:
        """The log and the run's state, as a checkpoint's arrays."""
        leaves = {f"state_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
        log = {**self.arrays(), "x": np.concatenate(self.models)}
        if self.best is not None:
            leaves |= {f"best_{name}": np.asarray(value) for name, value in self.best._asdict().items()}
        return {**leaves, **{f"log_{name}": rows for name, rows in log.items()}}

    def resume(self, arrays: dict[str, Array], like: T) -> tuple[int, T]:
        """Take over what `save` gave, unless it is of too many rounds or keeps too little.

        The rounds done, and the state, which has the structure of `like`.
        """
        log = {name[4:]: rows for name, rows in arrays.items() if name.startswith("log_")}
        rounds, most = len(log["seconds"]) - 1, self.run.rounds
        if rounds > most:
            raise CheckpointError(f"the checkpoint is at round {rounds}, beyond rounds = {most}: ask for more.")
        if self.iterates and len(log["x"]) != rounds + 1:
            raise CheckpointError("the checkpoint kept no iterates, and this run is to keep them: set iterates=False.")
        unknown = np.full(rounds + 1, np.nan)  # of a column that was added after the checkpoint was made
        self.columns = {name: [log.get(name, unknown)] for name in self.columns}
        self.models = [log["x"]]
        self.rounds = rounds
        self._find_latest(self.arrays())
        if "best_x" in arrays:
            self.best = Best(int(arrays["best_round"]), arrays["best_x"], float(arrays["best_value"]))
        leaves, shape = jax.tree.flatten(like)
        state: T = jax.tree.unflatten(shape, [arrays[f"state_{i}"] for i in range(len(leaves))])
        return rounds, state

    def result(self, status: Status, measure: Callable[[Array], Measures]) -> Result:
        """The run as the user gets it, the last model measured whether it was its turn or not."""
        columns, models = self.arrays(), np.concatenate(self.models)
        if self.run.when == "never":
            columns = {name: values for name, values in columns.items() if column(name).measure is None}
        elif np.isnan(columns["loss"][-1]):
            for name, value in measure(models[-1]).items():
                columns[name][-1] = value
        if self.run.problem.known_optimum is None:
            columns = {name: values for name, values in columns.items() if not column(name).minimizer}
        if np.all(np.isnan(columns[TRAINING])):
            del columns[TRAINING]
        return Result(
            self.run.algorithm.name,
            status,
            models[-1],
            columns,
            diverged_at=self.diverged_at,
            seed=self.run.seed,
            kept_iterates=models if self.iterates else None,
            best_round=None if self.best is None else self.best.round,
            best_x=None if self.best is None else self.best.x,
        )


def keeps_iterates(iterates: bool | None, rounds: int, dim: int) -> bool:
    """Whether every model is kept: as asked, or by default up to ten million numbers."""
    return (rounds + 1) * dim <= KEPT_BY_DEFAULT if iterates is None else true_or_false("iterates", iterates)
