"""FedLin with Nesterov's momentum around its rounds: the step and β.

On quadratics f_i with Hessians A_i and H = mean of A_i a round of FedLin is y - P∇f(y) with P = mean of p_i(A_i), where
p_i(a) = (1 - (1 - η_i a)^{τ_i})/a falls in a from η̄ = η_iτ_i at 0. So for η̄ = 1/L all eigenvalues of PH are in
[c/κ, 1], c = min of 1 - (1 - 1/τ_i)^{τ_i} > 1 - 1/e; and PH is symmetric in the inner product of H. With q = c/κ and
β = (1 - √q)/(1 + √q) momentum makes of each eigenvalue λ two numbers whose product is β(1 - λ) and whose sum is
(1 + β)(1 - λ). None is larger than 1 - √q: the distance falls by that factor a round, up to one that grows like T, and
rounds grow like √κ.

On smooth and strongly convex f_i a round of more than one local step is no step along a gradient, and momentum adds up
what sets it apart. The claim `open-momentum` proves, at these steps, that the squared distance falls by more than
0.8/√κ a round for κ ≤ 1000; at κ = 10⁴ and five local steps no quadratic Lyapunov function shows any rate.
"""

from math import sqrt

import numpy as np
from numpy.typing import ArrayLike

from fedlin.plan import Plan
from fedlin.problems.problem import Problem
from fedlin.theory.method_bounds import convexity
from fedlin.theory.steps import check_problem


@check_problem
def momentum(problem: Problem, tau: ArrayLike) -> Plan:
    """Our proof, for quadratics: η_i = 1/(Lτ_i), for `momentum(fedlin(), momentum_factor(problem, tau))`.

    Args:
        problem: The problem, whose L is used.
        tau: τ_i: one number for all clients, or one for each.

    Returns:
        The plan: these τ_i and the η_i of the formula.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> momentum(quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2))), [1, 2]).eta.tolist()  # L = 4
    [0.25, 0.125]
    """
    return Plan.scaled(tau, 1 / problem.smoothness)


@check_problem
def momentum_factor(problem: Problem, tau: ArrayLike) -> float:
    """Our proof, for quadratics: β = (1 - √q)/(1 + √q), q = c/κ with c = min of 1 - (1 - 1/τ_i)^{τ_i}.

    Args:
        problem: The problem, whose κ is used.
        tau: τ_i: one number for all clients, or one for each.

    Returns:
        β.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> round(momentum_factor(quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2))), 1), 4)  # q = 1/4
    0.3333
    """
    most = float(np.max(tau))
    root = sqrt((1 - (1 - 1 / most) ** most) * convexity(problem) / problem.smoothness)  # √q
    return (1 - root) / (1 + root)
