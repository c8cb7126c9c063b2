"""Step sizes of the accelerated methods, each from its source or by a proof given here.

Every docstring begins with where its step comes from, as those of `method_steps` do. The three methods of a shared coin
have one proof. Stack the clients' models to X, let W be the stacks of m equal models and U the stack of control
variates, orthogonal to W as U* = ∇F(X*) is. One local step is X̂ = X - γ(∇F(X) - U), so that A = X̂ - X* = w + γE with
w = X - X* - γ(∇F(X) - ∇F(X*)) and E = U - U*, and with A⊥ the part of A orthogonal to W,
‖A‖² = ‖w‖² + 2γ⟨A⊥, E⟩ - γ²‖E‖². When the coin falls, X becomes X⁺ and U loses cR. If E‖X⁺ - X*‖² ≤ ‖A‖² - a‖A⊥‖²,
E R = bA⊥ and E‖R‖² ≤ b'‖A⊥‖², then with c = pχb/(γb') and χ ≤ a the cross terms cancel, and
Ψ = ‖X - X*‖² + (γ²b'/(p²χb²))‖U - U*‖² falls by max{(1 - γμ)², (1 - γL)², 1 - p²χb²/b'} a step in expectation.
`bounds.coin_rounds` turns a step's rate into a round's.
"""

from math import sqrt

import numpy as np

from fedlin.checks import nonnegative, positive_integer
from fedlin.errors import PlanError
from fedlin.plan import Plan
from fedlin.problems.problem import Problem
from fedlin.theory.steps import check_problem


@check_problem
def compressed_scaffnew(problem: Problem, sparsity: int) -> Plan:
    """Our proof, as Condat et al.'s: γ = 1/L, p²χb = γμ(2 - γμ) with b = (s - 1)/(m - 1), χ = m(s - 1)/(s(m - 1)).

    An entry that s clients chosen at random send becomes their mean, whose variance is (m - s)/(s(m - 1)) of A⊥'s: a =
    χ. The s clients' differences R to their mean have E R = bA⊥ and E‖R‖² = b‖A⊥‖². Both rates are then (1 - γμ)².

    Args:
        problem: The problem, whose L, μ and m are used.
        sparsity: s, the method's own.

    Returns:
        The plan with τ = ⌊1/p⌋ the mean number of local steps.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 100.0])] * 4, np.ones((4, 2)))  # L = 100, μ = 1
    >>> compressed_scaffnew(problem, sparsity=2)
    Plan(tau=3, eta=0.01)
    """
    gamma = 1 / problem.smoothness
    share = mask_share(problem.clients, sparsity)
    return Plan(_most_steps(share / _drop(1 / problem.condition)), gamma)


def tamuna(problem: Problem, sparsity: int) -> Plan:
    """Our proof, that of `compressed_scaffnew`, and its steps, whatever the size of the method's cohort.

    A cohort drawn from all m clients and a random pattern for it let s clients drawn from all m send an entry; the
    proof needs nothing else. That the others are idle costs nothing: they would begin from the mean as well, and
    their U stays as it is in the proof where they send nothing. Condat et al.'s Theorem 1 has no c in its rate either.

    Args:
        problem: The problem, whose L, μ and m are used.
        sparsity: s, the method's own.

    Returns:
        The plan with τ = ⌊1/p⌋ the mean number of local steps.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 100.0])] * 4, np.ones((4, 2)))  # L = 100, μ = 1
    >>> tamuna(problem, sparsity=2)
    Plan(tau=3, eta=0.01)
    """
    return compressed_scaffnew(problem, sparsity)


def mask_share(clients: int, sparsity: int) -> float:
    """χb, what the compression leaves of 1 - p²χb: 1 where every client sends every entry.

    >>> mask_share(4, 4)
    1.0
    """
    m, s = positive_integer("clients", clients, least=2), positive_integer("sparsity", sparsity, least=2)
    if s > m:
        raise PlanError(f"sparsity = {s} is more than the {m} clients: give a number from 2 to {m}.")
    return m * (s - 1) ** 2 / (s * (m - 1) ** 2)


@check_problem
def locodl(problem: Problem) -> Plan:
    """Our proof, as Condat et al.'s Theorem 3.1: γ = 1/L; the method's ρ is `locodl_pace`, its p `locodl_probability`.

    X has the second model y too, with the weight of all clients together. What is compressed are x_i - y, and
    Σ‖x_i - y‖² ≤ 2‖A⊥‖²: their mean errs by at most (ω/m)‖A⊥‖² in the mean square, so a = 2ρ - ρ²(1 + ω/m), and R, the
    projection of what was sent, has E R = A⊥ and E‖R‖² ≤ (1 + 2ω)‖A⊥‖². Of μ one half is the clients' and one the
    second model's.

    Args:
        problem: The problem, whose L is used.

    Returns:
        The plan; its τ is not used.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> locodl(quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2))))
    Plan(tau=1, eta=0.25)
    """
    return Plan(1, 1 / problem.smoothness)


@check_problem
def locodl_pace(problem: Problem, omega: float) -> float:
    """Our proof, that of `locodl`: ρ = χ = 1/(1 + ω/m), the best there is where clients draw on their own.

    Args:
        problem: The problem, whose m is used.
        omega: ω of the unbiased compressor, as in E‖Q(v) - v‖² ≤ ω‖v‖².

    Returns:
        ρ.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> locodl_pace(quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2))), omega=2.0)
    0.5
    """
    return 1 / (1 + nonnegative("omega", omega) / problem.clients)


