"""Theorem 2, first part: for convex clients the mean of the models converges like 1/T."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlin import algorithms, theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common import instances
from fedlin.claims.common.draws import draws
from fedlin.claims.common.rates import Case, judge
from fedlin.engines.simulation.simulate import simulate_many
from fedlin.problems.problem import Problem
from fedlin.report.figure import Figure
from fedlin.result import Result


def families(numbers: range) -> dict[str, Sequence[Problem]]:
    """Convex, not strongly: f is flat along d - 5 directions, or flattens out far away."""
    return {
        "least squares of rank 5 in d = 12": [instances.flat_least_squares(n) for n in numbers],
        "logistic regression, no regulariser": [instances.logistic(n) for n in numbers],
    }


def gap_of_means(problem: Problem, run: Result) -> NDArray[Any]:
    """f(mean of x̄_1..x̄_T) - f* for T = 1, 2, ...; entry 0 is the start, before any mean."""
    means = np.cumsum(run.iterates[:-1], axis=0) / np.arange(1, run.rounds + 1)[:, None]
    return np.array([run.gap[0], *(problem.gap(x) for x in means)])


@claim(
    "thm2a",
    order=120,
    title="Convex: the mean of the models",
    section="Rates without compression",
    statement="Clients that are L-smooth and convex, η_i = 1/(10Lτ_i): "
    "f(mean of x̄_1..x̄_T) - f* ≤ (10L/T)(‖x̄_1 - x*‖² - ‖x̄_{T+1} - x*‖²).",
)
def check(setting: Setting) -> Outcome:
    """Every T against the bound, on two kinds of problem without strong convexity."""
    rounds = setting.rounds or setting.pick(600, 200)
    numbers = draws(setting)
    cases = []
    for name, family in families(numbers).items():
        plans = [theory.convex(p, instances.steps(n)) for n, p in zip(numbers, family, strict=True)]
        runs = simulate_many(algorithms.fedlin(), family, plans, rounds)
        gaps = [gap_of_means(p, run) for p, run in zip(family, runs, strict=True)]
        bounds = [theory.bounds.convex(p, run.distance) for p, run in zip(family, runs, strict=True)]
        cases.append(Case(name, np.array(gaps), np.array(bounds)))
    panels = tuple(
        case.panel("gap / first gap", measured="mean of FedLin's models", bound="bound of Theorem 2", xscale="log")
        for case in cases
    )
    return judge(
        cases,
        Figure("thm2a", "The mean of FedLin's models on convex problems", panels),
        {"clients": "10", "τ": "uniform on {1, ..., 10}", "η": "1/(10Lτ)", "rounds": str(rounds)},
        rates=False,
    )
