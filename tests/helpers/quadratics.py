"""The small heterogeneous quadratic most tests run on: one shape, so that a program is compiled once."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedlin
import reference
from fedlin.problems.quadratic import Quadratic

Array = NDArray[Any]

CLIENTS, DIM, ROUNDS = 7, 5, 50
A, B = reference.random_quadratic(3, CLIENTS, DIM)
TAU = np.array([1, 13, 2, 7, 4, 10, 3])
# Near η̄/τ_i but not exactly, so that a method that assumed it would be found out.
ETA = 0.04 / TAU * np.array([1.1, 0.9, 0.8, 1.0, 1.2, 0.7, 1.05])
X0 = np.random.default_rng(5).standard_normal(DIM)


@cache
def problem(closed_form: bool = True) -> Quadratic:
    return fedlin.problems.quadratic(A, B, closed_form=closed_form)


def plan() -> fedlin.Plan:
    return fedlin.Plan(TAU, ETA)


def assert_close(got: Array, expected: Array, tolerance: float) -> None:
    """Entries agree up to `tolerance` times the largest expected entry."""
    assert got.shape == expected.shape
    scale = np.max(np.abs(expected))
    assert np.isfinite(scale)
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * scale)


def robust_fedlin(rounds: int, aggregate: Callable[[Array], Array]) -> Array:
    """FedLin by loops, `aggregate` in place of both means."""
    x, iterates = X0.copy(), [X0.copy()]
    for _ in range(rounds):
        grads = np.array([A[i] @ x - B[i] for i in range(CLIENTS)])
        g = aggregate(grads)
        moves = []
        for i in range(CLIENTS):
            y = x.copy()
            for _ in range(TAU[i]):
                y = y - ETA[i] * (A[i] @ y - B[i] - grads[i] + g)
            moves.append(y - x)
        x = x + aggregate(np.array(moves))
        iterates.append(x)
    return np.array(iterates)
