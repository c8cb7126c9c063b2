"""When a run may end early."""

from dataclasses import dataclass

import numpy as np

from fedlin.checks import positive, real
from fedlin.errors import UnknownError
from fedlin.problems.problem import Measures, Problem


@dataclass(frozen=True)
class Stop:
    """End the run at the first round whose gap, squared distance, gradient norm or loss is at most this.

    >>> Stop(gap=1e-12)
    Stop(gap=1e-12, distance=None, grad_norm=None, loss=None)
    """

    gap: float | None = None
    distance: float | None = None
    grad_norm: float | None = None
    loss: float | None = None

    def __post_init__(self) -> None:
        for name in ("gap", "distance", "grad_norm"):
            value = getattr(self, name)
            if value is not None:
                positive(f"stop.{name}", value)
        if self.loss is not None:
            real("stop.loss", self.loss, lambda value: True, "a finite number")

    def limits(self, problem: Problem) -> Measures:
        """The limits as numbers, -inf where there is none."""
        if (self.gap is not None or self.distance is not None) and problem.known_optimum is None:
            raise UnknownError(
                f"{problem!r} does not know its minimiser, so a run cannot stop by gap or distance: "
                "use Stop(grad_norm=...)."
            )
        values = [getattr(self, name) for name in Measures._fields]
        return Measures(*(np.asarray(-np.inf if v is None else v, problem.dtype) for v in values))