@check_problem
def locodl_probability(problem: Problem, omega: float) -> float:
    """Our proof, that of `locodl`: p that makes both of its rates equal, at most 1; 1/p = O(√(κ/((1 + ω/m)(1 + ω)))).

    Args:
        problem: The problem, whose L, μ and m are used.
        omega: ω of the unbiased compressor, as in E‖Q(v) - v‖² ≤ ω‖v‖².

    Returns:
        p.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> round(locodl_probability(quadratic([np.diag([1.0, 100.0])] * 2, np.ones((2, 2))), omega=0.0), 4)
    0.0999
    """
    rate = _drop(1 / (2 * problem.condition))
    return min(1.0, sqrt(rate * (1 + 2 * nonnegative("omega", omega)) / locodl_pace(problem, omega)))


@check_problem
def gradskip(problem: Problem) -> Plan:
    """Our proof, as Maranjyan et al.'s: γ = 1/L, p = 1/√κ and q_i ≥ (1 - 1/κ_i)/(1 - 1/κ), κ_i = L_i/μ; τ_i of that.

    A client that rests has h_i = ∇f_i(x_i), so the mean square of h_i - h_i* is q_i times what it was and 1 - q_i times
    ‖∇f_i(x_i) - ∇f_i(x*)‖². With γ ≤ p²/(L_i(1 - q_i(1 - p²))) the descent of x_i pays for the latter, and ‖X - X*‖² +
    (γ/p)²‖H - H*‖² falls by max{1 - γμ, max q_i(1 - p²)} a step, as Scaffnew's does.

    Args:
        problem: The problem, whose L_i and μ are used.

    Returns:
        The plan with τ_i = ⌈1/(1 - q_i(1 - p))⌉, the mean number of gradients of client i.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> gradskip(quadratic([np.diag([1.0, 100.0]), np.diag([1.0, 2.0])], np.ones((2, 2)))).tau.tolist()
    [10, 2]
    """
    kappa, mu = problem.condition, problem.strong_convexity
    p = gradskip_probability(problem)
    each = np.asarray(problem.smoothness_each, np.float64) / mu
    q = np.zeros(problem.clients) if kappa == 1 else (1 - 1 / each) / (1 - 1 / kappa)
    return Plan(np.ceil(1 / (1 - q * (1 - p)) - 1e-9).astype(int), 1 / problem.smoothness)


@check_problem
def gradskip_probability(problem: Problem) -> float:
    """Our proof, that of `gradskip`: p = 1/√κ.

    Args:
        problem: The problem, whose L and μ are used.

    Returns:
        p.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> gradskip_probability(quadratic([np.diag([1.0, 100.0])] * 2, np.ones((2, 2))))
    0.1
    """
    return 1 / sqrt(problem.condition)


@check_problem
def adiana(problem: Problem, omega: float) -> Plan:
    """Its authors' later code: η = min{1/(2L), m/(64ωL(2q(1 + ω) + 1)²)}, q the method's `adiana_probability`.

    Args:
        problem: The problem, whose L and m are used; L is the largest L_i here, where their code takes f's.
        omega: ω of the unbiased compressor, as in E‖Q(v) - v‖² ≤ ω‖v‖².

    Returns:
        The plan, with τ = 1.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> adiana(quadratic([np.diag([1.0, 4.0])] * 80, np.ones((80, 2))), omega=1.0).eta.round(4).tolist()
    0.0781
    """
    q, L = adiana_probability(problem, omega), problem.smoothness
    most = 1 / (2 * L)
    if omega == 0:
        return Plan(1, most)
    return Plan(1, min(most, problem.clients / (64 * omega * L * (2 * q * (1 + omega) + 1) ** 2)))


@check_problem
def adiana_probability(problem: Problem, omega: float) -> float:
    """Its authors' later code: q = min{1, max{1, √(m/(32ω)) - 1}/(2(1 + ω))}.

    Args:
        problem: The problem, whose m is used.
        omega: ω of the unbiased compressor, as in E‖Q(v) - v‖² ≤ ω‖v‖².

    Returns:
        q.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> adiana_probability(quadratic([np.diag([1.0, 4.0])] * 80, np.ones((80, 2))), omega=1.0)
    0.25
    """
    if nonnegative("omega", omega) == 0:
        return 1.0
    return min(1.0, max(1.0, sqrt(problem.clients / (32 * omega)) - 1) / (2 * (1 + omega)))


@check_problem
def fednl(problem: Problem) -> Plan:
    """Safaryan et al.: η = 1, Newton's step.

    Their theorems are local: near x* the distance falls at a rate that depends on no condition number, and faster than
    any linear rate in the end. From afar use `line_search=True`.

    Args:
        problem: The problem.

    Returns:
        The plan; its τ is not used.

    >>> from fedlin.problems import quadratic
    >>> fednl(quadratic([[[1.0]]], [[1.0]]))
    Plan(tau=1, eta=1.)
    """
    return Plan(1, 1.0)


def _drop(slow: float) -> float:
    """1 - (1 - γμ)², from γμ."""
    return slow * (2 - slow)


def _most_steps(square: float) -> int:
    """⌊1/p⌋, at least 1, from 1/p²."""
    return max(1, int(sqrt(square)))
