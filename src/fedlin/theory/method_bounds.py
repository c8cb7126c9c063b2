"""What is guaranteed for the methods beside FedLin, as curves: index T is the bound after T rounds.

Every docstring begins with where its bound comes from, as those of `method_steps` do.
"""

from math import e

import numpy as np
from numpy.typing import NDArray

from fedlin.errors import UnknownError
from fedlin.problems.problem import Problem
from fedlin.theory import method_steps as steps
from fedlin.theory.steps import check_problem

Array = NDArray[np.float64]


@check_problem
def fedpaq(problem: Problem, rounds: int, distance0: float, tau: int, omega: float, sigma_squared: float) -> Array:
    """Theorem 1 of Reisizadeh et al. when all m clients answer, s_k = kτ + 1 and k counted from k_0:

    E‖x_k - x*‖² ≤ (s_{k_0}/s_k)² ‖x_{k_0} - x*‖² + (C_1 τ + C_2 (τ - 1)²)/s_k + C_3 (τ - 1)/s_k², where
    C_1 = 16σ²(1 + 2ω)/(μ²m), C_2 = 16eL²σ²/(μ²m), C_3 = 256eL²σ²(m + 2ω)/(μ⁴m). C_2 is as printed: unlike the others
    it changes when f is multiplied by a number.

    Args:
        problem: The problem, whose L and μ are used.
        rounds: How many rounds, T.
        distance0: ‖x̄_1 - x*‖², the squared distance at the start.
        tau: τ, one number for all clients.
        omega: ω of the unbiased compressor, as in E‖Q(v) - v‖² ≤ ω‖v‖².
        sigma_squared: σ², the variance of one stochastic gradient.

    Returns:
        The bound after 0, 1, ... rounds.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> fedpaq(problem, 2, distance0=1.0, tau=2, omega=0.0, sigma_squared=0.0).round(4).tolist()
    [1.0, 0.889, 0.7955]
    """
    mu, m = problem.strong_convexity, problem.clients
    s = (steps.fedpaq_start(problem, tau, omega) + np.arange(rounds + 1)) * tau + 1
    unit = 16 * sigma_squared / (mu**2 * m)
    C_1, C_2 = unit * (1 + 2 * omega), unit * e * problem.smoothness**2
    C_3 = 16 * e * unit * problem.condition**2 * (m + 2 * omega)
    return np.asarray((s[0] / s) ** 2 * distance0 + (C_1 * tau + C_2 * (tau - 1) ** 2) / s + C_3 * (tau - 1) / s**2)


@check_problem
def gradient_tracking(problem: Problem, rounds: int, gap0: float, server_step: float = 1.0) -> Array:
    """Our proof, at the steps of `theory.gradient_tracking`: gap_T ≤ (1 - min{1, η_s}/(4κ))^T gap_0.

    Args:
        problem: The problem, whose L and μ are used.
        rounds: How many rounds, T.
        gap0: f(x̄_1) - f*, the gap at the start.
        server_step: η_s, the method's own.

    Returns:
        The bound after 0, 1, ... rounds.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> gradient_tracking(problem, rounds=2, gap0=1.0).round(4).tolist()
    [1.0, 0.9375, 0.8789]
    """
    return geometric(min(1.0, server_step) / (4 * problem.condition), rounds) * gap0


@check_problem
def fedcomgate(
    problem: Problem, rounds: int, gap0: float, spread0: float, omega: float = 0.0, server_step: float = 1.0
) -> Array:
    """Our proof, at the steps of `theory.fedcomgate` for ω ≤ 1/4: E gap_T ≤ (1 - aμ/2)^T (gap_0 + (a/4) S_0²), a = γη̄.

    Args:
        problem: The problem, whose L and μ are used.
        rounds: How many rounds, T.
        gap0: f(x̄_1) - f*, the gap at the start.
        spread0: S_0², the mean of ‖∇f_i(x_0) - ∇f(x_0)‖²: how far the δ_i, which begin at zero, are from their limits.
        omega: ω of the unbiased compressor, as in E‖Q(v) - v‖² ≤ ω‖v‖².
        server_step: γ, the method's own.

    Returns:
        The bound after 0, 1, ... rounds.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> fedcomgate(problem, rounds=2, gap0=1.0, spread0=16.0).round(4).tolist()
    [1.25, 1.2109, 1.1731]
    """
    if omega > 1 / 4:
        raise UnknownError(f"omega = {omega:g} is beyond what is proven for FedCOMGATE: use a quantiser with ω ≤ 1/4.")
    a = min(1.0, server_step) / (4 * problem.smoothness * (1 + omega))
    return geometric(a * convexity(problem) / 2, rounds) * (gap0 + a / 4 * spread0)


