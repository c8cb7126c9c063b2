"""What FedProx, FedAvg and FedNova minimise in place of f (Propositions 1 and 2).

On quadratics one round of either is a step η of gradient descent on f̃ with f̃_i = ½ xᵀQ_iA_i x - (Q_ib_i)ᵀx,
so they end at f̃'s minimiser and not at f's.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedlin.plan import Plan
from fedlin.problems.quadratic import Quadratic, quadratic

Array = NDArray[np.float64]


def fedprox(problem: Quadratic, tau: ArrayLike, eta: float, beta: float = 0.0) -> Quadratic:
    """Proposition 1: Q_i = Σ_{l<τ_i} (I - η(A_i + βI))^l; β = 0 is FedAvg.

    Args:
        problem: A quadratic.
        tau: τ_i: one number for all clients, or one for each.
        eta: η, one step size for all clients.
        beta: β of FedProx.

    Returns:
        The problem that the method minimises instead.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic(np.array([[[1.0]], [[2.0]]]), np.array([[3.0], [100.0]]))  # x* = 103/3
    >>> (fedprox(problem, 2, 0.1).minimizer - problem.minimizer).round(4).tolist()
    [-0.5697]
    """
    identity = np.eye(problem.dim)
    steps = np.broadcast_to(Plan(tau, eta).tau, problem.clients)
    sums = [_power_sum(identity - eta * (A + beta * identity), n) for A, n in zip(problem.data.A, steps, strict=True)]
    return _surrogate(problem, np.array(sums))


def fednova(problem: Quadratic, tau: ArrayLike, eta: float) -> Quadratic:
    """Proposition 2: Q_i = α_i Σ_{l<τ_i} (I - ηA_i)^l, α_i = mean(τ)/τ_i.

    Args:
        problem: A quadratic.
        tau: τ_i: one number for all clients, or one for each.
        eta: η, one step size for all clients.

    Returns:
        The problem that the method minimises instead.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic(np.array([[[1.0]], [[2.0]]]), np.array([[3.0], [100.0]]))  # x* = 103/3
    >>> (fednova(problem, [5, 3], 0.1).minimizer - problem.minimizer).round(4).tolist()
    [-0.0729]
    """
    identity = np.eye(problem.dim)
    steps = np.broadcast_to(Plan(tau, eta).tau, problem.clients)
    mean = problem.weights @ steps
    sums = [mean / n * _power_sum(identity - eta * A, n) for A, n in zip(problem.data.A, steps, strict=True)]
    return _surrogate(problem, np.array(sums))


def _power_sum(M: Array, count: int) -> Array:
    total, power = np.zeros_like(M), np.eye(len(M))
    for _ in range(count):
        total += power
        power = power @ M
    return total


def _surrogate(problem: Quadratic, Q: Array) -> Quadratic:
    # Q_i is a polynomial in A_i, so the product is symmetric up to rounding.
    A, b = Q @ problem.data.A, np.einsum("ijk,ik->ij", Q, problem.data.b)
    other = quadratic((A + A.transpose(0, 2, 1)) / 2, b)
    other.weights = problem.weights
    return other
