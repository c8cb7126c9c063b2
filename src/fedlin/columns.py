"""What is known of every round, as one list: programs, logs, results, stops, callbacks, trackers and pages read it.

A column is measured of the model after a round, or is the sum so far of what rounds took. To add one, add it to
`COLUMNS`: it is then computed, kept, saved, drawn and passed to callbacks like the others. A name that is not in the
list is a metric given at run time, such as an accuracy.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from fedlin.core import Array, Scalar, Vector

Measure = Any  # a number or an array, on the host or traced
Measures = dict[str, Measure]  # by column, of one model or of one after each round; NaN where not computed


class ModelView(NamedTuple):
    """What can be said of a model, as traced code.

    Attributes:
        x: The model, (d,).
        loss: f(x).
        grad: ∇f(x), (d,).
        gap: f(x) - f*, NaN where f* is not known.
        minimizer: x*, None where it is not known.
    """

    x: Vector
    loss: Scalar  # f(x)
    grad: Vector  # ∇f(x)
    gap: Scalar  # f(x) - f*, NaN where that is not known
    minimizer: Vector | None  # x*


class RoundCosts(NamedTuple):
    """What some rounds took, one entry a round.

    Attributes:
        bytes_up: Bytes that all clients sent.
        bytes_down: Bytes that were sent to them.
        gradients: Gradients that all clients took.
        seconds: Measured seconds.
    """

    bytes_up: Array
    bytes_down: Array
    gradients: Array
    seconds: Array


@dataclass(frozen=True)
class Column:
    """One thing known of every round.

    Attributes:
        name: The attribute of a result, the key in files and in what callbacks get.
        title: Its name in a sentence.
        label: Its name on an axis.
        measure: What it is of a model, as traced code; None where it is no measure of the model.
        cost: What each round adds to it; None where rounds do not add to it, or where it is computed afterwards.
        sums: Whether it is the sum so far of what rounds took, zero at the start.
        stop: Whether a run ends when it is "at most" or "at least" a limit; None where a run does not end by it.
        positive: Whether it is never negative, so that a limit has to be above 0 and its axis is logarithmic.
        minimizer: Whether x* has to be known.
        missing: Why a run may have none, and what to use instead.
        write: How a value is written for a reader.
    """

    name: str
    title: str
    label: str
    measure: Callable[[ModelView], Scalar] | None = None
    cost: Callable[[RoundCosts], Array] | None = None
    sums: bool = False
    stop: Literal["at most", "at least"] | None = None
    positive: bool = False
    minimizer: bool = False
    missing: str = "it was not measured"
    write: Callable[[float], str] = "{:.3g}".format

    def reached(self, value: Measure, limit: Measure) -> Measure:
        """Whether a value, or each of an array, is at its limit; what is not finite never is.

        Args:
            value: A value of the column, or an array of them.
            limit: The limit.

        Returns:
            True or False, or an array of them.
        """
        if self.stop == "at least":
            return (value >= limit) & (value < np.inf)
        return (value <= limit) & (value > -np.inf)

    @property
    def never(self) -> float:
        """A limit that no value reaches."""
        return np.inf if self.stop == "at least" else -np.inf


def _squared_distance(view: ModelView) -> Scalar:
    if view.minimizer is None:
        return jnp.full((), jnp.nan, view.x.dtype)
    move = view.x - view.minimizer
    return move @ move


def write_bytes(value: float) -> str:
    """A number of bytes for a reader.

    Args:
        value: How many bytes.

    Returns:
        The number with its unit.

    >>> write_bytes(1234567)
    '1.23 MB'
    """
    for name, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:.0f} B"


def _falling(name: str, title: str, label: str, measure: Callable[[ModelView], Scalar], **facts: Any) -> Column:
    """A measure that falls to zero at a minimiser."""
    return Column(name, title, label, measure, stop="at most", positive=True, write="{:.2e}".format, **facts)


def _spent(name: str, label: str, cost: Callable[[RoundCosts], Array], write: Callable[[float], str]) -> Column:
    """What rounds took, added up."""
    return Column(name, label, label, cost=cost, sums=True, write=write)


_UNSOLVED = {"minimizer": True, "missing": "its minimiser is not known: use loss or grad_norm"}
_COUNT = "{:,.0f}".format

TRAINING = "training_loss"  # the cohort's mean of the losses that come with gradients, while clients work

COLUMNS = (
    _falling("gap", "gap", "f(x) - f*", lambda view: view.gap, **_UNSOLVED),
    _falling("distance", "distance", "‖x - x*‖²", _squared_distance, **_UNSOLVED),
    _falling("grad_norm", "gradient norm", "‖∇f(x)‖", lambda view: jnp.linalg.norm(view.grad)),
    Column("loss", "loss", "f(x)", lambda view: view.loss, stop="at most"),
    Column(
        TRAINING,
        "training loss",
        "training loss",
        missing="its gradients came without losses: measure the loss, with measure_every",
    ),
    _spent("bytes_up", "bytes up", lambda costs: costs.bytes_up, write_bytes),
    _spent("bytes_down", "bytes down", lambda costs: costs.bytes_down, write_bytes),
    _spent("gradients", "gradient calls", lambda costs: costs.gradients, _COUNT),
    _spent("seconds", "seconds", lambda costs: costs.seconds, "{:.3g}".format),
    Column(
        "simulated",
        "simulated time",
        "simulated seconds",
        sums=True,
        missing="no clock has read it: use fedlin.Clock(...).time(...)",
    ),
    Column(
        "bits",
        "bits",
        "bits",
        sums=True,
        missing="it depends on how they are counted: use fedlin.count_bits(...).on(result, way)",
        write=_COUNT,
    ),
)
# Beside these a result has its rounds, and both ways' bytes together.
ROUNDS = Column("rounds", "rounds", "rounds", sums=True, write=_COUNT)
BYTES = Column("bytes", "bytes sent", "bytes sent", sums=True, write=write_bytes)
# What only the server of a federation knows.
FEDERATION = (
    Column("move", "move", "‖x_t - x_{t-1}‖"),
    Column("gradient", "gradient estimate", "‖g‖"),
    Column("wire_up", "bytes received", "bytes received", sums=True, write=write_bytes),
    Column("wire_down", "bytes sent down", "bytes sent down", sums=True, write=write_bytes),
)

# Metrics on test data that are known by name: what they are, and which way is better. Others are better the higher.
_BETTER = {
    "accuracy": ("accuracy", "at least"),
    "log_loss": ("log-loss", "at most"),
    "auc": ("AUC", "at least"),
    "calibration": ("calibration error", "at most"),
    "rmse": ("root mean square error", "at most"),
    "explained": ("share explained", "at least"),
    "deviance": ("Poisson deviance", "at most"),
}
_OF_CLIENTS = {"": "", "_worst": ", worst client", "_median": ", median client"}
METRICS = {
    f"{name}{ending}": Column(f"{name}{ending}", f"{title}{whose}", f"{title}{whose}", stop=stop)  # type: ignore[arg-type]
    for name, (title, stop) in _BETTER.items()
    for ending, whose in _OF_CLIENTS.items()
}

MEASURED = tuple(column for column in COLUMNS if column.measure is not None)
SPENT = tuple(column for column in COLUMNS if column.cost is not None)
_KNOWN = {column.name: column for column in (ROUNDS, BYTES, *COLUMNS, *FEDERATION)}


def column(name: str) -> Column:
    """The column of this name; one that is not in the list is a metric, which is better the higher it is.

    Args:
        name: A column's name.

    Returns:
        The column.

    >>> column("gap").label, column("accuracy").stop
    ('f(x) - f*', 'at least')
    """
    known = _KNOWN.get(name) or METRICS.get(name)
    return known or Column(name, name, name, stop="at least", missing="it was not among the metrics")


def reached(measures: Measures, limits: Measures) -> list[Measure]:
    """Whether each measure that has a limit is at it.

    Args:
        measures: Measures by the names of their columns.
        limits: Limits by the names of their columns.

    Returns:
        True or False for each limit, in order.
    """
    return [column(name).reached(measures[name], limit) for name, limit in limits.items()]


def is_metric(name: str) -> bool:
    """Whether a column of this name is one given at run time.

    Args:
        name: A column's name.

    Returns:
        Whether it is a metric.
    """
    return name not in _KNOWN


def write(name: str, value: float) -> str:
    """A column's value for a reader.

    Args:
        name: The column's name.
        value: The value.

    Returns:
        The text; a dash where the value is not finite.

    >>> write("seconds", 0.12345), write("gradients", float("inf"))
    ('0.123', '–')
    """
    return column(name).write(value) if np.isfinite(value) else "–"


def measure_all(view: ModelView) -> Measures:
    """Every measure of a model.

    Args:
        view: The model.

    Returns:
        The measures by the names of their columns.
    """
    return {quantity.name: quantity.measure(view) for quantity in MEASURED if quantity.measure is not None}


def unmeasured(dtype: DTypeLike) -> Measures:
    """Stands for the measures of a round that was not measured.

    Args:
        dtype: The precision.

    Returns:
        NaN by the names of the columns.
    """
    return {quantity.name: jnp.full((), jnp.nan, dtype) for quantity in MEASURED}


def headline(values: Mapping[str, float]) -> str:
    """The first metric, measure or training loss that is known, in words.

    Args:
        values: Values by the names of their columns.

    Returns:
        The column's title and its value.

    >>> headline({"gap": float("nan"), "grad_norm": 0.5, "loss": 2.0})
    'gradient norm 5.00e-01'
    >>> headline({"training_loss": 2.5, "accuracy": 0.5})
    'accuracy 0.5'
    """
    ordered = [*filter(is_metric, values), *(quantity.name for quantity in MEASURED), TRAINING]
    known = [column(name) for name in ordered if np.isfinite(values.get(name, np.nan))]
    return f"{known[0].title} {known[0].write(values[known[0].name])}" if known else "nothing measured"
