"""Theorem 3: without convexity the gradient still vanishes like 1/T."""

from collections.abc import Sequence

import numpy as np
from scipy.special import expit

from fedlin import theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common import instances
from fedlin.claims.common.bound_check import Case, PlayedRuns, case_figure, judge, lengths, play
from fedlin.claims.common.wrong_methods import RESEMBLING, must_notice
from fedlin.claims.thm2a import FAR
from fedlin.core import Array
from fedlin.plan import Plan
from fedlin.problems.logistic import Logistic
from fedlin.problems.problem import Problem
from fedlin.report.verdict import Row

BENT = 0.3  # λ


def least_curvature(problem: Logistic, x: Array) -> float:
    """The least eigenvalue of ∇²f(x), f with the regulariser λ Σ x²/(1 + x²)."""
    sheet = problem.sheet
    margin = sheet.y * (sheet.X @ x)
    weight = problem.weights[:, None] * sheet.weight * expit(margin) * expit(-margin)
    bend = 2 * problem.nonconvex * (1 - 3 * x**2) / (1 + x**2) ** 3
    hessian = np.einsum("inj,in,ink->jk", sheet.X, weight, sheet.X) + np.diag(bend)
    return float(np.linalg.eigvalsh(hessian)[0])


def nonconvex_cases(setting: Setting, varying: bool = False) -> list[Case]:
    """A wave over which clients disagree, and logistic regression with a regulariser that bends down, from far away."""
    numbers = instances.draws(setting)
    waves = setting.rounds or setting.pick(26000, 2600)
    rows = setting.rounds or setting.pick(1000, 500)

    def plans(family: Sequence[Problem], rounds: int) -> list[Plan]:
        tau = [instances.steps_by_round(n, rounds, varying) for n in numbers]
        return [theory.nonconvex(p, steps) for p, steps in zip(family, tau, strict=True)]

    wavy = [instances.waves(n, tilt=5000.0) for n in numbers]
    bent = [instances.small_logistic(n, nonconvex=BENT) for n in numbers]
    return [
        _case(
            "x² + 3 sin²x + c_i x",
            play(setting, wavy, plans(wavy, waves), waves, x0=np.array([1.5]), gradients=instances.wave_gradients),
        ),
        _case(f"logistic regression, λ = {BENT:g}", play(setting, bent, plans(bent, rows), rows, x0=FAR)),
    ]


def _case(name: str, runs: PlayedRuns) -> Case:
    least = np.minimum.accumulate(runs.curves("grad_norm")[:, :-1] ** 2, axis=1)  # over x̄_1..x̄_T
    losses = runs.curves("loss")
    bounds = np.array([theory.bounds.nonconvex(p, loss) for p, loss in zip(runs.family, losses, strict=True)])
    return Case(name, np.concatenate([least[:, :1], least], axis=1), bounds, runs.departures, power=True)


@claim(
    "thm3",
    order=140,
    title="Non-convex: a stationary point",
    section="Rates without compression",
    statement="Clients that are L-smooth, η_i = 1/(26Lτ_i): "
    "min over t ≤ T of ‖∇f(x̄_t)‖² ≤ (52L/T)(f(x̄_1) - f(x̄_{T+1})).",
    wrong=must_notice(RESEMBLING),
)
def check(setting: Setting) -> Outcome:
    """Both begun where f is not convex."""
    cases = nonconvex_cases(setting)
    family = [instances.small_logistic(n, nonconvex=BENT) for n in instances.draws(setting)]
    bent = max(least_curvature(problem, FAR) for problem in family)
    return judge(
        cases,
        case_figure(
            "thm3", "The gradient on a non-convex problem", cases, "least ‖∇f‖² / the first", bound="bound of Theorem 3"
        ),
        {"clients": "10", "τ": "uniform on {1, ..., 10}", "η": "1/(26Lτ)", "rounds": lengths(cases)},
        rows=[
            Row(
                "logistic regression: least eigenvalue of ∇²f at the start (largest over draws)",
                f"{bent:.3g}",
                "below 0",
                bent < 0,
                premise=True,
            )
        ],
    )
