"""Step sizes of the methods beside FedLin, each from its own paper or by a proof given here.

Every docstring begins with where its step comes from: a *theorem* (or corollary) with its number, or *our proof*, which
then follows and is tested. The papers stand at the methods in `fedlin.algorithms`.
"""

from math import ceil, sqrt

import numpy as np
from numpy.typing import ArrayLike

from fedlin.checks import fraction, nonnegative, positive, positive_integer
from fedlin.errors import PlanError, UnknownError
from fedlin.plan import Plan
from fedlin.problems.problem import Problem
from fedlin.theory.steps import check_delta, check_problem


@check_problem
def fedsplit(problem: Problem) -> Plan:
    """Our proof, as in Pathak and Wainwright's Corollary 1: the proximal parameter s = 1/√(Lμ), as the plan's η.

    A round with exact proximal steps is a reflection, which does not expand, after 2 prox_{s f_i} - I, which contracts
    by max{|1 - sμ|/(1 + sμ), |1 - sL|/(1 + sL)}; s = 1/√(Lμ) makes both (√κ - 1)/(√κ + 1), the least there is.

    Args:
        problem: The problem, whose L and μ are used.

    Returns:
        The plan with η = s.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> fedsplit(problem)
    Plan(tau=1, eta=0.5)
    """
    if problem.strong_convexity <= 0:
        raise PlanError(f"{problem!r} is not strongly convex (μ = 0): give FedSplit's s as Plan(tau=1, eta=s).")
    return Plan(1, 1 / sqrt(problem.smoothness * problem.strong_convexity))


@check_problem
def scaffnew(problem: Problem) -> Plan:
    """Theorem 3.6 of Mishchenko et al.: γ = 1/L and p = 1/√κ, so √κ local steps on average; O(√κ log 1/ε) rounds.

    Args:
        problem: The problem, whose L and μ are used.

    Returns:
        The plan with τ the mean number of local steps.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> scaffnew(problem)
    Plan(tau=2, eta=0.25)
    """
    return Plan(round(sqrt(problem.condition)), 1 / problem.smoothness)


@check_problem
def ef21(problem: Problem, delta: float) -> Plan:
    """Theorem 2 of Richtárik et al.: η = min{1/(L + L̃√(2β/θ)), θ/(2μ)}, θ = 1 - √(1 - 1/δ), β = (1 - 1/δ)/θ.

    L̃² is the mean of L_i². L is the largest L_i here, where the theorem allows the smoothness of f.

    Args:
        problem: The problem, whose L and μ are used.
        delta: δ of the compressor, d/k for TOP-k.

    Returns:
        The plan, with τ = 1.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> ef21(problem, delta=4.0).eta.round(4).tolist()
    0.0247
    """
    left = 1 - 1 / check_delta(delta)
    theta = 1 - sqrt(left)  # θ
    beta = left / theta  # β
    mean_square = sqrt(float(problem.weights @ problem.smoothness_each**2))  # L̃
    eta = 1 / (problem.smoothness + mean_square * sqrt(2 * beta / theta))
    mu = problem.strong_convexity
    return Plan(1, min(eta, theta / (2 * mu)) if mu > 0 else eta)


@check_problem
def diana(problem: Problem, omega: float) -> Plan:
    """Corollary of the main theorem of Gorbunov et al. (2020) on DIANA with α = 1/(1 + ω): η = 1/((1 + 6ω/m) L).

    The method's own authors allow a little more, min{α/(2μ), 2/((L + μ)(1 + 6ω/m))}, in their code.

    Args:
        problem: The problem, whose L and μ are used.
        omega: ω of the unbiased compressor, as in E‖Q(v) - v‖² ≤ ω‖v‖².

    Returns:
        The plan, with τ = 1.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> diana(problem, omega=1.0)
    Plan(tau=1, eta=0.062)
    """
    omega = nonnegative("omega", omega)
    return Plan(1, 1 / ((1 + 6 * omega / problem.clients) * problem.smoothness))


@check_problem
def marina(problem: Problem, omega: float, probability: float) -> Plan:
    """Our proof, as Gorbunov et al.'s Theorems 2.1 and 2.2: η = 1/(L̃ + √(c(1 - p)ω Σ w_i²L_i²/p)).

    L̃² = Σ w_i L_i², which with equal weights makes η = 1/(L̃(1 + √(c(1 - p)ω/(pm)))); c is 2 where a μ of Polyak and
    Łojasiewicz is known, with η ≤ p/(2μ) too, and 1 elsewhere; Q draws for every client on its own. f is L̃-smooth, so
    with D = x⁺ - x = -ηg and E = ‖g - ∇f(x)‖²,
    f(x⁺) ≤ f(x) - (η/2)‖∇f(x)‖² - (1/(2η) - L̃/2)‖D‖² + (η/2)E. A full round makes E zero, any other adds what
    compressing ∇f_i(x⁺) - ∇f_i(x) errs by: E becomes (1 - p)(E + ω Σ w_i²L_i² ‖D‖²) at most, in expectation. So
    f + (cη/(2p))E falls by (η/2)‖∇f(x)‖² a round, with c = 1; with c = 2 and ημ ≤ p/2 its gap falls by 1 - ημ. E begins
    at zero. `bounds.marina` and `bounds.marina_nonconvex` have what follows.

    Args:
        problem: The problem, whose L_i and weights are used, and its μ where it knows one.
        omega: ω of the unbiased compressor, as in E‖Q(v) - v‖² ≤ ω‖v‖².
        probability: p, the method's own.

    Returns:
        The plan, with τ = 1.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> marina(problem, omega=1.0, probability=0.5)
    Plan(tau=1, eta=0.125)
    """
    omega, p = nonnegative("omega", omega), fraction("probability", probability)
    w, L = problem.weights, problem.smoothness_each
    try:
        mu = problem.polyak_lojasiewicz
    except UnknownError:
        mu = 0.0
    errs = (2 if mu > 0 else 1) * (1 - p) * omega * float(w**2 @ L**2) / p
    eta = 1 / (sqrt(float(w @ L**2)) + sqrt(errs))
    return Plan(1, min(eta, p / (2 * mu)) if mu > 0 else eta)


