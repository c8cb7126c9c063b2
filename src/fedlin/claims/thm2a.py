"""Theorem 2, first part: for convex clients the mean of the models converges like 1/T."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedlin import theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common import instances
from fedlin.claims.common.bound_check import Case, PlayedRuns, case_figure, judge, lengths, play
from fedlin.claims.common.wrong_methods import RESEMBLING, must_notice
from fedlin.core import Array
from fedlin.plan import Plan
from fedlin.problems.problem import Problem
from fedlin.problems.quadratic import Quadratic
from fedlin.result import Result

FAR = 60 * np.resize((1.0, -1.0), 10) / np.sqrt(10)  # where logistic regression is almost linear, and a bound sharpest


class ConvexFamily(NamedTuple):
    """Instances that are convex, not strongly, where they begin, and for how many rounds."""

    name: str
    members: list[Problem]
    x0: Array | None
    rounds: int


def families(setting: Setting) -> list[ConvexFamily]:
    """f is flat along 5 of 12 directions, in which clients still pull; or it flattens out far away."""
    numbers = instances.draws(setting)
    flat = [instances.even_quadratics(n, 1.0, flat=5, pull=300) for n in numbers]
    return [
        ConvexFamily("quadratics of rank 7 in d = 12", [*flat], None, setting.rounds or setting.pick(24000, 2400)),
        ConvexFamily(
            "logistic regression, no regulariser",
            [instances.small_logistic(n) for n in numbers],
            FAR,
            setting.rounds or 500,
        ),
    ]


def convex_runs(
    setting: Setting, plan: Callable[[Problem, Array], Plan], varying: bool = False
) -> list[tuple[ConvexFamily, PlayedRuns]]:
    """Each family with the steps of `plan`; `varying` draws τ anew every round."""
    played = []
    for family in families(setting):
        tau = [instances.steps_by_round(n, family.rounds, varying) for n in range(len(family.members))]
        plans = [plan(p, steps) for p, steps in zip(family.members, tau, strict=True)]
        played.append((family, play(setting, family.members, plans, family.rounds, x0=family.x0)))
    return played


def gap_of_means(problem: Problem, run: Result, rounds: int) -> Array:
    """f(mean of x̄_1..x̄_T) - f* for T = 1, 2, ...; entry 0 is the start, before any mean."""
    models = run.iterates[:-1]
    means = np.cumsum(models, axis=0) / np.arange(1, len(models) + 1)[:, None]
    if isinstance(problem, Quadratic):  # ½(x - x*)ᵀH(x - x*), for thousands of means at once
        off = means - problem.minimizer
        each = np.sum(off @ problem.hessian * off, axis=1) / 2
    else:
        each = np.array([problem.gap(x) for x in means])
    gaps = np.concatenate([run.gap[:1], each])
    return np.pad(gaps, (0, rounds + 1 - len(gaps)), constant_values=np.inf)


def mean_cases(setting: Setting, varying: bool = False) -> list[Case]:
    """Theorem 2's first part on both families."""
    cases = []
    for family, runs in convex_runs(setting, theory.convex, varying):
        gaps = np.array([gap_of_means(p, run, family.rounds) for p, run in zip(family.members, runs.runs, strict=True)])
        distances = runs.curves("distance")
        bounds = np.array([theory.bounds.convex(p, d) for p, d in zip(family.members, distances, strict=True)])
        cases.append(Case(family.name, gaps, bounds, runs.departures, power=True))
    return cases


@claim(
    "thm2a",
    order=120,
    title="Convex: the mean of the models",
    section="Rates without compression",
    statement="Clients that are L-smooth and convex, η_i = 1/(10Lτ_i): "
    "f(mean of x̄_1..x̄_T) - f* ≤ (10L/T)(‖x̄_1 - x*‖² - ‖x̄_{T+1} - x*‖²).",
    wrong=must_notice(RESEMBLING),
)
def check(setting: Setting) -> Outcome:
    """Every T against the bound, on two kinds of problem without strong convexity."""
    cases = mean_cases(setting)
    return judge(
        cases,
        case_figure(
            "thm2a",
            "The mean of FedLin's models on convex problems",
            cases,
            measured="mean of FedLin's models",
            bound="bound of Theorem 2",
        ),
        {"clients": "10", "τ": "uniform on {1, ..., 10}", "η": "1/(10Lτ)", "rounds": lengths(cases)},
    )
