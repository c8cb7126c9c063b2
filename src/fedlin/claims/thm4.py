"""Theorem 4: the Polyak-Łojasiewicz condition is enough for a linear rate."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from fedlin import algorithms, problems, theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common import instances
from fedlin.claims.common.draws import draws
from fedlin.claims.common.rates import compare, judge
from fedlin.core import Scalar
from fedlin.problems.problem import Problem
from fedlin.report.figure import Figure
from fedlin.report.verdict import Row


def wave(x: Any, tilt: Any) -> Scalar:
    """x² + 3 sin²x + c_i x: 8-smooth, and without the tilt PL with μ = 1/32 (Karimi et al., 2016) but not convex."""
    return jnp.sum(x**2 + 3 * jnp.sin(x) ** 2 + tilt * x)


def tilted(draw: int) -> Problem:
    """Clients tilted by c_i ~ ±U(0, 5) in pairs, so that the tilts cancel and f = x² + 3 sin²x is least at 0."""
    tilt = np.random.default_rng(draw).uniform(0, 5, instances.CLIENTS // 2)
    return problems.from_loss(
        wave,
        np.zeros(1),
        np.concatenate([tilt, -tilt]),
        smoothness=8.0,
        polyak_lojasiewicz=1 / 32,
        minimizer=np.zeros(1),
    )


@claim(
    "thm4",
    order=150,
    title="Polyak-Łojasiewicz: a linear rate without convexity",
    section="Rates without compression",
    statement="Clients that are L-smooth, ‖∇f‖² ≥ 2μ(f - f*), η_i = 1/(26Lτ_i), κ = L/μ: "
    "f(x̄_{T+1}) - f* ≤ (1 - 1/(26κ))^T (f(x̄_1) - f*).",
)
def check(setting: Setting) -> Outcome:
    """Least squares of low rank (convex, flat) and x² + 3 sin²x (not convex), split over unlike clients."""
    rounds = setting.rounds or setting.pick(2000, 200)
    numbers = draws(setting)
    cases = []
    for name, family, x0 in (
        ("least squares of rank 5 in d = 12", [instances.flat_least_squares(n) for n in numbers], None),
        ("x² + 3 sin²x + c_i x", [tilted(n) for n in numbers], np.array([6.0])),
    ):
        plans = [theory.polyak_lojasiewicz(p, instances.steps(n)) for n, p in zip(numbers, family, strict=True)]
        bound = theory.bounds.polyak_lojasiewicz
        cases.append(compare(name, algorithms.fedlin(), family, plans, rounds, bound, x0))
    kappa = [p.smoothness / p.polyak_lojasiewicz for p in (instances.flat_least_squares(n) for n in numbers)]
    panels = tuple(case.panel("gap / first gap", bound="bound (1 - 1/(26κ))^T") for case in cases)
    return judge(
        cases,
        Figure("thm4", "FedLin where f obeys the Polyak-Łojasiewicz condition", panels),
        {"clients": "10", "τ": "uniform on {1, ..., 10}", "η": "1/(26Lτ)", "rounds": str(rounds)},
        rows=[Row("κ of the two families", f"{min(kappa):.3g} to {max(kappa):.3g}, and 256")],
    )
