"""How much clients differ: (1/m) Σ ‖∇f_i(x)‖² ≤ C ‖∇f(x)‖² + D for all x, the paper's assumption, exactly.

With y = x - x*, g_i = ∇f_i(x*), H = Σ w_i A_i: the left side is yᵀSy + 2sᵀy + ζ with S = Σ w_i A_i²,
s = Σ w_i A_i g_i and ζ = Σ w_i ‖g_i‖². So C works if and only if CH² - S ⪰ 0, that is C > λ_max(H⁻¹SH⁻¹),
and the least D for it is ζ + sᵀ(CH² - S)⁻¹s.
"""

from typing import NamedTuple

import numpy as np

from fedlin.checks import real
from fedlin.errors import UnknownError
from fedlin.problems.problem import Problem
from fedlin.problems.quadratic import Quadratic


class Dissimilarity(NamedTuple):
    """C and the least D that goes with it."""

    C: float
    D: float


def dissimilarity(problem: Problem, C: float | None = None) -> Dissimilarity:
    """The exact constants of a quadratic; C is twice the least possible unless given.

    Args:
        problem: A quadratic.
        C: C, above the least possible; twice that unless given.

    Returns:
        C and the least D that goes with it.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> dissimilarity(quadratic(np.ones((2, 1, 1)), np.array([[1.0], [-1.0]])))
    Dissimilarity(C=2.0, D=1.0)
    """
    if not isinstance(problem, Quadratic):
        raise UnknownError(f"C and D are known exactly for quadratics only, not for {problem!r}.")
    spectrum = np.linalg.eigvalsh(problem.hessian)
    if spectrum[0] <= spectrum[-1] * problem.dim * np.finfo(problem.dtype).eps:
        raise UnknownError(f"{problem!r} has a singular mean Hessian, so no C holds for all x.")
    weights, A = problem.weights, problem.data.A
    gradients = A @ problem.minimizer - problem.data.b  # g_i
    S = np.einsum("i,ijk,ikl->jl", weights, A, A, optimize=True)
    s = np.einsum("i,ijk,ik->j", weights, A, gradients, optimize=True)
    zeta = float(weights @ np.sum(gradients**2, axis=1))
    inverse = np.linalg.inv(problem.hessian)
    relative = inverse @ S @ inverse  # H⁻¹SH⁻¹
    least = float(np.linalg.eigvalsh((relative + relative.T) / 2)[-1])
    if C is None:
        C = 2 * least
    real("C", C, lambda value: value > least, f"a number above {least:.6g}, the least for this problem")
    pulled = inverse @ s
    bound = np.linalg.solve(C * np.eye(problem.dim) - relative, pulled)
    return Dissimilarity(float(C), zeta + float(pulled @ bound))
