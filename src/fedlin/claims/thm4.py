"""Theorem 4: the Polyak-Łojasiewicz condition is enough for a linear rate."""

import numpy as np

from fedlin import theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common import instances
from fedlin.claims.common.bound_check import Case, case_figure, judge, lengths, play
from fedlin.claims.common.wrong_methods import RESEMBLING, must_notice

KAPPA = 2.0
ROUNDS = 1100  # the bound falls to 10⁻⁹ of the start


def polyak_cases(setting: Setting, varying: bool = False) -> list[Case]:
    """Quadratics of low rank (convex, flat) and x² + 3 sin²x (not convex), split over unlike clients."""
    numbers = instances.draws(setting)
    cases = []
    for name, family, x0, rounds, gradients in (
        (
            f"quadratics of rank 7 in d = 12, κ = {KAPPA:g}",
            [instances.even_quadratics(n, KAPPA, flat=5, pull=300) for n in numbers],
            None,
            setting.rounds or ROUNDS,
            None,
        ),
        (
            "x² + 3 sin²x + c_i x, κ = 256",
            [instances.waves(n, tilt=5000.0) for n in numbers],
            np.array([6.0]),
            setting.rounds or setting.pick(46000, 2600),
            instances.wave_gradients,
        ),
    ):
        tau = [instances.steps_by_round(n, rounds, varying) for n in numbers]
        plans = [theory.polyak_lojasiewicz(p, steps) for p, steps in zip(family, tau, strict=True)]
        runs = play(setting, family, plans, rounds, x0=x0, gradients=gradients)
        bounds = runs.bounds(theory.bounds.polyak_lojasiewicz, "gap")
        cases.append(Case(name, runs.curves("gap"), bounds, runs.departures))
    return cases


@claim(
    "thm4",
    order=150,
    title="Polyak-Łojasiewicz: a linear rate without convexity",
    section="Rates without compression",
    statement="Clients that are L-smooth, ‖∇f‖² ≥ 2μ(f - f*), η_i = 1/(26Lτ_i), κ = L/μ: "
    "f(x̄_{T+1}) - f* ≤ (1 - 1/(26κ))^T (f(x̄_1) - f*).",
    wrong=must_notice(RESEMBLING),
)
def check(setting: Setting) -> Outcome:
    """Every round against the bound, on a problem that is flat and on one that is not convex."""
    cases = polyak_cases(setting)
    return judge(
        cases,
        case_figure(
            "thm4", "FedLin where f obeys the Polyak-Łojasiewicz condition", cases, bound="bound (1 - 1/(26κ))^T"
        ),
        {"clients": "10", "τ": "uniform on {1, ..., 10}", "η": "1/(26Lτ)", "rounds": lengths(cases)},
    )
