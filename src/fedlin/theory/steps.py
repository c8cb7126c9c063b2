"""Step sizes for FedLin: each function turns a problem and the τ_i into a plan.

Theorems and propositions are those of Mitra et al., Linear Convergence in Federated Learning (NeurIPS 2021), whose
η_i = η̄/τ_i. The steps of the other methods are in `method_steps`.
"""

from collections.abc import Callable
from functools import wraps
from math import sqrt
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from fedlin.checks import instance_of, positive, positive_integer, real
from fedlin.plan import Plan
from fedlin.problems.problem import Problem
from fedlin.theory.dissimilarity import dissimilarity

F = TypeVar("F", bound=Callable[..., Any])


def check_problem(theorem: F) -> F:
    """The theorem, which refuses what is no problem before it asks for constants."""

    @wraps(theorem)
    def checked(problem: Problem, *args: object, **kwargs: object) -> Any:
        return theorem(instance_of("problem", problem, Problem, "a fedlin Problem"), *args, **kwargs)

    return cast(F, checked)


@check_problem
def strongly_convex(problem: Problem, tau: ArrayLike) -> Plan:
    """Theorem 1: η_i = 1/(6Lτ_i).

    Args:
        problem: The problem, whose L and μ are used.
        tau: τ_i: one number for all clients, or one for each (or, a row a round, for each round).

    Returns:
        The plan: these τ_i and the η_i of the formula.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> strongly_convex(quadratic(np.ones((2, 1, 1)), np.ones((2, 1))), [1, 2]).eta.round(4).tolist()
    [0.1667, 0.0833]
    """
    return Plan.scaled(tau, 1 / (6 * problem.smoothness))


@check_problem
def convex(problem: Problem, tau: ArrayLike) -> Plan:
    """Theorem 2, for the mean of the models: η_i = 1/(10Lτ_i).

    Args:
        problem: The problem, whose L and μ are used.
        tau: τ_i: one number for all clients, or one for each (or, a row a round, for each round).

    Returns:
        The plan: these τ_i and the η_i of the formula.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> convex(problem, [1, 2]).eta.tolist()
    [0.025, 0.0125]
    """
    return Plan.scaled(tau, 1 / (10 * problem.smoothness))


@check_problem
def convex_last(problem: Problem, tau: ArrayLike) -> Plan:
    """Theorem 2, for the last model: η_i = 1/(6Lτ_i).

    Args:
        problem: The problem, whose L and μ are used.
        tau: τ_i: one number for all clients, or one for each (or, a row a round, for each round).

    Returns:
        The plan: these τ_i and the η_i of the formula.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> convex_last(problem, [1, 2]).eta.round(4).tolist()
    [0.0417, 0.0208]
    """
    return Plan.scaled(tau, 1 / (6 * problem.smoothness))


@check_problem
def nonconvex(problem: Problem, tau: ArrayLike) -> Plan:
    """Theorem 3: η_i = 1/(26Lτ_i).

    Args:
        problem: The problem, whose L and μ are used.
        tau: τ_i: one number for all clients, or one for each (or, a row a round, for each round).

    Returns:
        The plan: these τ_i and the η_i of the formula.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> nonconvex(problem, [1, 2]).eta.round(4).tolist()
    [0.0096, 0.0048]
    """
    return Plan.scaled(tau, 1 / (26 * problem.smoothness))


@check_problem
def polyak_lojasiewicz(problem: Problem, tau: ArrayLike) -> Plan:
    """Theorem 4: η_i = 1/(26Lτ_i).

    Args:
        problem: The problem, whose L and μ are used.
        tau: τ_i: one number for all clients, or one for each (or, a row a round, for each round).

    Returns:
        The plan: these τ_i and the η_i of the formula.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> polyak_lojasiewicz(problem, [1, 2]).eta.round(4).tolist()
    [0.0096, 0.0048]
    """
    return Plan.scaled(tau, 1 / (26 * problem.smoothness))


@check_problem
def noisy(problem: Problem, tau: ArrayLike, eta_bar: float | None = None) -> Plan:
    """Theorem 5: any η̄ ≤ 1/(12L), the largest unless given.

    The theorem is stated for η̄ < 1/(6L), but the last step of its proof needs 12η̄L ≤ 1.

    Args:
        problem: The problem, whose L and μ are used.
        tau: τ_i: one number for all clients, or one for each (or, a row a round, for each round).
        eta_bar: η̄ itself, at most 1/(12L).

    Returns:
        The plan: these τ_i and the η_i of the formula.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> noisy(problem, [1, 2]).eta.round(4).tolist()
    [0.0208, 0.0104]
    """
    limit = 1 / (12 * problem.smoothness)
    chosen = limit if eta_bar is None else eta_bar
    real("eta_bar", chosen, lambda value: 0 < value <= limit, f"a number in (0, 1/(12L)] = (0, {limit:.4g}]")
    return Plan.scaled(tau, chosen)


