"""FedLin's round on quadratics is a linear map of x̄ - x*, whose norm is the exact factor of these very clients.

Client i moves by -V_i φ_i(Λ_i) V_iᵀ g with A_i = V_iΛ_iV_iᵀ, φ_i(λ) = (1 - (1 - η_iλ)^τ_i)/λ and g = H(x̄ - x*), so that

    x̄⁺ - x* = (I - Σ w_i V_i φ_i(Λ_i) V_iᵀ H)(x̄ - x*).

Where the clients' curvatures even out, so that H is far better conditioned than any A_i, this is much less than the
worst case over all functions of the same L and μ.
"""

import numpy as np
from numpy.typing import NDArray

from fedlin.problems.quadratic import Quadratic

Array = NDArray[np.float64]


class QuadraticRound:
    """FedLin's rounds on a problem, with steps η_i = η̄/τ_i.

    Args:
        problem: a quadratic.
    """

    def __init__(self, problem: Quadratic) -> None:
        basis = problem.data.basis
        values, vectors = np.linalg.eigh(problem.data.A) if basis is None else (basis.values, basis.vectors)
        self.hessian = np.asarray(problem.hessian, float)
        self.values = np.asarray(values, float)  # λ, (m, d)
        # V_1, ..., V_m side by side.
        self.vectors = np.asarray(vectors, float).transpose(1, 0, 2).reshape(problem.dim, -1)
        self.weights = np.asarray(problem.weights, float)

    def norm(self, tau: NDArray[np.integer], eta_bar: float) -> float:
        """By how much a round shrinks ‖x̄ - x*‖ at least.

        Args:
            tau: τ_i, one number or one a client.
            eta_bar: η̄.

        Returns:
            The largest singular value of the round's matrix.

        >>> from fedlin.problems import quadratic
        >>> problem = quadratic(np.array([[[1.0]], [[4.0]]]), np.ones((2, 1)))
        >>> round(QuadraticRound(problem).norm(np.array([1, 2]), 0.5), 6)  # 1 - 2.5(0.5 + 0.25(1 + 0))/2
        0.0625
        """
        steps = np.broadcast_to(tau, self.weights.shape)[:, None]
        eta = eta_bar / steps
        flat = np.maximum(self.values, np.finfo(float).tiny / eta)  # rounding may leave them at 0 or below
        moves = full_drop(eta * flat, steps) / flat  # φ_i(λ)
        share = (self.weights[:, None] * moves).ravel()
        matrix = np.eye(len(self.hessian)) - (self.vectors * share) @ self.vectors.T @ self.hessian
        return float(np.linalg.norm(matrix, 2))


def full_drop(x: Array, tau: NDArray[np.integer]) -> Array:
    """1 - (1 - x)^τ, without cancellation where x is small."""
    small = np.minimum(x, 0.5)
    return np.asarray(np.where(x <= 0.5, -np.expm1(tau * np.log1p(-small)), 1 - (1 - x) ** tau))
