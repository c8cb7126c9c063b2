"""Newton's method with conjugate gradients, for the minimisers of logistic and softmax regression."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlin.errors import UnknownError

Array = NDArray[np.float64]
TOLERANCE = 1e-12  # the gradient norm at which a minimiser counts as found, or that share of the first norm if larger
_STEPS = 200  # at most; ten or so are taken
_ARMIJO = 1e-4  # the customary share
_FINEST = 1e-10  # relative residual below which conjugate gradients gain nothing in double precision
# Residual that is rounding: where f is flat, as softmax is along a shift of its intercepts, more steps blow it up.
_ROUNDING = 1e-15
_SHORTEST = 1e-8  # share of a step from which rounding, not the step, decides


def minimise(
    value: Callable[[Array], float],
    grad: Callable[[Array], Array],
    curvature: Callable[[Array], Callable[[Array], Array]],
    start: Array,
) -> Array:
    """argmin of a smooth convex function, to a gradient norm of 1e-12 (times the first norm if that is above 1), or an
    error with the norm reached.

    `curvature(x)` returns the map v ↦ ∇²f(x) v. A step is as exact as the gradient is small (Dembo, Eisenstat and
    Steihaug, 1982) and is halved until f falls by Armijo's share of what the slope promises.
    """
    from scipy.sparse.linalg import LinearOperator, cg  # takes long to import

    x, slope = start, grad(start)
    norm = float(np.linalg.norm(slope))
    allowed = TOLERANCE * max(1.0, norm)
    for _ in range(_STEPS):
        if norm <= TOLERANCE:
            return x
        operator: Any = LinearOperator((x.size, x.size), matvec=curvature(x), dtype=np.float64)
        move, _ = cg(operator, -slope, rtol=max(_FINEST, min(0.1, norm)), atol=_ROUNDING, maxiter=20 * x.size)
        size, here = 1.0, value(x)
        while True:
            trial = x + size * move
            trial_slope = grad(trial)
            trial_norm = float(np.linalg.norm(trial_slope))
            # Near the optimum the value no longer resolves progress; the gradient still does.
            if value(trial) < here - _ARMIJO * size * abs(slope @ move) or trial_norm < norm / 2:
                break
            size /= 2
            if size < _SHORTEST:
                return _finished(x, norm, allowed)
        x, slope, norm = trial, trial_slope, trial_norm
    return _finished(x, norm, allowed)


def _finished(x: Array, norm: float, allowed: float) -> Array:
    if norm <= allowed:
        return x
    raise UnknownError(
        f"the minimiser could not be found: the solver stopped at a gradient norm of {norm:.2e}, not {allowed:.2g}. "
        "Add l2 regularisation, or scale the features."
    )
