"""What a run came to: the model, and everything measured after every round."""

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from fedlin.checks import one_of
from fedlin.errors import CheckpointError, UnknownError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Status = Literal["done", "stopped", "diverged", "interrupted"]
Array = NDArray[Any]
AXES = {
    "rounds": "rounds",
    "bytes": "bytes sent",
    "bytes_up": "bytes up",
    "bytes_down": "bytes down",
    "gradients": "gradient calls",
    "seconds": "seconds",
    "simulated": "simulated seconds",
}
CURVES = {
    "gap": "f(x) - f*",
    "distance": "‖x - x*‖²",
    "grad_norm": "‖∇f(x)‖",
    "loss": "f(x)",
}


@dataclass(frozen=True, eq=False)
class Result:
    """Index t of every array is after t rounds; index 0 is the start. Bytes, gradients and seconds are sums so far.

    `bytes_up` and `bytes_down` count every client's messages; `distance` is squared. A run that diverged has
    its last finite round at the end and says in `diverged_at` which round was the first that was not. Where not every
    round was measured (`simulate(measure_every=...)`), loss, grad_norm, gap and distance are NaN after the others.

    >>> import fedlin
    >>> problem = fedlin.problems.least_squares(clients=2, dim=3, samples=9)
    >>> result = fedlin.simulate(fedlin.fedlin(), problem, fedlin.theory.strongly_convex(problem, tau=2), rounds=4)
    >>> result.bytes_up.tolist()  # a gradient and a model of three numbers from each of two clients
    [0, 96, 192, 288, 384]
    """

    algorithm: str
    status: Status
    x: Array
    loss: Array
    grad_norm: Array
    bytes_up: Array
    bytes_down: Array
    gradients: Array
    seconds: Array
    diverged_at: int | None = None
    seed: int = 0
    _gap: Array | None = field(default=None, repr=False)
    _distance: Array | None = field(default=None, repr=False)
    _iterates: Array | None = field(default=None, repr=False)
    _simulated: Array | None = field(default=None, repr=False)

    @property
    def rounds(self) -> int:
        """How many rounds were played."""
        return len(self.loss) - 1

    @property
    def measured(self) -> Array:
        """The rounds after which loss, gradient norm, gap and distance were measured; the first and last always are."""
        return np.flatnonzero(~np.isnan(self.loss))

    @property
    def gap(self) -> Array:
        """f(x̄) - f* after every round."""
        return self._known(self._gap, "gap", "its minimiser is not known: use loss or grad_norm")

    @property
    def distance(self) -> Array:
        """‖x̄ - x*‖², squared, after every round."""
        return self._known(self._distance, "distance", "its minimiser is not known: use loss or grad_norm")

    @property
    def iterates(self) -> Array:
        """The models x̄ after every round, shape (rounds + 1, d)."""
        return self._known(self._iterates, "iterates", "they were not kept: run with iterates=True to keep them all")

    @property
    def simulated(self) -> Array:
        """Seconds so far on the machines of a `Clock`, after every round."""
        return self._known(self._simulated, "simulated time", "no clock has read it: use fedlin.Clock(...).time(...)")

    @property
    def bytes(self) -> Array:
        """All bytes sent so far, up and down."""
        return self.bytes_up + self.bytes_down

    def _known(self, value: Array | None, name: str, why: str) -> Array:
        if value is None:
            raise UnknownError(f"this run of {self.algorithm} has no {name}: {why}.")
        return value

    def __repr__(self) -> str:
        last = f"gap {self._gap[-1]:.3g}" if self._gap is not None else f"gradient norm {self.grad_norm[-1]:.3g}"
        end = f", diverged in round {self.diverged_at}" if self.diverged_at is not None else ""
        looks = len(self.measured) - 1
        seldom = "" if looks == self.rounds else f" ({looks} measured)"
        return (
            f"<Result {self.algorithm}: {self.status} after {self.rounds} rounds{seldom}{end}, {last}, "
            f"{self.bytes_up[-1]:,} bytes up, {self.bytes_down[-1]:,} down, "
            f"{self.gradients[-1]:,} gradients, {self.seconds[-1]:.3g} s>"
        )

    def curves(self) -> dict[str, Array]:
        """Every per-round array by name, those that are known."""
        known = {"gap": self._gap, "distance": self._distance}
        named = {"round": np.arange(self.rounds + 1), **known}
        for name in ("loss", "grad_norm", "bytes_up", "bytes_down", "gradients", "seconds"):
            named[name] = getattr(self, name)
        named["simulated"] = self._simulated
        return {name: array for name, array in named.items() if array is not None}

    def to_dataframe(self) -> "pd.DataFrame":
        """One row a round, one column a measure."""
        import pandas as pd

        return pd.DataFrame(self.curves())

    def plot(self, y: str | None = None, x: str = "rounds", ax: "Axes | None" = None, **line: Any) -> "Axes":
        """Draw a measure against rounds, bytes, gradients or seconds, on a logarithmic axis."""
        from matplotlib.figure import Figure

        if y is None:
            y = "gap" if self._gap is not None else "grad_norm"
        one_of("y", y, tuple(CURVES))
        one_of("x", x, tuple(AXES))
        if ax is None:
            ax = Figure(figsize=(4, 3), layout="constrained").add_subplot()
        across = np.arange(self.rounds + 1) if x == "rounds" else getattr(self, x)
        ax.plot(across[self.measured], getattr(self, y)[self.measured], **{"label": self.algorithm, **line})
        if y != "loss":
            ax.set_yscale("log")
        ax.set_xlabel(AXES[x])
        ax.set_ylabel(CURVES[y])
        return ax

    def save(self, path: str | Path) -> None:
        """Write everything to one .npz file."""
        with open(path, "wb") as file:
            self.write(file)

    def write(self, file: BinaryIO) -> None:
        """Write what `save` writes to an open file."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self)}
        facts = {name: arrays.pop(name) for name in ("algorithm", "status", "diverged_at", "seed")}
        kept = {name: array for name, array in arrays.items() if array is not None}
        np.savez(file, facts=np.array(json.dumps(facts)), **kept)

    @classmethod
    def load(cls, path: str | Path) -> "Result":
        """Read what `save` wrote."""
        try:
            # Opened here, since NumPy leaves a damaged file open.
            with open(path, "rb") as content, np.load(content, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            return cls(**json.loads(str(arrays.pop("facts"))), **arrays)
        except FileNotFoundError:
            raise
        except Exception as cause:
            raise CheckpointError(f"{path} is not a result saved by fedlin, or it is damaged: {cause}.") from cause


def first(curve: NDArray[Any], target: float) -> int | None:
    """The first round at which a measure is at most `target`, or None.

    >>> first(np.array([1.0, 0.1, 0.01]), 0.1)
    1
    """
    found = np.flatnonzero(curve <= target)
    return int(found[0]) if found.size else None


def log_line(curve: NDArray[Any], start: int = 0) -> tuple[float, float]:
    """The straight line through the logarithm of a curve, by least squares.

    Args:
        curve: Positive numbers, one a round.
        start: The first round that counts.

    Returns:
        Its slope a round, and its level at round 0.

    >>> slope, level = log_line(4.0 * 0.5 ** np.arange(20))
    >>> round(np.exp(slope), 6), round(np.exp(level), 6)
    (0.5, 4.0)
    """
    slope, level = np.polyfit(np.arange(start, len(curve)), np.log(curve[start:]), 1)
    return float(slope), float(level)
