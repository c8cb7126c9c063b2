"""Theorem 1: linear convergence to x* whatever the clients' objectives and speeds."""

from collections.abc import Sequence

from fedlin import theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common import instances
from fedlin.claims.common.bound_check import Case, case_figure, judge, play
from fedlin.claims.common.wrong_methods import RESEMBLING, must_notice
from fedlin.problems.problem import Problem

KAPPA = 10.0
L2 = 0.1
ROUNDS = 1100  # the bound falls to 10⁻⁸ of the start at κ = 10
BOUND = "bound (1 - 1/(6κ))^T"


def strongly_convex_cases(setting: Setting, *, varying: bool = False) -> list[Case]:
    """Three families with Theorem 1's steps, the first as slow as κ allows; `varying` draws τ anew every round."""
    numbers = instances.draws(setting)
    rounds = setting.rounds or ROUNDS
    families: dict[str, Sequence[Problem]] = {
        f"quadratics with even slopes, κ = {KAPPA:g}": [instances.even_quadratics(n, KAPPA, pull=300) for n in numbers],
        f"quadratics with a basis each, κ = {KAPPA:g}": [instances.quadratics(n, KAPPA) for n in numbers],
        f"logistic regression, l2 = {L2:g}": [instances.small_logistic(n, L2) for n in numbers],
    }
    if varying and setting.quick:  # another program to compile
        families.pop(f"logistic regression, l2 = {L2:g}")
    tau = [instances.steps_by_round(n, rounds, varying) for n in numbers]
    cases = []
    for name, family in families.items():
        plans = [theory.strongly_convex(problem, steps) for problem, steps in zip(family, tau, strict=True)]
        runs = play(setting, family, plans, rounds)
        bounds = runs.bounds(theory.bounds.strongly_convex, "gap")
        cases.append(Case(name, runs.curves("gap"), bounds, runs.departures))
    return cases


@claim(
    "thm1",
    order=110,
    title="Strongly convex: a linear rate",
    section="Rates without compression",
    statement="Clients that are L-smooth and μ-strongly convex, any τ_i ≥ 1, η_i = 1/(6Lτ_i): "
    "f(x̄_{T+1}) - f* ≤ (1 - 1/(6κ))^T (f(x̄_1) - f*).",
    wrong=must_notice(RESEMBLING),
)
def check(setting: Setting) -> Outcome:
    """Every round against the bound, on problems that differ from client to client."""
    cases = strongly_convex_cases(setting)
    return judge(
        cases,
        case_figure("thm1", "The gap of FedLin and the rate Theorem 1 promises", cases, bound=BOUND),
        {"clients": "10", "τ": "uniform on {1, ..., 10}", "η": "1/(6Lτ)", "rounds": str(setting.rounds or ROUNDS)},
    )
