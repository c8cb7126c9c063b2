"""Theorem 8: with error feedback at the server the rate loses δ in place of δ^{3/2}."""

from fedlin import theory
from fedlin.claims import thm7
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common.instances import DIM
from fedlin.claims.common.rates import judge
from fedlin.links import error_feedback
from fedlin.report.figure import Figure
from fedlin.report.verdict import Row

# 96δ < 2δ(2+√δ), so that Theorem 8 promises more than Theorem 7, needs √δ > 46.
CROSSING = 46**2


@claim(
    "thm8",
    order=220,
    title="TOP-k at the server with error feedback",
    section="Compression",
    statement="Strongly convex clients, the server sends TOP-k of the mean gradient with error feedback, δ = d/k, "
    "η_i = 1/(72Lδτ_i): f(x̄_{T+1}) - f* ≤ 2κ(1 - 1/(96δκ))^T (f(x̄_1) - f*).",
)
def check(setting: Setting) -> Outcome:
    """Theorem 7's check with the link that remembers, and the two rates side by side."""
    plan, bound = theory.server_feedback, theory.bounds.server_feedback
    found = thm7.cases(setting, error_feedback, plan, bound, setting.pick(1000, 200))
    times = [mine.falls[0] / other.falls[0] for mine, other in zip(found, thm7.without_feedback(setting), strict=True)]
    rows = [
        Row(f"{case.name}: rate with feedback over rate without, each at its theorem's step", f"{ratio:.3g}")
        for case, ratio in zip(found, times, strict=True)
    ]
    return judge(
        found,
        Figure(
            "thm8",
            f"TOP-k at the server with error feedback, κ = {thm7.KAPPA:g}, d = {DIM}",
            tuple(case.panel("gap / first gap", bound="bound of Theorem 8") for case in found),
        ),
        {"clients": f"10 quadratics, κ = {thm7.KAPPA:g}, d = {DIM}", "τ": "uniform on {1, ..., 10}", "η": "1/(72Lδτ)"},
        rows=rows,
        findings=[
            f"The better dependence on δ pays only beyond δ = {CROSSING}, where 96 < 2(2+√δ): for every δ here "
            f"feedback at Theorem 8's step is slower than no feedback at Theorem 7's, {min(times):.2g} to "
            f"{max(times):.2g} times as fast."
        ],
    )
