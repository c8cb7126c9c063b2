"""When a run ends before its last round: a measure is at its limit, or the run has diverged."""

from collections.abc import Collection
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedlin.checks import positive, real
from fedlin.columns import MEASURED, Measures, column, reached
from fedlin.core import Scalar, Vector
from fedlin.errors import ArgumentError, UnknownError
from fedlin.problems.problem import Problem

RUNNING, STOPPED, DIVERGED = 0, 1, 2
FAR = 1e30  # a model this many times farther away than it began has diverged


class Stop:
    """End the run at the first measured round in which a measure is at its limit.

    Args:
        gap: The largest f(x) - f* to end at.
        limits: The like of any other column by its name: `distance`, `grad_norm` and `loss` end a run when they are at
            most this, a metric, such as an accuracy, when it is at least this.

    >>> Stop(gap=1e-12)
    Stop(gap=1e-12)
    """

    def __init__(self, gap: float | None = None, **limits: float | None) -> None:
        allowed = {name: limit for name, limit in {"gap": gap, **limits}.items() if limit is not None}
        for name, limit in allowed.items():
            if column(name).stop is None:
                stopping = ", ".join(quantity.name for quantity in MEASURED)
                raise ArgumentError(f"stop.{name} is not allowed: a run ends by {stopping}, or by a metric.")
            if column(name).positive:
                positive(f"stop.{name}", limit)
            else:
                real(f"stop.{name}", limit, lambda value: True, "a finite number")
        self.limits = {name: float(limit) for name, limit in allowed.items()}

    def __getattr__(self, name: str) -> float | None:
        if name.startswith("_") or name == "limits" or column(name).stop is None:
            raise AttributeError(f"a Stop has no {name}")
        return self.limits.get(name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stop) and self.limits == other.limits

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.limits.items())))

    def __repr__(self) -> str:
        return f"Stop({', '.join(f'{name}={limit}' for name, limit in self.limits.items())})"

    @property
    def needs_minimizer(self) -> bool:
        """Whether x* has to be known."""
        return any(column(name).minimizer for name in self.limits)

    @property
    def needs_measures(self) -> bool:
        """Whether all clients have to be asked."""
        return any(quantity.name in self.limits for quantity in MEASURED)

    def measures(self, problem: Problem) -> Measures:
        """The limit of each measure, one that is never reached where none was given.

        Args:
            problem: The problem, whose precision the limits take.

        Returns:
            Limits by column.
        """
        limits: dict[str, Any] = {
            quantity.name: self.limits.get(quantity.name, quantity.never) for quantity in MEASURED
        }
        return {name: np.asarray(limit, problem.dtype) for name, limit in limits.items()}

    def check(self, problem: Problem, metrics: Collection[str]) -> None:
        """Refuse to stop by what a run with these metrics does not know.

        Args:
            problem: The problem that is to be run.
            metrics: The names of the run's metrics.
        """
        if self.needs_minimizer and problem.known_optimum is None:
            raise UnknownError(
                f"{problem!r} does not know its minimiser, so a run cannot stop by gap or distance: "
                "use Stop(grad_norm=...)."
            )
        unknown = self.limits.keys() - {quantity.name for quantity in MEASURED} - set(metrics)
        if unknown:
            raise ArgumentError(
                f"stop = {self!r}, and this run measures no {', '.join(sorted(unknown))}: give metrics= and test=."
            )


def outcome(x: Vector, start: Vector, measures: Measures, limits: Measures, due: Scalar | bool) -> Scalar:
    """Whether a run is over with the model x: a measure is at its limit, or one that was `due` is not finite."""
    inside = jnp.linalg.norm(x) < FAR * (1 + jnp.linalg.norm(start))
    inside &= (jnp.isfinite(measures["loss"]) & jnp.isfinite(measures["grad_norm"])) | jnp.logical_not(due)
    stops = jnp.any(jnp.stack(reached(measures, limits)))
    return jnp.where(inside, jnp.where(stops, STOPPED, RUNNING), DIVERGED).astype(jnp.int32)