@check_problem
def marina(problem: Problem, rounds: int, gap0: float, omega: float, probability: float) -> Array:
    """Our proof, at the steps of `theory.marina`, whose η is: E gap_T ≤ (1 - ημ)^T gap_0, μ of Polyak and Łojasiewicz.

    Args:
        problem: The problem, whose L_i, weights and μ are used.
        rounds: How many rounds, T.
        gap0: f(x_0) - f*, the gap at the start.
        omega: ω of the unbiased compressor, as in E‖Q(v) - v‖² ≤ ω‖v‖².
        probability: p, the method's own.

    Returns:
        The bound after 0, 1, ... rounds.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> marina(problem, rounds=2, gap0=1.0, omega=1.0, probability=0.5).round(4).tolist()
    [1.0, 0.875, 0.7656]
    """
    eta = float(steps.marina(problem, omega, probability).eta)
    return geometric(eta * problem.polyak_lojasiewicz, rounds) * gap0


@check_problem
def marina_nonconvex(problem: Problem, rounds: int, gap0: float, omega: float, probability: float) -> Array:
    """Our proof, at the steps of `theory.marina`: (1/T) Σ_{t<T} E‖∇f(x_t)‖² ≤ 2 gap_0/(ηT), for T = 1, 2, ...

    Args:
        problem: The problem, whose L_i and weights are used, and its μ where it knows one.
        rounds: How many rounds, T.
        gap0: f(x_0) - f*, the gap at the start, or what is known to be no less.
        omega: ω of the unbiased compressor, as in E‖Q(v) - v‖² ≤ ω‖v‖².
        probability: p, the method's own.

    Returns:
        The bound after 0, 1, ... rounds; infinite at 0.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> marina_nonconvex(problem, rounds=2, gap0=1.0, omega=1.0, probability=0.5).round(4).tolist()
    [inf, 16.0, 8.0]
    """
    eta = float(steps.marina(problem, omega, probability).eta)
    return np.concatenate([[np.inf], 2 * gap0 / (eta * np.arange(1, rounds + 1))])


@check_problem
def s_local_svrg(problem: Problem, rounds: int, distance0: float, eta_bar: float, renewal: float) -> Array:
    """Our proof: E‖x_T - x*‖² ≤ (1 - min{η̄μ, q}/2)^T (1 + (1 - q)/(100q)) ‖x_0 - x*‖².

    It holds at the steps of `theory.s_local_svrg`. The last factor is the weight of the reference point's gap at the
    start.

    Args:
        problem: The problem, whose L and μ are used.
        rounds: How many rounds, T.
        distance0: ‖x̄_1 - x*‖², the squared distance at the start.
        eta_bar: η̄ = η_iτ_i.
        renewal: q, the method's own.

    Returns:
        The bound after 0, 1, ... rounds.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> s_local_svrg(problem, rounds=2, distance0=1.0, eta_bar=0.02, renewal=0.5).round(4).tolist()
    [1.01, 0.9999, 0.9899]
    """
    drop = min(eta_bar * problem.strong_convexity, renewal) / 2
    return geometric(drop, rounds) * (1 + (1 - renewal) / (100 * renewal)) * distance0


def convexity(problem: Problem) -> float:
    """μ = L/κ: asking for κ refuses a problem that is not strongly convex."""
    return problem.smoothness / problem.condition


def geometric(drop: float, rounds: int) -> Array:
    """(1 - drop)^t for t = 0, 1, ..., rounds."""
    return np.asarray(np.exp(np.arange(rounds + 1) * np.log1p(-drop)))
