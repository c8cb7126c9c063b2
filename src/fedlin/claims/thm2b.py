"""Theorem 2, second part: for convex clients the last model converges like 1/T."""

from fedlin import theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common.bound_check import Case, case_figure, judge, lengths
from fedlin.claims.common.wrong_methods import RESEMBLING, must_notice
from fedlin.claims.thm2a import convex_runs


def last_cases(setting: Setting, varying: bool = False) -> list[Case]:
    """Theorem 2's second part on the families of the first."""
    return [
        Case(
            family.name,
            runs.curves("gap"),
            runs.bounds(theory.bounds.convex_last, "gap", "distance"),
            runs.departures,
            power=True,
        )
        for family, runs in convex_runs(setting, theory.convex_last, varying)
    ]


@claim(
    "thm2b",
    order=130,
    title="Convex: the last model",
    section="Rates without compression",
    statement="Clients that are L-smooth and convex, η_i = 1/(6Lτ_i), gap_T = f(x̄_T) - f*: "
    "gap_T ≤ gap_1/(c·gap_1·(T - 1) + 1) with c = 1/(12L‖x̄_1 - x*‖²).",
    wrong=must_notice(RESEMBLING),
)
def check(setting: Setting) -> Outcome:
    """Every round against the bound, on the problems of the first part."""
    cases = last_cases(setting)
    return judge(
        cases,
        case_figure("thm2b", "FedLin's last model on convex problems", cases, bound="bound of Theorem 2"),
        {"clients": "10", "τ": "uniform on {1, ..., 10}", "η": "1/(6Lτ)", "rounds": lengths(cases)},
    )
