"""Theorem 1: linear convergence to x* whatever the clients' objectives and speeds."""

from collections.abc import Sequence

from fedlin import algorithms, theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common import instances
from fedlin.claims.common.draws import draws
from fedlin.claims.common.rates import Case, compare, judge
from fedlin.problems.problem import Problem
from fedlin.report.figure import Figure

KAPPA = 10.0
L2 = 0.1
BOUND = "bound (1 - 1/(6κ))^T"


def cases(setting: Setting, rounds: int, *, varying: bool = False) -> list[Case]:
    """Quadratics and regularised logistic regression with Theorem 1's steps; `varying` draws τ anew every round."""
    numbers = draws(setting)
    families: dict[str, Sequence[Problem]] = {
        f"quadratics, κ = {KAPPA:g}": [instances.quadratics(n, KAPPA) for n in numbers],
        f"logistic regression, l2 = {L2:g}": [instances.logistic(n, L2) for n in numbers],
    }
    if varying and setting.quick:  # another program to compile
        families.pop(f"logistic regression, l2 = {L2:g}")
    tau = [instances.steps(n, rounds=rounds if varying else None) for n in numbers]
    return [
        compare(
            name,
            algorithms.fedlin(),
            family,
            [theory.strongly_convex(problem, steps) for problem, steps in zip(family, tau, strict=True)],
            rounds,
            theory.bounds.strongly_convex,
        )
        for name, family in families.items()
    ]


@claim(
    "thm1",
    order=110,
    title="Strongly convex: a linear rate",
    section="Rates without compression",
    statement="Clients that are L-smooth and μ-strongly convex, any τ_i ≥ 1, η_i = 1/(6Lτ_i): "
    "f(x̄_{T+1}) - f* ≤ (1 - 1/(6κ))^T (f(x̄_1) - f*).",
)
def check(setting: Setting) -> Outcome:
    """Every round against the bound, on problems that differ from client to client."""
    rounds = setting.rounds or setting.pick(600, 200)
    found = cases(setting, rounds)
    panels = tuple(case.panel("gap / first gap", bound=BOUND) for case in found)
    return judge(
        found,
        Figure("thm1", "The gap of FedLin and the rate Theorem 1 promises", panels),
        {"clients": "10", "τ": "uniform on {1, ..., 10}", "η": "1/(6Lτ)", "rounds": str(rounds)},
    )
