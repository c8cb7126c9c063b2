"""The result of a run: the model, and everything measured after every round."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np

from fedlin.checks import one_of
from fedlin.columns import BYTES, COLUMNS, MEASURED, ROUNDS, TRAINING, column, headline, is_metric
from fedlin.core import Array
from fedlin.errors import CheckpointError, UnknownError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Status = Literal["done", "stopped", "diverged", "interrupted"]
AXES = (ROUNDS.name, BYTES.name, *(quantity.name for quantity in COLUMNS if quantity.sums))
_ORDER = {quantity.name: place for place, quantity in enumerate(COLUMNS)}


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The end of a run, and its columns: arrays whose index t is after t rounds, and index 0 the start.

    Each column is an attribute by its name. `gap`, `distance` (‖x̄ - x*‖², squared), `loss` and `grad_norm` are measured
    of the model; `bytes_up`, `bytes_down`, `gradients` and `seconds` are sums so far over all clients, and `simulated`
    the seconds of a `Clock`. Where not every round was measured (`simulate(measure_every=...)`), the measures of the
    others are NaN. A column that a run does not have says why when it is asked for.

    Attributes:
        algorithm: The method's name.
        status: "done", "stopped", "diverged" or "interrupted".
        x: The model after the last round, (d,). A run that diverged has its last finite one.
        columns: Every column by name.
        diverged_at: The first round that was not finite, if any.
        seed: What decided every draw.
        kept_iterates: The models after every round, (rounds + 1, d), if they were kept; see `iterates`.
        best_round: The round after which the first metric was highest, where there are metrics.
        best_x: The model after that round, (d,).

    >>> import fedlin
    >>> problem = fedlin.problems.least_squares(clients=2, dim=3, samples=9)
    >>> result = fedlin.simulate(fedlin.fedlin(), problem, fedlin.theory.strongly_convex(problem, tau=2), rounds=4)
    >>> result.bytes_up.tolist()  # a gradient and a model of three numbers from each of two clients
    [0, 96, 192, 288, 384]
    """

    algorithm: str
    status: Status
    x: Array
    columns: Mapping[str, Array]
    diverged_at: int | None = None
    seed: int = 0
    kept_iterates: Array | None = None
    best_round: int | None = None
    best_x: Array | None = None

    def __getattr__(self, name: str) -> Array:
        if name.startswith("_") or name == "columns":  # while it is copied or unpickled
            raise AttributeError(name)
        if name in self.columns:
            return self.columns[name]
        if name in _ORDER:
            raise UnknownError(f"this run of {self.algorithm} has no {column(name).title}: {column(name).missing}.")
        raise AttributeError(f"a Result has no {name}; its columns are {', '.join(self.columns)}")

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *self.columns]

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    @property
    def rounds(self) -> int:
        """How many rounds were run."""
        return len(self.seconds) - 1

    @property
    def measured(self) -> Array:
        """The rounds after which loss, gradient norm, gap and distance were measured, the first and last among them.

        None where they were not asked for.
        """
        return np.flatnonzero(~np.isnan(self.columns.get("loss", np.zeros(0))))

    @property
    def iterates(self) -> Array:
        """The models x̄ after every round, shape (rounds + 1, d)."""
        if self.kept_iterates is None:
            raise UnknownError(
                f"this run of {self.algorithm} has no iterates: they were not kept: run with iterates=True to keep "
                "them all."
            )
        return self.kept_iterates

    @property
    def bytes(self) -> Array:
        """All bytes sent so far, up and down."""
        return self.bytes_up + self.bytes_down

    @property
    def metrics(self) -> tuple[str, ...]:
        """The columns that were given as metrics, such as an accuracy."""
        return tuple(filter(is_metric, self.columns))

    def with_columns(self, **columns: Array) -> "Result":
        """The same result with these columns added, or in place of those it has.

        Args:
            columns: Arrays with rounds + 1 entries, by name.

        Returns:
            A new result.
        """
        return replace(self, columns={**self.columns, **columns})

    def __repr__(self) -> str:
        end = f", diverged in round {self.diverged_at}" if self.diverged_at is not None else ""
        looks = max(len(self.measured) - 1, 0)
        seldom = "" if looks == self.rounds else f" ({looks} measured)"
        return (
            f"<Result {self.algorithm}: {self.status} after {self.rounds} rounds{seldom}{end}, "
            f"{headline({name: values[-1] for name, values in self.columns.items()})}, "
            f"{self.bytes_up[-1]:,} bytes up, {self.bytes_down[-1]:,} down, "
            f"{self.gradients[-1]:,} gradients, {self.seconds[-1]:.3g} s>"
        )

    def curves(self) -> dict[str, Array]:
        """Every column by name, the round first and metrics last."""
        ordered = sorted(self.columns, key=lambda name: _ORDER.get(name, len(_ORDER)))
        return {"round": np.arange(self.rounds + 1), **{name: self.columns[name] for name in ordered}}

    def to_dataframe(self) -> "pd.DataFrame":
        """One row a round, one column a measure."""
        import pandas as pd

        return pd.DataFrame(self.curves())

    def plot(self, y: str | None = None, x: str = "rounds", ax: "Axes | None" = None, **line: Any) -> "Axes":
        """Draw a measure against what it cost, on a logarithmic axis where it is never negative.

        Args:
            y: The measure; the gap unless given, or the gradient norm where that is not known.
            x: "rounds", "bytes", or a column that adds up.
            ax: Matplotlib axes to draw on; new ones unless given.
            line: Settings of the line, for Matplotlib's `plot`.

        Returns:
            The axes.
        """
        from matplotlib.figure import Figure

        if y is None:
            y = next(
                name
                for name in (*(quantity.name for quantity in MEASURED), *self.metrics, TRAINING)
                if name in self.columns
            )
        drawn = [name for name in {**_ORDER, **self.columns} if not column(name).sums]
        one_of("y", y, tuple(drawn))
        one_of("x", x, AXES)
        values = getattr(self, y)
        looked = ~np.isnan(values)
        across = np.arange(self.rounds + 1) if x == "rounds" else getattr(self, x)
        if ax is None:
            ax = Figure(figsize=(4, 3), layout="constrained").add_subplot()
        ax.plot(across[looked], values[looked], **{"label": self.algorithm, **line})
        if column(y).positive:
            ax.set_yscale("log")
        ax.set_xlabel(column(x).label)
        ax.set_ylabel(column(y).label)
        return ax

    def save(self, path: str | Path) -> None:
        """Write everything to one .npz file.

        Args:
            path: Where to write it.
        """
        with open(path, "wb") as file:
            self.write(file)

    def write(self, file: BinaryIO) -> None:
        """Write what `save` writes to an open file.

        Args:
            file: A file opened for writing bytes.
        """
        facts = {name: getattr(self, name) for name in ("algorithm", "status", "diverged_at", "seed", "best_round")}
        arrays: dict[str, Any] = {f"column {name}": values for name, values in self.columns.items()}
        if self.kept_iterates is not None:
            arrays["kept_iterates"] = self.kept_iterates
        if self.best_x is not None:
            arrays["best_x"] = self.best_x
        np.savez(file, facts=np.array(json.dumps(facts)), x=self.x, **arrays)

    @classmethod
    def load(cls, path: str | Path) -> "Result":
        """Read what `save` wrote, now or before columns were a list.

        Args:
            path: The file that `save` wrote.

        Returns:
            The result.
        """
        try:
            # Opened here, since NumPy leaves a damaged file open.
            with open(path, "rb") as content, np.load(content, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            facts, x = json.loads(str(arrays.pop("facts"))), arrays.pop("x")
            iterates = arrays.pop("kept_iterates", arrays.pop("_iterates", None))
            best = arrays.pop("best_x", None)
            columns = {name.removeprefix("column ").removeprefix("_"): values for name, values in arrays.items()}
            result = cls(**facts, x=x, columns=columns, kept_iterates=iterates, best_x=best)
            result.seconds  # noqa: B018 - every result has one
            return result
        except FileNotFoundError:
            raise
        except Exception as cause:
            raise CheckpointError(f"{path} is not a result saved by fedlin, or it is damaged: {cause}.") from cause


def first(values: Array, target: float, measure: str = "gap") -> int | None:
    """The first round at which a measure is at its target, or None.

    >>> first(np.array([1.0, 0.1, 0.01]), 0.1), first(np.array([0.5, np.nan, 0.9]), 0.8, "accuracy")
    (1, 2)
    """
    reached = np.flatnonzero(column(measure).reached(values, target))
    return int(reached[0]) if reached.size else None


def log_line(curve: Array, start: int = 0) -> tuple[float, float]:
    """The straight line through the logarithm of a curve, by least squares.

    Args:
        curve: Positive numbers, one a round.
        start: The first round that counts.

    Returns:
        Its slope a round, and its level at round 0.

    >>> slope, level = log_line(4.0 * 0.5 ** np.arange(20))
    >>> round(float(np.exp(slope)), 6), round(float(np.exp(level)), 6)
    (0.5, 4.0)
    """
    slope, level = np.polyfit(np.arange(start, len(curve)), np.log(curve[start:]), 1)
    return float(slope), float(level)
