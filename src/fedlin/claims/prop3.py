"""Proposition 3: where all clients are the same, H local steps do the work of H rounds."""

from functools import partial

import numpy as np

from fedlin import algorithms, theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common import instances
from fedlin.claims.common.draws import draws
from fedlin.claims.common.rates import compare, judge
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
)
def check(setting: Setting) -> Outcome:
    """Each H against the bound, and T rounds of H steps against TH rounds of one."""
    rounds = setting.rounds or setting.pick(200, 60)
    numbers = draws(setting)
    family = [instances.quadratics(n, KAPPA, identical=True) for n in numbers]
    cases = []
    for steps in STEPS:
        plans = [theory.homogeneous(problem, np.full(instances.CLIENTS, steps)) for problem in family]
        bound = partial(theory.bounds.homogeneous, steps=steps)
        cases.append(compare(f"H = {steps}", algorithms.fedlin(), family, plans, rounds, bound))
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
