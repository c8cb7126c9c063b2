"""What is guaranteed for the accelerated methods, as curves: index T is the bound after T rounds.

FedLin with Newton's steps by the proof that begins `curvature_steps`, those of a shared coin by the one that begins
`accelerated_steps`: Ψ falls by a factor r a step in expectation, and a round lasts T steps, T drawn by the coin. As
Ψ_t/r^t falls in expectation, Cauchy and Schwarz give E√Ψ_T ≤ √(Ψ_0 E r^T), with E r^T = pr/(1 - (1 - p)r); so √Ψ falls
by the root of that a round.
"""

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from fedlin.errors import UnknownError
from fedlin.problems.problem import Problem
from fedlin.problems.quadratic import Quadratic
from fedlin.theory.accelerated_steps import locodl_pace, mask_share
from fedlin.theory.curvature_steps import curvature_spread
from fedlin.theory.method_bounds import convexity
from fedlin.theory.steps import check_problem

Array = NDArray[np.float64]


def coin_rounds(factor: float, probability: float, rounds: int) -> Array:
    """Our proof, above: (pr/(1 - (1 - p)r))^{T/2}, by which E√Ψ falls in T rounds.

    Args:
        factor: r, by which Ψ falls in expectation in one local step.
        probability: p, of the coin that ends a round.
        rounds: How many rounds, T.

    Returns:
        The factors after 0, 1, ... rounds.

    >>> coin_rounds(0.75, 0.5, 2).round(4).tolist()
    [1.0, 0.7746, 0.6]
    """
    shrink = probability * factor / (1 - (1 - probability) * factor)
    return np.asarray(shrink ** (np.arange(rounds + 1) / 2))


@check_problem
def compressed_scaffnew(
    problem: Problem, rounds: int, distance0: float, spread: float, tau: int, sparsity: int
) -> Array:
    """Our proof, at the steps of `theory.compressed_scaffnew`: a bound of E‖x_T - x*‖, not squared.

    Args:
        problem: The problem, whose L, μ and m are used.
        rounds: How many rounds, T.
        distance0: ‖x_0 - x*‖², the squared distance at the start.
        spread: The mean of ‖∇f_i(x*)‖².
        tau: 1/p, the plan's τ.
        sparsity: s, the method's own.

    Returns:
        The bound after 0, 1, ... rounds.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 100.0])] * 4, np.ones((4, 2)))
    >>> compressed_scaffnew(problem, 2, distance0=1.0, spread=0.0, tau=3, sparsity=2).round(3).tolist()
    [1.0, 0.971, 0.943]
    """
    gamma, share = 1 / problem.smoothness, mask_share(problem.clients, sparsity) / tau**2
    slow = 1 - gamma * convexity(problem)
    start = distance0 + gamma**2 / share * spread
    return coin_rounds(max(slow**2, 1 - share), 1 / tau, rounds) * sqrt(start)


@check_problem
def tamuna(problem: Problem, rounds: int, distance0: float, spread: float, tau: int, sparsity: int) -> Array:
    """Our proof, at the steps of `theory.tamuna`: a bound of E‖x_T - x*‖, that of `compressed_scaffnew`.

    Args:
        problem: The problem, whose L, μ and m are used.
        rounds: How many rounds, T.
        distance0: ‖x_0 - x*‖², the squared distance at the start.
        spread: The mean of ‖∇f_i(x*)‖² over all clients.
        tau: 1/p, the plan's τ.
        sparsity: s, the method's own.

    Returns:
        The bound after 0, 1, ... rounds, whatever the size of the cohort.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 100.0])] * 4, np.ones((4, 2)))
    >>> tamuna(problem, 2, distance0=1.0, spread=0.0, tau=3, sparsity=2).round(3).tolist()
    [1.0, 0.971, 0.943]
    """
    return compressed_scaffnew(problem, rounds, distance0, spread, tau, sparsity)


@check_problem
def locodl(problem: Problem, rounds: int, x0: Array, probability: float, omega: float) -> Array:
    """Our proof, at the steps of `theory.locodl` and the pace of `theory.locodl_pace`: a bound of E‖x_T - x*‖.

    Args:
        problem: The problem, whose L, μ, m and x* are used, and the gradients of its clients there.
        rounds: How many rounds, T.
        x0: The starting point.
        probability: p, the method's own.
        omega: ω of the unbiased compressor, as in E‖Q(v) - v‖² ≤ ω‖v‖².

    Returns:
        The bound after 0, 1, ... rounds.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 100.0])] * 4, np.zeros((4, 2)))  # x* = 0
    >>> locodl(problem, 2, np.array([1.0, 0.0]), probability=0.2, omega=0.0).round(3).tolist()
    [1.414, 1.38, 1.346]
    """
    gamma, nu = 1 / problem.smoothness, convexity(problem) / 2
    share = probability**2 * locodl_pace(problem, omega) / (1 + 2 * omega)
    best = problem.minimizer
    slopes = np.array([problem.client(i).grad(best) for i in range(problem.clients)])
    dual = np.mean(np.sum((slopes - nu * best) ** 2, axis=1)) + np.sum((nu * best) ** 2)
    start = 2 * np.sum((np.asarray(x0) - best) ** 2) + gamma**2 / share * dual
    return coin_rounds(max((1 - gamma * nu) ** 2, 1 - share), probability, rounds) * sqrt(start)


@check_problem
def gradskip(problem: Problem, rounds: int, distance0: float, spread: float) -> Array:
    """Our proof, at the steps of `theory.gradskip`: E‖x_T - x*‖ ≤ ((1 - p²)/(1 + p - p²))^{T/2}√Ψ_0, p = 1/√κ.

    Args:
        problem: The problem, whose L and μ are used.
        rounds: How many rounds, T.
        distance0: ‖x_0 - x*‖², the squared distance at the start.
        spread: The mean of ‖∇f_i(x*)‖².

    Returns:
        The bound after 0, 1, ... rounds.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 100.0])] * 4, np.ones((4, 2)))
    >>> gradskip(problem, 2, distance0=1.0, spread=0.0).round(3).tolist()
    [1.0, 0.953, 0.908]
    """
    kappa = problem.condition
    start = distance0 + kappa / problem.smoothness**2 * spread
    return coin_rounds(1 - 1 / kappa, 1 / sqrt(kappa), rounds) * sqrt(start)


@check_problem
def fedlin_newton(problem: Problem, rounds: int, gap0: float) -> Array:
    """Our proof, at the steps of `theory.fedlin_newton`: gap_T ≤ ((M - 1)/(M + 1))^{2T} gap_0, for quadratics.

    Args:
        problem: A quadratic, whose Hessians give M, as `theory.curvature_spread` does.
        rounds: How many rounds, T.
        gap0: f(x̄_1) - f*, the gap at the start.

    Returns:
        The bound after 0, 1, ... rounds.

    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([[[1.0]], [[4.0]]], [[0.0], [1.0]])  # M = 25/16
    >>> fedlin_newton(problem, rounds=2, gap0=1.0).round(4).tolist()
    [1.0, 0.0482, 0.0023]
    """
    if not isinstance(problem, Quadratic):
        raise UnknownError(f"the rate is proved for quadratics, whose Hessians do not change, not for {problem!r}.")
    spread = curvature_spread(problem)  # M
    return np.asarray(((spread - 1) / (spread + 1)) ** (2 * np.arange(rounds + 1)) * gap0)
