"""Theorem 6: two clients on which no step size helps FedLin gain from more local steps, and the coordinate it lacks.

A round with H local steps of size η is a diagonal matrix where A_1 and A_2 are. Entries with curvatures (a, b) have the
eigenvalue ½Σ_i [1 - (1 - (1 - ηλ_i)^H) (a + b)/(2λ_i)], λ_1 = a, λ_2 = b; `eigenvalues` has those of the paper.

The paper's example, A_1 = I and A_2 = diag(L, 1), has (1, L) and (1, 1). From λ_1 > -1 it concludes (1-η)^H > 1/2 by
way of (1-ηL)^H ≤ (1-η)^H, which fails for even H once ηL > 2: a second window of stable η opens just above 2/L.

`repaired` adds a third entry with curvatures (L, L), whose eigenvalue is λ_3 = (1-ηL)^H. It proves, for every L > 7 and
every H ≥ 1: whatever η converges from every start, ‖x̄_{T+1} - x*‖² ≥ (1 - 8/(L+1))^{2T} ‖x̄_1 - x*‖² from x̄_1 along the
second entry. For |λ_3| < 1 means 0 < ηL < 2, so (1-ηL)^H < 1; and λ_1 > -1, multiplied by 4L/(L+1), says

    L(1-η)^H + (1-ηL)^H > ((L-1)² - 4L)/(L+1), hence L(1-η)^H > (L² - 6L + 1)/(L+1) - 1 = (L² - 7L)/(L+1),

that is λ_2 = (1-η)^H > (L-7)/(L+1) = 1 - 8/(L+1), positive as η < 2/L < 1. Since κ = L, this matches the (1 - 1/(6κ))^T
of Theorem 1 in κ as well as in H; exp(-4T), which the paper has, knows no κ.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedlin.problems.quadratic import Quadratic, quadratic


def instance(L: float, b: ArrayLike = (0.0, 0.0)) -> Quadratic:
    """A_1 = I, A_2 = diag(L, 1), linear terms +b and -b; b = 0 gives both clients the same minimiser.

    Args:
        L: L, the condition number (μ = 1).
        b: The linear term, (2,).

    Returns:
        The problem of two clients.

    >>> instance(14.0).condition
    14.0
    """
    b = np.asarray(b, np.float64)
    return quadratic(np.array([np.eye(2), np.diag([L, 1.0])]), np.array([-b, b]))


def repaired(L: float) -> Quadratic:
    """A_1 = diag(1, 1, L), A_2 = diag(L, 1, L): the paper's clients with the entry that its proof needs.

    Args:
        L: L, the condition number (μ = 1).

    Returns:
        The problem of two clients.

    >>> repaired(14.0).condition
    14.0
    """
    return quadratic(np.array([np.diag([1.0, 1.0, L]), np.diag([L, 1.0, L])]), np.zeros((2, 3)))


def rate(L: float) -> float:
    """1 - 8/(L + 1): a round of FedLin on `repaired` shrinks the second entry by no less, whatever H and a stable η.

    Args:
        L: L, the condition number (μ = 1).

    Returns:
        The factor.

    >>> rate(31.0)
    0.75
    """
    return 1 - 8 / (L + 1)


def eigenvalues(eta: ArrayLike, steps: int, L: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """λ_1 and λ_2 of the round map with H = `steps` local steps of size η.

    Args:
        eta: η, one or several.
        steps: H, the local steps of both clients.
        L: L, the condition number (μ = 1).

    Returns:
        λ_1 and λ_2, each in the shape of `eta`.

    >>> [value.round(4).tolist() for value in eigenvalues(0.1, 5, 14.0)]
    [-0.8063, 0.5905]
    """
    eta = np.asarray(eta, np.float64)
    slow = (1 - eta) ** steps
    first = (slow + third_eigenvalue(eta, steps, L) / L) * (L + 1) / 4 - (L - 1) ** 2 / (4 * L)
    return first, slow


def third_eigenvalue(eta: ArrayLike, steps: int, L: float) -> NDArray[np.float64]:
    """λ_3 = (1 - ηL)^H, which `repaired` adds.

    Args:
        eta: η, one or several.
        steps: H, the local steps of both clients.
        L: L, the condition number (μ = 1).

    Returns:
        λ_3, in the shape of `eta`.

    >>> third_eigenvalue(0.1, 5, 14.0).round(4).tolist()
    -0.0102
    """
    return np.asarray((1 - np.asarray(eta, np.float64) * L) ** steps)
