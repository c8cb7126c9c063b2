"""Proposition 3: where all clients are the same, H local steps do the work of H rounds."""

from functools import partial

import numpy as np

from fedlin import theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common import instances
from fedlin.claims.common.bound_check import Case, judge, play
from fedlin.claims.common.wrong_methods import (
    BY_STEPS,
    FEDAVG,
    FORGETS,
    LATE_FEDAVG,
    SIGN,
    must_notice,
)
from fedlin.report.figure import Figure
from fedlin.report.verdict import Row

KAPPA = 50.0
STEPS = (1, 5, 20)  # H


@claim(
    "prop3",
    order=180,
    title="Identical clients: local steps pay in full",
    section="Rates without compression",
    statement="All f_i equal, H local steps of size η = 1/L: f(x̄_{T+1}) - f* ≤ (1 - 1/κ)^{TH} (f(x̄_1) - f*).",
    wrong=must_notice(
        {},
        without=(FEDAVG, LATE_FEDAVG, SIGN, BY_STEPS, FORGETS),  # identical clients have nothing to correct or to weigh
    ),
)
def check(setting: Setting) -> Outcome:
    """Each H against the bound, and T rounds of H steps against TH rounds of one."""
    rounds = setting.rounds or setting.pick(400, 200)
    numbers = instances.draws(setting)
    family = [instances.quadratics(n, KAPPA, identical=True) for n in numbers]
    cases = []
    for steps in STEPS:
        plans = [theory.homogeneous(problem, np.full(instances.CLIENTS, steps)) for problem in family]
        runs = play(setting, family, plans, rounds)
        bounds = runs.bounds(partial(theory.bounds.homogeneous, steps=steps), "gap")
        cases.append(Case(f"H = {steps}", runs.curves("gap"), bounds, runs.departures))
    rows = []
    for steps, case in zip(STEPS[1:], cases[1:], strict=True):
        alone = cases[0].measured[:, ::steps]
        apart = np.max(np.abs(case.measured[:, : alone.shape[1]] - alone) / alone)
        what = f"T rounds of {steps} steps beside {steps}T rounds of one: gaps differ by at most"
        rows.append(Row(what, f"{apart:.1g} relative", "1e-9", ok=apart <= 1e-9))
    panels = tuple(case.panel("gap / first gap", bound="bound (1 - 1/κ)^{TH}") for case in cases)
    return judge(
        cases,
        Figure("prop3", f"Identical clients, κ = {KAPPA:g}: the exponent grows with H", panels),
        {"clients": "10 identical quadratics, d = 12", "η": "1/L", "rounds": str(rounds)},
        rows=rows,
    )
