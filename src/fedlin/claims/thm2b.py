"""Theorem 2, second part: for convex clients the last model converges like 1/T."""

import numpy as np

from fedlin import algorithms, theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common import instances
from fedlin.claims.common.draws import draws, stack
from fedlin.claims.common.rates import Case, judge
from fedlin.claims.thm2a import families
from fedlin.engines.simulation.simulate import simulate_many
from fedlin.report.figure import Figure


@claim(
    "thm2b",
    order=130,
    title="Convex: the last model",
    section="Rates without compression",
    statement="Clients that are L-smooth and convex, η_i = 1/(6Lτ_i), gap_T = f(x̄_T) - f*: "
    "gap_T ≤ gap_1/(c·gap_1·(T - 1) + 1) with c = 1/(12L‖x̄_1 - x*‖²).",
)
def check(setting: Setting) -> Outcome:
    """Every round against the bound, on the problems of the first part."""
    rounds = setting.rounds or setting.pick(600, 200)
    numbers = draws(setting)
    cases = []
    for name, family in families(numbers).items():
        plans = [theory.convex_last(p, instances.steps(n)) for n, p in zip(numbers, family, strict=True)]
        runs = simulate_many(algorithms.fedlin(), family, plans, rounds)
        bounds = [
            theory.bounds.convex_last(p, rounds, run.gap[0], run.distance[0])
            for p, run in zip(family, runs, strict=True)
        ]
        cases.append(Case(name, stack(runs, "gap", rounds), np.array(bounds)))
    panels = tuple(case.panel("gap / first gap", bound="bound of Theorem 2", xscale="log") for case in cases)
    return judge(
        cases,
        Figure("thm2b", "FedLin's last model on convex problems", panels),
        {"clients": "10", "τ": "uniform on {1, ..., 10}", "η": "1/(6Lτ)", "rounds": str(rounds)},
        rates=False,
    )
