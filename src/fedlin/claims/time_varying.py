"""Section 4: the guarantees survive machines whose speed changes from round to round."""

from dataclasses import replace

from fedlin import problems
from fedlin.claims import thm5
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common import instances
from fedlin.claims.common.bound_check import Case, case_figure, judge, lengths
from fedlin.claims.common.wrong_methods import RESEMBLING, must_notice
from fedlin.claims.thm1 import strongly_convex_cases
from fedlin.claims.thm2a import mean_cases
from fedlin.claims.thm2b import last_cases
from fedlin.claims.thm3 import nonconvex_cases
from fedlin.claims.thm4 import polyak_cases
from fedlin.report.verdict import Row

NOISY_ROUNDS = 100


@claim(
    "time-varying",
    order=190,
    title="Speeds that change every round",
    section="Rates without compression",
    statement="With τ_i(t) different in every round and η_i(t) = η̄/τ_i(t), the guarantees of Theorems 1 to 5 stay as "
    "they are.",
    wrong=must_notice(RESEMBLING),
)
def check(setting: Setting) -> Outcome:
    """The checks of the theorems with τ drawn anew for every client and round."""
    cases = _named("Theorem 1", strongly_convex_cases(setting, varying=True))
    rows: list[Row] = []
    if not setting.quick:  # each is another program to compile
        cases += _named("Theorem 2, mean", mean_cases(setting, varying=True))
        cases += _named("Theorem 2, last", last_cases(setting, varying=True))
        cases += _named("Theorem 3", nonconvex_cases(setting, varying=True))
        cases += _named("Theorem 4", polyak_cases(setting, varying=True))
        rows = _noisy(setting)
    return judge(
        cases,
        case_figure(
            "time-varying",
            "FedLin with new numbers of local steps every round",
            cases,
            "measured / the first",
            bound="bound",
        ),
        {"clients": "10", "τ": "uniform on {1, ..., 10}, anew every round", "η": "that of each theorem"}
        | {"rounds": lengths(cases)},
        rows=rows,
    )


def _named(theorem: str, cases: list[Case]) -> list[Case]:
    return [replace(case, name=f"{theorem}, {case.name}") for case in cases]


def _noisy(setting: Setting) -> list[Row]:
    """Theorem 5's recursion on its first draw."""
    exact = instances.even_quadratics(0, thm5.KAPPA, thm5.DIM, pull=thm5.PULL)
    family = [problems.noisy(exact, thm5.VARIANCE)]
    tau = [instances.steps(0, rounds=NOISY_ROUNDS)]
    eta_bar = 1 / (12 * exact.smoothness)
    return thm5.recursion(setting, family, tau, NOISY_ROUNDS, eta_bar, "Theorem 5, η̄ = 1/(12L)").rows
