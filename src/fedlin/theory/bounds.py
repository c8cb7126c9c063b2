"""What the theorems guarantee, as curves: index T is the bound after T rounds.

Theorems and propositions are those of Mitra et al., Linear Convergence in Federated Learning (NeurIPS 2021); the
bounds of the other methods are in `method_bounds` and `accelerated_bounds` and go by the same names here.
"""

from math import sqrt

import numpy as np
from numpy.typing import ArrayLike

from fedlin.core import Array
from fedlin.problems.problem import Problem
from fedlin.theory.accelerated_bounds import coin_rounds, compressed_scaffnew, fedlin_newton, gradskip, locodl, tamuna
from fedlin.theory.certified_steps import certified_factors
from fedlin.theory.method_bounds import (
    convexity,
    fedcomgate,
    fedpaq,
    geometric,
    gradient_tracking,
    marina,
    marina_nonconvex,
    s_local_svrg,
)
from fedlin.theory.steps import DECAY, check_problem

__all__ = [
    "certified",
    "client_feedback",
    "client_feedback_gap",
    "coin_rounds",
    "compressed_scaffnew",
    "convex",
    "convex_last",
    "fedcomgate",
    "fedlin_newton",
    "fedpaq",
    "gradient_tracking",
    "gradskip",
    "homogeneous",
    "locodl",
    "marina",
    "marina_nonconvex",
    "noisy",
    "noisy_decaying",
    "nonconvex",
    "polyak_lojasiewicz",
    "s_local_svrg",
    "server_feedback",
    "server_sparse",
    "strongly_convex",
    "tamuna",
]


@check_problem
def strongly_convex(problem: Problem, rounds: int, gap0: float) -> Array:
    """Theorem 1: gap_T ≤ (1 - 1/(6κ))^T gap_0.

    Args:
        problem: The problem, whose L and μ are used.
        rounds: How many rounds, T.
        gap0: f(x̄_1) - f*, the gap at the start.

    Returns:
        The bound after 0, 1, ... rounds.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> strongly_convex(problem, rounds=2, gap0=1.0).round(4).tolist()
    [1.0, 0.9583, 0.9184]
    """
    return geometric(1 / (6 * problem.condition), rounds) * gap0


def certified(problem: Problem | float, tau: ArrayLike, rounds: int, distance0: float) -> Array:
    """At the steps of `theory.certified`: ‖x̄_{T+1} - x*‖² ≤ (Σ w_i R_i)^{2T} ‖x̄_1 - x*‖², R_i nearly (1 - η_iμ)^τ_i.

    On quadratics R is the norm of the round on these very clients, where that is less. A run's rounding is not in it.

    Args:
        problem: the problem, or its condition number κ.
        tau: τ_i, as `theory.certified` takes it.
        rounds: how many rounds.
        distance0: ‖x̄_1 - x*‖².

    Returns:
        The bound after 0, 1, ... rounds.

    >>> certified(10.0, 5, rounds=2, distance0=1.0).round(3).tolist()
    [1.0, 0.361, 0.13]
    """
    return np.concatenate([[1.0], np.cumprod(certified_factors(problem, tau, rounds))]) * distance0


@check_problem
def convex(problem: Problem, distances: Array) -> Array:
    """Theorem 2: f(mean of x̄_1..x̄_T) - f* ≤ (10L/T)(‖x̄_1 - x*‖² - ‖x̄_{T+1} - x*‖²), for T = 1, 2, ...

    Args:
        problem: The problem, whose L and μ are used.
        distances: The squared distances measured after 0, 1, ... rounds.

    Returns:
        The bound after 0, 1, ... rounds; infinite at 0.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> convex(problem, np.array([1.0, 0.5, 0.2])).tolist()
    [inf, 20.0, 16.0]
    """
    T = np.arange(1, len(distances))
    return np.concatenate([[np.inf], 10 * problem.smoothness / T * (distances[0] - distances[1:])])


@check_problem
def convex_last(problem: Problem, rounds: int, gap0: float, distance0: float) -> Array:
    """Theorem 2: gap after T rounds ≤ gap_0/(c gap_0 T + 1), c = 1/(12 ‖x̄_1 - x*‖² L).

    Args:
        problem: The problem, whose L and μ are used.
        rounds: How many rounds, T.
        gap0: f(x̄_1) - f*, the gap at the start.
        distance0: ‖x̄_1 - x*‖², the squared distance at the start.

    Returns:
        The bound after 0, 1, ... rounds.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> convex_last(problem, rounds=2, gap0=1.0, distance0=1.0).round(4).tolist()
    [1.0, 0.9796, 0.96]
    """
    c = 1 / (12 * distance0 * problem.smoothness)
    return gap0 / (c * gap0 * np.arange(rounds + 1) + 1)


