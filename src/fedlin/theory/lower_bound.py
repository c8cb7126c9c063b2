"""Theorem 6: two clients on which no step size helps FedLin gain from more local steps."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedlin.problems.quadratic import Quadratic, quadratic


def instance(L: float, b: ArrayLike = (0.0, 0.0)) -> Quadratic:
    """A_1 = I, A_2 = diag(L, 1), linear terms +b and -b; b = 0 gives both clients the same minimiser.

    >>> instance(14.0).condition
    14.0
    """
    b = np.asarray(b, np.float64)
    return quadratic(np.array([np.eye(2), np.diag([L, 1.0])]), np.array([-b, b]))


def eigenvalues(eta: ArrayLike, steps: int, L: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """λ_1 and λ_2 of the round map with H = `steps` local steps of size η.

    >>> [value.round(4).tolist() for value in eigenvalues(0.1, 5, 14.0)]
    [-0.8063, 0.5905]
    """
    eta = np.asarray(eta, np.float64)
    slow = (1 - eta) ** steps
    first = (slow + (1 - eta * L) ** steps / L) * (L + 1) / 4 - (L - 1) ** 2 / (4 * L)
    return first, slow