@check_problem
def fedpaq(problem: Problem, tau: ArrayLike, rounds: int, omega: float) -> Plan:
    """Theorem 1 of Reisizadeh et al., for clients that all have one f_i: η_k = 4/(μ(kτ + 1)), from k = k_0.

    Args:
        problem: The problem, whose L and μ are used.
        tau: τ, one number for all clients.
        rounds: How many rounds the plan is for.
        omega: ω of the unbiased compressor, as in E‖Q(v) - v‖² ≤ ω‖v‖².

    Returns:
        The plan, a row of step sizes for every round.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> fedpaq(quadratic(np.ones((2, 1, 1)), np.ones((2, 1))), tau=2, rounds=3, omega=0.0).eta[:, 0].round(3).tolist()
    [0.121, 0.114, 0.108]
    """
    tau = _one_count(tau)
    k = fedpaq_start(problem, tau, omega) + np.arange(positive_integer("rounds", rounds))
    eta = 4 / (problem.strong_convexity * (k * tau + 1))
    return Plan(tau, np.broadcast_to(eta[:, None], (len(k), problem.clients)))


@check_problem
def fedpaq_start(problem: Problem, tau: ArrayLike, omega: float) -> int:
    """Theorem 1 of Reisizadeh et al.: k_0, the least k ≥ 4 max{κ, 4(B_1/μ² + 1), 1/τ, 4m/(μ²τ)}, B_1 = 2L²ω/m.

    That is for all m clients answering. The last term is as printed: it changes when f is multiplied by a number.

    Args:
        problem: The problem, whose L and μ are used.
        tau: τ, one number for all clients.
        omega: ω of the unbiased compressor, as in E‖Q(v) - v‖² ≤ ω‖v‖².

    Returns:
        k_0.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> fedpaq_start(quadratic(np.ones((2, 1, 1)), np.ones((2, 1))), tau=2, omega=0.0)
    16
    """
    tau, omega = _one_count(tau), nonnegative("omega", omega)
    kappa, mu = problem.condition, problem.strong_convexity
    quantised = 2 * kappa**2 * omega / problem.clients  # B_1/μ²
    return ceil(4 * max(kappa, 4 * (quantised + 1), 1 / tau, 4 * problem.clients / (mu**2 * tau)))


@check_problem
def fedcomgate(problem: Problem, tau: ArrayLike, omega: float, server_step: float = 1.0) -> Plan:
    """Our proof, for convex f_i and ω ≤ 1/4: η_i = 1/(4L(1 + ω) max{1, γ} τ_i), γ the method's `server_step`.

    With η̄ = η_iτ_i, q = Lη̄ ≤ 1/4, a = γη̄, La ≤ 1/4, v_i = ∇f_i(x) - δ_i: a local step does not expand, so a
    client's mean direction d_i errs from v_i by at most (q/2)‖v_i‖. The δ_i keep their sum zero, so the mean of ‖v_i‖²
    is ‖∇f‖² + S², S² that of ‖∇f_i - ∇f - δ_i‖². Quantising adds at most ω‖d_i‖² in the mean square. Hence the gap
    falls by (a/2)(0.9‖∇f‖² - 0.1S²) + (3a/8)‖d‖² at least, d the mean of d_i, and S² becomes
    0.56(‖∇f‖² + S²) + (3/16)‖d‖² at most. So gap + (a/4)S² falls by 1 - aμ/2 a round in expectation, which
    `bounds.fedcomgate` has: as the δ_i begin at zero, the gap alone may rise at first. For ω > 1/4 nothing is proven,
    and where ω is 1 or more the δ_i may diverge.

    Args:
        problem: The problem, whose L and μ are used.
        tau: τ_i: one number for all clients, or one for each (or, a row a round, for each round).
        omega: ω of the unbiased compressor, as in E‖Q(v) - v‖² ≤ ω‖v‖².
        server_step: γ, the method's own.

    Returns:
        The plan: these τ_i and the η_i of the formula.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> fedcomgate(quadratic(np.ones((2, 1, 1)), np.ones((2, 1))), [1, 2], 0.25).eta.tolist()
    [0.2, 0.1]
    """
    reach = max(1.0, positive("server_step", server_step))  # max{1, γ}
    return Plan.scaled(tau, 1 / (4 * problem.smoothness * (1 + nonnegative("omega", omega)) * reach))


