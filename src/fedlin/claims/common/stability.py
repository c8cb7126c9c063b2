"""Whether a round of FedLin draws nearer to x*, and which client is to blame where it does not.

Near x* (for quadratics everywhere) client i answers the mean gradient g by -φ_i(A_i) g with A_i = ∇²f_i(x*) and
φ_i(λ) = η_i Σ_{l<τ_i} (1 - η_iλ)^l = (1 - (1 - η_iλ)^{τ_i})/λ. A dense round is therefore x - x* ↦ (I - MH)(x - x*),
M the mean of φ_i(A_i) and H that of A_i: x* attracts if and only if the spectral radius of I - MH is below 1.
A client whose η_iL_i exceeds 2 takes local steps that grow, so φ_i is huge (odd τ_i) or negative (even τ_i).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from fedlin.core import Array
from fedlin.problems.logistic import Logistic
from fedlin.problems.quadratic import Quadratic


class Stability(NamedTuple):
    """The round's spectral radius; the client whose steps raise it most, and the radius without that fault."""

    radius: float
    client: int
    tau: int
    reach: float  # η_iL_i of that client, stable on its own below 2
    cured: float  # the radius if that client took many small steps for the same η̄

    def __str__(self) -> str:
        return (
            f"spectral radius {self.radius:.2f}, to blame is client {self.client} (τ = {self.tau}, "
            f"η·L = {self.reach:.1f}), without whose coarse steps it would be {self.cured:.2f}"
        )


def examine(problem: Quadratic | Logistic, tau: NDArray[np.int32], eta_bar: float) -> Stability:
    """Dense FedLin with η_i = η̄/τ_i around the minimiser of the problem."""
    A = hessians(problem)
    known = problem.data.basis if isinstance(problem, Quadratic) else None
    values, vectors = np.linalg.eigh(A) if known is None else (np.asarray(known.values), np.asarray(known.vectors))
    values = np.maximum(values, 1e-12 * values.max())
    eta = eta_bar / tau[:, None]
    taken = (1 - (1 - eta * values) ** tau[:, None]) / values
    flow = -np.expm1(-eta_bar * values) / values  # the limit of many small steps
    half = vectors.transpose(0, 2, 1) @ _square_root(A.mean(axis=0))  # V_iᵀH^{1/2}

    def radius(phi: Array) -> float:
        # I - MH has the eigenvalues of I - H^{1/2}MH^{1/2}, which is symmetric.
        M = np.mean(half.transpose(0, 2, 1) @ (phi[..., None] * half), axis=0)
        return float(np.max(np.abs(1 - np.linalg.eigvalsh(M))))

    reach = eta[:, 0] * values[:, -1]
    suspects = np.flatnonzero(reach > 2) if np.any(reach > 2) else np.array([np.argmax(reach)])
    cured = {int(i): radius(np.where(np.arange(len(tau))[:, None] == i, flow, taken)) for i in suspects}
    worst = min(cured, key=lambda i: cured[i])
    return Stability(radius(taken), worst, int(tau[worst]), float(reach[worst]), cured[worst])


def hessians(problem: Quadratic | Logistic) -> Array:
    """∇²f_i(x*) of every client, (m, d, d)."""
    if isinstance(problem, Quadratic):
        return np.asarray(problem.data.A)
    X = np.asarray(problem.sheet.X)
    margin = X @ problem.minimizer
    bend = np.asarray(problem.sheet.weight) * expit(margin) * expit(-margin)
    return np.asarray(np.matmul((X * bend[..., None]).transpose(0, 2, 1), X))


def _square_root(H: Array) -> Array:
    values, vectors = np.linalg.eigh(H)
    return np.asarray((vectors * np.sqrt(values)) @ vectors.T)