@check_problem
def nonconvex(problem: Problem, losses: Array) -> Array:
    """Theorem 3: min over the first T models of ‖∇f‖² ≤ (52L/T)(f(x̄_1) - f(x̄_{T+1})), for T = 1, 2, ...

    Args:
        problem: The problem, whose L and μ are used.
        losses: f measured after 0, 1, ... rounds.

    Returns:
        The bound after 0, 1, ... rounds; infinite at 0.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> nonconvex(problem, np.array([1.0, 0.5, 0.2])).round(4).tolist()
    [inf, 104.0, 83.2]
    """
    T = np.arange(1, len(losses))
    return np.concatenate([[np.inf], 52 * problem.smoothness / T * (losses[0] - losses[1:])])


@check_problem
def polyak_lojasiewicz(problem: Problem, rounds: int, gap0: float) -> Array:
    """Theorem 4: gap_T ≤ (1 - μ/(26L))^T gap_0, μ the Polyak-Łojasiewicz constant.

    Args:
        problem: The problem, whose L and μ are used.
        rounds: How many rounds, T.
        gap0: f(x̄_1) - f*, the gap at the start.

    Returns:
        The bound after 0, 1, ... rounds.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> polyak_lojasiewicz(problem, rounds=2, gap0=1.0).round(4).tolist()
    [1.0, 0.9904, 0.9809]
    """
    return geometric(problem.polyak_lojasiewicz / (26 * problem.smoothness), rounds) * gap0


@check_problem
def noisy(problem: Problem, rounds: int, distance0: float, eta_bar: float, sigma_squared: float) -> Array:
    """Theorem 5: a_{t+1} ≤ (1 - η̄μ/2) a_t + 25 η̄² σ², a_t the mean squared distance.

    Args:
        problem: The problem, whose L and μ are used.
        rounds: How many rounds, T.
        distance0: ‖x̄_1 - x*‖², the squared distance at the start.
        eta_bar: η̄ = η_iτ_i.
        sigma_squared: σ², the variance of one stochastic gradient.

    Returns:
        The bound after 0, 1, ... rounds.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> noisy(problem, rounds=2, distance0=1.0, eta_bar=0.02, sigma_squared=0.1).round(4).tolist()
    [1.0, 0.991, 0.9821]
    """
    shrink = 1 - eta_bar * convexity(problem) / 2
    powers = shrink ** np.arange(rounds + 1)
    floor = 25 * eta_bar**2 * sigma_squared / (1 - shrink)
    return powers * distance0 + (1 - powers) * floor


@check_problem
def noisy_decaying(problem: Problem, rounds: int, distance0: float, sigma_squared: float) -> Array:
    """Theorem 5 with η̄_t = 4/(μ(t + t_0)), t_0 = 48κ: a_t ≤ c/(t + t_0), c = max(400σ²/μ², t_0 a_0).

    Our own induction: with s = t + t_0 the theorem gives a_{t+1} ≤ (1 - 2/s) c/s + 400σ²/(μ²s²) ≤ c/s - c/s², which is
    at most c/(s + 1).

    Args:
        problem: The problem, whose L and μ are used.
        rounds: How many rounds, T.
        distance0: ‖x̄_1 - x*‖², the squared distance at the start.
        sigma_squared: σ², the variance of one stochastic gradient.

    Returns:
        The bound after 0, 1, ... rounds.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> noisy_decaying(problem, rounds=2, distance0=1.0, sigma_squared=0.1).round(4).tolist()
    [1.0, 0.9948, 0.9897]
    """
    t0 = DECAY * problem.condition
    top = max(400 * sigma_squared / problem.strong_convexity**2, t0 * distance0)
    return top / (np.arange(rounds + 1) + t0)


