"""FLANP's stages: how many clients each has, and how many rounds it can take.

A. Reisizadeh et al., Straggler-Resilient Federated Learning, 2022. V is the statistical accuracy of one client's data
and V/n that of n clients: a stage of n is done once ‖∇f_n‖² ≤ 2μV/n, where it errs by no more than its data do.
"""

from math import ceil, log, log1p

from fedlin.checks import positive, positive_integer
from fedlin.errors import ArgumentError
from fedlin.problems.problem import Problem


def stages(clients: int, first: int = 1) -> tuple[int, ...]:
    """n, 2n, 4n, ... clients from n = `first`, and then all of them.

    Args:
        clients: How many clients there are.
        first: n, the clients of the first stage.

    Returns:
        How many clients each stage has.

    >>> stages(20, first=3)
    (3, 6, 12, 20)
    """
    count, total = positive_integer("first", first), positive_integer("clients", clients)
    if count > total:
        raise ArgumentError(f"first = {count} is more than the {total} clients: begin with fewer.")
    counts = [count]
    while counts[-1] < total:
        counts.append(min(2 * counts[-1], total))
    return tuple(counts)


def rounds(problem: Problem, accuracy: float, gap0: float, first: int = 1) -> tuple[int, ...]:
    """Our proof: the most rounds each stage takes to its data's accuracy, by gradient tracking at `flanp`'s steps.

    A stage is done once its gap is at most V/(nκ), since ‖∇f_n‖² ≤ 2L gap_n, and its gap falls by 1 - 1/(4κ) a round.
    The first stage begins at `gap0`, the gap of its own f_n at the start. A later one begins at no more than 6V/n where
    clients draw their data from one law: V/m is left of the m clients before it, m ≥ n/2, and f_m and f_n differ by at
    most (1 - m/n)(V/(n - m) + V/m) ≤ 2V/n wherever one looks, at the model and at f_n's minimiser. So all stages
    but the first take ln(6κ)/(-ln(1 - 1/(4κ))) rounds, about 4κ ln(6κ), however many clients there are.

    Args:
        problem: The problem, whose L and μ are used.
        accuracy: V.
        gap0: The gap of the first stage's f_n at the start.
        first: n, the clients of the first stage.

    Returns:
        The rounds of each stage.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([np.diag([1.0, 4.0])] * 4, np.ones((4, 2)))  # L = 4, μ = 1
    >>> rounds(problem, accuracy=0.1, gap0=1.0)
    (58, 50, 50)
    """
    kappa, begun = problem.condition, positive("gap0", gap0) / positive("accuracy", accuracy)
    pace = -log1p(-1 / (4 * kappa))
    later = ceil(log(6 * kappa) / pace)
    counts = stages(problem.clients, first)
    return (max(0, ceil(log(kappa * counts[0] * begun) / pace)), *(later for _ in counts[1:]))
