"""Theorem 3: without convexity the gradient still vanishes like 1/T."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from fedlin import algorithms, theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common import instances
from fedlin.claims.common.draws import draws
from fedlin.claims.common.rates import Case, judge
from fedlin.engines.simulation.simulate import simulate_many
from fedlin.problems.logistic import Logistic
from fedlin.report.figure import Figure
from fedlin.report.verdict import Row

BENT = 0.3  # λ
DIM = 10


def least_curvature(problem: Logistic, x: NDArray[Any]) -> float:
    """The least eigenvalue of ∇²f(x), f with the regulariser λ Σ x²/(1 + x²)."""
    sheet = problem.sheet
    margin = sheet.y * (sheet.X @ x)
    weight = problem.weights[:, None] * sheet.weight * expit(margin) * expit(-margin)
    bend = 2 * problem.nonconvex * (1 - 3 * x**2) / (1 + x**2) ** 3
    hessian = np.einsum("inj,in,ink->jk", sheet.X, weight, sheet.X) + np.diag(bend)
    return float(np.linalg.eigvalsh(hessian)[0])


@claim(
    "thm3",
    order=140,
    title="Non-convex: a stationary point",
    section="Rates without compression",
    statement="Clients that are L-smooth, η_i = 1/(26Lτ_i): "
    "min over t ≤ T of ‖∇f(x̄_t)‖² ≤ (52L/T)(f(x̄_1) - f(x̄_{T+1})).",
)
def check(setting: Setting) -> Outcome:
    """Logistic regression with a regulariser that bends down, begun where f is not convex."""
    rounds = setting.rounds or setting.pick(1000, 200)
    numbers = draws(setting)
    family = [instances.logistic(n, nonconvex=BENT) for n in numbers]
    plans = [theory.nonconvex(p, instances.steps(n)) for n, p in zip(numbers, family, strict=True)]
    start = 2 * (-1.0) ** np.arange(DIM)
    runs = simulate_many(algorithms.fedlin(), family, plans, rounds, x0=start)
    least = [np.minimum.accumulate(run.grad_norm[:-1] ** 2) for run in runs]  # over x̄_1..x̄_T
    measured = np.array([[best[0], *best] for best in least])
    bounds = np.array([theory.bounds.nonconvex(p, run.loss) for p, run in zip(family, runs, strict=True)])
    case = Case(f"logistic regression, λ = {BENT:g}", measured, bounds)
    bent = max(least_curvature(problem, start) for problem in family)
    panel = case.panel("least ‖∇f‖² / the first", bound="bound of Theorem 3", xscale="log")
    return judge(
        [case],
        Figure("thm3", "The gradient on a non-convex problem", (panel,)),
        {"clients": "10, d = 10", "τ": "uniform on {1, ..., 10}", "η": "1/(26Lτ)", "rounds": str(rounds)},
        rows=[Row("least eigenvalue of ∇²f at the start (largest over draws)", f"{bent:.3g}", "below 0", bent < 0)],
        rates=False,
    )