@check_problem
def gradient_tracking(problem: Problem, tau: ArrayLike, server_step: float = 1.0) -> Plan:
    """Our proof: η_i = 1/(2L max{1, η_s} τ_i), η_s the `server_step`; the gap falls as (1 - min{1, η_s}/(4κ))^T.

    Liu et al. ask for η_sη_c = Θ(1/(Lτ)) on the complete graph; no constant of theirs is used here. This one is our
    own, for convex f_i. A local step does not expand, so a client strays at most η_iτ_i‖∇f_i(x) + c_i‖. Where all come
    equally far, η_iτ_i = η̄ and a = η_sη̄, the mean direction errs by at most (Lη̄/2)(‖∇f(x)‖² + S²)^½, S² the mean
    squared staleness of the c_i. With La ≤ 1/2 and Lη̄ ≤ 1/2, gap + aS²/15 falls by 1 - aμ/2 a round; S starts at 0.

    Args:
        problem: The problem, whose L and μ are used.
        tau: τ_i: one number for all clients, or one for each (or, a row a round, for each round).
        server_step: η_s, the method's own.

    Returns:
        The plan: these τ_i and the η_i of the formula.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> gradient_tracking(quadratic(np.ones((2, 1, 1)), np.ones((2, 1))), 5).eta.tolist()
    0.1
    """
    return Plan.scaled(tau, 1 / (2 * problem.smoothness * max(1.0, positive("server_step", server_step))))


def flanp(problem: Problem, tau: ArrayLike, server_step: float = 1.0) -> Plan:
    """Our proof, that of `gradient_tracking`, whose steps serve every stage of `flanp` with L = max L_i.

    L bounds the smoothness of any subset of the clients, so that no stage needs steps of its own. FedGATE, which the
    paper runs in each stage, is gradient tracking whose corrections begin at zero. `staged.rounds` is how long a
    stage takes.

    Args:
        problem: The problem, whose L and μ are used.
        tau: τ_i: one number for all clients, or one for each (or, a row a round, for each round).
        server_step: η_s, the method's own.

    Returns:
        The plan: these τ_i and the η_i of the formula.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> flanp(quadratic([[[1.0]], [[4.0]]], np.ones((2, 1))), 5).eta.tolist()
    0.025
    """
    return gradient_tracking(problem, tau, server_step)


@check_problem
def fedac(problem: Problem, tau: int) -> Plan:
    """Theorem 3.1 of Yuan and Ma (FedAc-I) for exact gradients: η = 1/L, the largest it allows.

    Args:
        problem: The problem, whose L and μ are used.
        tau: τ, one number for all clients.

    Returns:
        The plan: this τ and η = 1/L.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> fedac(quadratic(2 * np.ones((2, 1, 1)), np.ones((2, 1))), 3)
    Plan(tau=3, eta=0.5)
    """
    return Plan(tau, 1 / problem.smoothness)


@check_problem
def s_local_svrg(problem: Problem, tau: ArrayLike, row_smoothness: float) -> Plan:
    """Our proof: η_i = η̄/τ_i, η̄ = min{τ/(64ℒ), 1/(20√(Lℒ))}, τ the least τ_i and ℒ the `row_smoothness`.

    ℒ is the smoothness of what one draw of the oracle estimates, for a mini-batch at most that of the steepest row. The
    two terms are those of Gorbunov et al.'s complexity ℒ/μ + τ√(Lℒ)/μ; no constant of theirs is used here. These are
    our own, for convex rows: a step on one draw does not expand, so clients stray by at most (4/3)η̄²ℒ times the gaps of
    x and of the reference y in the mean square, and 36 η̄ℒ/τ + 8 η̄√(Lℒ) < 1 leaves enough of the descent for both.
    `bounds.s_local_svrg` is the rate.

    Args:
        problem: The problem, whose L and μ are used.
        tau: τ_i: one number for all clients, or one for each (or, a row a round, for each round).
        row_smoothness: ℒ, the largest smoothness of one row.

    Returns:
        The plan: these τ_i and the η_i of the formula.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> s_local_svrg(quadratic(np.ones((2, 1, 1)), np.ones((2, 1))), [4, 5], 1.0).eta.round(4).tolist()
    [0.0125, 0.01]
    """
    steepest = max(positive("row_smoothness", row_smoothness), problem.smoothness)  # ℒ, of which L is the mean's
    least = int(Plan(tau, 1.0).tau.min())
    return Plan.scaled(tau, min(least / (64 * steepest), 1 / (20 * sqrt(problem.smoothness * steepest))))


def _one_count(tau: ArrayLike) -> int:
    steps = Plan(tau, 1.0).tau
    if steps.min() != steps.max():
        raise PlanError(f"tau ranges from {steps.min()} to {steps.max()}: give one number of steps for all clients.")
    return int(steps.max())
