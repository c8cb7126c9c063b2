"""Theorem 8: a server that remembers what it did not send pays 1/δ where one that forgets pays 1/δ^{3/2}."""

from math import ceil, log

from fedlin import theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common.bound_check import Case, case_figure, judge, lengths
from fedlin.claims.common.wrong_methods import LONGER, STALE, TRIPLE, WHOLE, must_notice
from fedlin.claims.thm7 import families, run_family
from fedlin.problems.quadratic import Quadratic

KAPPA = 1.2
DEPTH = 1e-8  # of the start, which the bound is to fall to: 2κ in front of it takes its time
SHALLOW = 1e-3  # the same for what is slow to run: a single entry, and logistic regression
CROSSING = 46**2  # δ from which 96δ is below 2δ(2 + √δ)


def with_feedback(setting: Setting) -> list[Case]:
    """Theorem 7's families with the link that remembers."""
    cases = []
    for family in families(setting, KAPPA):
        depth = SHALLOW if family.k == 1 or not isinstance(family.members[0], Quadratic) else DEPTH
        rounds = setting.rounds or ceil((log(2 * family.condition) - log(depth)) * 96 * family.delta * family.condition)
        cases.append(run_family(setting, family, theory.server_feedback, theory.bounds.server_feedback, rounds, True))
    return cases


@claim(
    "thm8",
    order=220,
    title="TOP-k at the server with error feedback",
    section="Compression",
    statement="Strongly convex clients, the server sends TOP-k of the mean gradient with error feedback, δ = d/k, "
    "η_i = 1/(72Lδτ_i): f(x̄_{T+1}) - f* ≤ 2κ(1 - 1/(96δκ))^T (f(x̄_1) - f*).",
    wrong=must_notice(
        {
            TRIPLE: LONGER,
            STALE: "At a step of 1/(72Lδ) a delay of one round is nothing beside the delay of the feedback itself.",
            WHOLE: "Feedback sends everything in the end, so at this step the whole gradient does no worse.",
        },
        links=True,
    ),
)
def check(setting: Setting) -> Outcome:
    """Every round against the bound until it has fallen to 10⁻⁸ of the start, or to 10⁻³ where that takes long."""
    cases = with_feedback(setting)
    return judge(
        cases,
        case_figure("thm8", "TOP-k at the server with error feedback", cases, bound="bound of Theorem 8"),
        {"clients": "10", "κ of the quadratics": f"{KAPPA:g}", "τ": "uniform on {1, ..., 10}", "η": "1/(72Lδτ)"}
        | {"rounds": lengths(cases)},
        findings=[
            f"The better dependence on δ pays only beyond δ = {CROSSING}, where 96 < 2(2+√δ): for every δ below, the "
            "rate that Theorem 8 promises is less than that of Theorem 7."
        ],
    )