@check_problem
def server_sparse(problem: Problem, rounds: int, gap0: float, delta: float) -> Array:
    """Theorem 7: gap_T ≤ (1 - 1/(2δ(2+√δ)κ))^T gap_0.

    Args:
        problem: The problem, whose L and μ are used.
        rounds: How many rounds, T.
        gap0: f(x̄_1) - f*, the gap at the start.
        delta: δ of the compressor, d/k for TOP-k.

    Returns:
        The bound after 0, 1, ... rounds.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> server_sparse(problem, rounds=2, gap0=1.0, delta=4.0).round(4).tolist()
    [1.0, 0.9922, 0.9844]
    """
    return geometric(1 / (2 * delta * (2 + sqrt(delta)) * problem.condition), rounds) * gap0


@check_problem
def server_feedback(problem: Problem, rounds: int, gap0: float, delta: float) -> Array:
    """Theorem 8: gap_T ≤ 2κ(1 - 1/(96δκ))^T gap_0.

    Args:
        problem: The problem, whose L and μ are used.
        rounds: How many rounds, T.
        gap0: f(x̄_1) - f*, the gap at the start.
        delta: δ of the compressor, d/k for TOP-k.

    Returns:
        The bound after 0, 1, ... rounds.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> server_feedback(problem, rounds=2, gap0=1.0, delta=4.0).round(4).tolist()
    [8.0, 7.9948, 7.9896]
    """
    return 2 * problem.condition * geometric(1 / (96 * delta * problem.condition), rounds) * gap0


@check_problem
def client_feedback(
    problem: Problem, rounds: int, distance0: float, eta_bar: float, delta: float, C: float, D: float
) -> Array:
    """Theorem 9: ‖x̄_{T+1} - x*‖² ≤ 2(1 - ¾η̄μ)^T ‖x̄_1 - x*‖² + (16/3)η̄(6/(δC) + δ)D/μ.

    Args:
        problem: The problem, whose L and μ are used.
        rounds: How many rounds, T.
        distance0: ‖x̄_1 - x*‖², the squared distance at the start.
        eta_bar: η̄ = η_iτ_i.
        delta: δ of the compressor, d/k for TOP-k.
        C: C of the clients' dissimilarity.
        D: D of the clients' dissimilarity.

    Returns:
        The bound after 0, 1, ... rounds.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> client_feedback(problem, 2, distance0=1.0, eta_bar=1e-3, delta=4.0, C=1.0, D=0.1).round(4).tolist()
    [2.0029, 2.0014, 1.9999]
    """
    mu = convexity(problem)
    floor = 16 / 3 * eta_bar * (6 / (delta * C) + delta) * D / mu
    return 2 * geometric(0.75 * eta_bar * mu, rounds) * distance0 + floor


@check_problem
def client_feedback_gap(
    problem: Problem, rounds: int, gap0: float, eta_bar: float, delta: float, C: float, D: float
) -> Array:
    """Theorem 9's corollary: gap ≤ 2κ(1 - ¾η̄μ)^T gap_0 + (8L/3)η̄(6/(δC) + δ)D/μ.

    Args:
        problem: The problem, whose L and μ are used.
        rounds: How many rounds, T.
        gap0: f(x̄_1) - f*, the gap at the start.
        eta_bar: η̄ = η_iτ_i.
        delta: δ of the compressor, d/k for TOP-k.
        C: C of the clients' dissimilarity.
        D: D of the clients' dissimilarity.

    Returns:
        The bound after 0, 1, ... rounds.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> client_feedback_gap(problem, 2, gap0=1.0, eta_bar=1e-3, delta=4.0, C=1.0, D=0.1).round(4).tolist()
    [8.0059, 7.9999, 7.9939]
    """
    mu = convexity(problem)
    floor = 8 * problem.smoothness / 3 * eta_bar * (6 / (delta * C) + delta) * D / mu
    return 2 * problem.condition * geometric(0.75 * eta_bar * mu, rounds) * gap0 + floor


@check_problem
def homogeneous(problem: Problem, rounds: int, gap0: float, steps: int) -> Array:
    """Proposition 3: gap_T ≤ (1 - 1/κ)^{TH} gap_0.

    Args:
        problem: The problem, whose L and μ are used.
        rounds: How many rounds, T.
        gap0: f(x̄_1) - f*, the gap at the start.
        steps: H, the local steps of every client.

    Returns:
        The bound after 0, 1, ... rounds.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> homogeneous(problem, rounds=2, gap0=1.0, steps=5).round(4).tolist()
    [1.0, 0.2373, 0.0563]
    """
    return (1 - 1 / problem.condition) ** (steps * np.arange(rounds + 1)) * gap0