DECAY = 48  # t_0/κ of `noisy_decaying`


@check_problem
def noisy_decaying(problem: Problem, tau: ArrayLike, rounds: int) -> Plan:
    """Theorem 5 with η̄_t = 4/(μ(t + t_0)), t_0 = 48κ, which is at most 1/(12L): error O(1/T).

    Args:
        problem: The problem, whose L and μ are used.
        tau: τ_i: one number for all clients, or one for each (or, a row a round, for each round).
        rounds: How many rounds the plan is for.

    Returns:
        The plan, a row of τ_i and η_i for every round.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> noisy_decaying(problem, [1, 2], rounds=3).eta.round(4).tolist()
    [[0.0208, 0.0104], [0.0207, 0.0104], [0.0206, 0.0103]]
    """
    t = np.arange(positive_integer("rounds", rounds))
    steps, _ = Plan(tau, 1.0).rows(problem.clients, len(t))
    eta_bar = 4 / (problem.strong_convexity * (t + DECAY * problem.condition))
    return Plan(np.broadcast_to(steps, (len(t), problem.clients)), eta_bar[:, None] / steps)


@check_problem
def server_sparse(problem: Problem, tau: ArrayLike, delta: float) -> Plan:
    """Theorem 7, compression at the server without feedback: η_i = 1/(2(2+√δ)Lτ_i).

    Args:
        problem: The problem, whose L and μ are used.
        tau: τ_i: one number for all clients, or one for each (or, a row a round, for each round).
        delta: δ of the compressor, d/k for TOP-k.

    Returns:
        The plan: these τ_i and the η_i of the formula.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> server_sparse(problem, [1, 2], delta=4.0).eta.round(5).tolist()
    [0.03125, 0.01562]
    """
    delta = check_delta(delta)
    return Plan.scaled(tau, 1 / (2 * (2 + sqrt(delta)) * problem.smoothness))


@check_problem
def server_feedback(problem: Problem, tau: ArrayLike, delta: float) -> Plan:
    """Theorem 8, compression at the server with feedback: η_i = 1/(72Lδτ_i).

    Args:
        problem: The problem, whose L and μ are used.
        tau: τ_i: one number for all clients, or one for each (or, a row a round, for each round).
        delta: δ of the compressor, d/k for TOP-k.

    Returns:
        The plan: these τ_i and the η_i of the formula.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> server_feedback(problem, [1, 2], delta=4.0).eta.round(5).tolist()
    [0.00087, 0.00043]
    """
    return Plan.scaled(tau, 1 / (72 * problem.smoothness * check_delta(delta)))


@check_problem
def client_feedback(problem: Problem, tau: ArrayLike, delta: float, C: float | None = None) -> Plan:
    """Theorem 9, compression at the clients with feedback: η_i = 1/(72LδCτ_i); C by `dissimilarity` unless given.

    Args:
        problem: The problem, whose L and μ are used.
        tau: τ_i: one number for all clients, or one for each (or, a row a round, for each round).
        delta: δ of the compressor, d/k for TOP-k.
        C: C of the clients' dissimilarity; `dissimilarity` computes it unless given.

    Returns:
        The plan: these τ_i and the η_i of the formula.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> client_feedback(problem, [1, 2], delta=4.0, C=1.0).eta.round(5).tolist()
    [0.00087, 0.00043]
    """
    if C is None:
        C = dissimilarity(problem).C
    return Plan.scaled(tau, 1 / (72 * problem.smoothness * check_delta(delta) * positive("C", C)))


@check_problem
def homogeneous(problem: Problem, tau: ArrayLike) -> Plan:
    """Proposition 3, identical clients: η = 1/L for all, whatever τ.

    Args:
        problem: The problem, whose L and μ are used.
        tau: τ_i: one number for all clients, or one for each (or, a row a round, for each round).

    Returns:
        The plan: these τ_i, and η = 1/L for all clients.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))  # L = 4, μ = 1
    >>> homogeneous(problem, 5)
    Plan(tau=5, eta=0.25)
    """
    return Plan(tau, 1 / problem.smoothness)


def check_delta(delta: float) -> float:
    """δ, if it is one a compressor can have."""
    return real("delta", delta, lambda value: value >= 1, "a number of at least 1 (d/k for TOP-k)")
