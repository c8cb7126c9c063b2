"""Steps of FedLin with Newton's steps, from how much the clients' curvatures differ.

On quadratics f_i with Hessians A_i and H = mean of A_i a round is x ← x - ωPg with g = H(x - x*), P = mean of A_i⁻¹ and
ω = 1 - (1 - η)^τ. PH is symmetric in the inner product of H, in which ‖x - x*‖² is twice the gap: a round multiplies it
by max(1 - ωλ)² at worst, over the eigenvalues λ of PH. None is below 1, since the inverse is convex: P ⪰ H⁻¹. Let M be
the largest. ω = 2/(1 + M) makes the factor ((M - 1)/(M + 1))² a round.

M is 1 for clients of one curvature, however badly conditioned. If aH ⪯ A_i ⪯ bH for all i, the eigenvalues of
B_i = H^{-1/2}A_iH^{-1/2} are in [a, b], where 1/t ≤ (a + b - t)/(ab), and the mean of B_i is I: M ≤ (a + b - 1)/(ab).
In the same way from μ ≤ A_i ≤ L alone, M ≤ (κ + 1)²/(4κ). Where Hessians change, this is the rate near x*, with those
at x*.
"""

from functools import cache
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike

from fedlin.checks import positive_integer
from fedlin.errors import ArgumentError, PlanError, UnknownError
from fedlin.plan import Plan
from fedlin.precision import precision
from fedlin.problems.objective import Objective
from fedlin.problems.problem import Problem
from fedlin.theory.steps import check_problem


@check_problem
def curvature_spread(problem: Problem, x: ArrayLike | None = None) -> float:
    """M = λ_max of (mean of A_i⁻¹)(mean of A_i), A_i = ∇²f_i(x): 1 for clients of one curvature, (κ + 1)²/(4κ) at most.

    Args:
        problem: A problem with second derivatives, all f_i strongly convex.
        x: Where the Hessians are taken; the problem's starting point unless given.

    Returns:
        M.

    >>> from fedlin.problems import quadratic
    >>> round(curvature_spread(quadratic([[[1.0]], [[4.0]]], [[0.0], [1.0]])), 4)  # 5/8 times 5/2
    1.5625
    """
    if problem.objective.outside:
        raise ArgumentError(
            f"{problem!r} is computed by another library, which gives gradients alone: write it in JAX."
        )
    if problem.strong_convexity <= 0:
        raise UnknownError(f"{problem!r} has a client with μ = 0, whose Hessian has no inverse: add l2 regularisation.")
    point = problem.start if x is None else problem.check_point(x, "x")
    with precision(problem.dtype):
        hessians = np.asarray(_each_hessian(problem.objective)(problem.device_data, point), np.float64)
    mean = np.einsum("i,ijk->jk", problem.weights, hessians)
    inverse = np.einsum("i,ijk->jk", problem.weights, np.linalg.inv(hessians))
    root = np.linalg.cholesky(mean)
    return max(1.0, float(np.linalg.eigvalsh(root.T @ inverse @ root)[-1]))


@cache
def _each_hessian(objective: Objective) -> Any:
    return jax.jit(lambda data, x: jax.lax.map(lambda own: objective.second_derivatives(own, x), data))


@check_problem
def fedlin_newton(problem: Problem, tau: ArrayLike = 1, x: ArrayLike | None = None) -> Plan:
    """Our proof, for quadratics: 1 - (1 - η)^τ = 2/(1 + M), M as `curvature_spread` has it.

    Args:
        problem: A problem with second derivatives, all f_i strongly convex.
        tau: τ, one number for all clients. On quadratics it changes nothing; elsewhere more of them help far from x*.
        x: Where Hessians are taken; the problem's starting point unless given.

    Returns:
        The plan.

    >>> from fedlin.problems import quadratic
    >>> fedlin_newton(quadratic([[[1.0]], [[4.0]]], [[0.0], [1.0]])).eta.round(4).tolist()
    0.7805
    """
    step = 2 / (1 + curvature_spread(problem, x))  # ω
    counts = np.unique(np.asarray(tau))
    if counts.size != 1:
        raise PlanError(f"fedlin_newton needs one number of local steps for all clients, and tau has {counts}.")
    steps = positive_integer("tau", counts[0].item())
    return Plan(steps, 1 - (1 - step) ** (1 / steps))
