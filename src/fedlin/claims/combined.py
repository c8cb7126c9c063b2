"""Sections 5 and 6 at once: TOP-k with error feedback on both sides, on problems the theorems leave out."""

from collections.abc import Sequence

import numpy as np

from fedlin import algorithms
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common import instances
from fedlin.claims.common.draws import draws, stack, summary
from fedlin.claims.common.rates import CAPTION, thin
from fedlin.compressors import top_k
from fedlin.engines.simulation.simulate import simulate_many
from fedlin.plan import Plan
from fedlin.problems.problem import Problem
from fedlin.report.figure import Figure, Panel
from fedlin.report.verdict import Row

DELTA = 2  # δ on either side
STEPS = (3, 12)  # η̄ = 1/(3Lδ), 1/(12Lδ)
SMALL = 1e-2  # of the start: what counts as having converged to a neighbourhood


@claim(
    "combined",
    order=240,
    title="Compression at both ends",
    section="Compression",
    statement="FedLin with error-feedback TOP-k at the clients and at the server extends to convex and non-convex "
    "problems: it comes to a neighbourhood of a stationary point, and to a smaller one with smaller steps.",
)
def check(setting: Setting) -> Outcome:
    """‖∇f‖² on three kinds of problem at two step sizes; nothing is known of the constants, so all is measured."""
    rounds = setting.rounds or setting.pick(2500, 1500)
    numbers = draws(setting)
    families: dict[str, Sequence[Problem]] = {
        "strongly convex quadratics": [instances.quadratics(n, 5.0) for n in numbers],
        "convex logistic regression": [instances.logistic(n) for n in numbers],
        "non-convex logistic regression": [instances.logistic(n, nonconvex=0.3) for n in numbers],
    }
    if setting.quick:  # the others take seconds to compile
        families = {name: family for name, family in families.items() if "quadratics" in name}
    rows, panels, findings = [], [], []
    held = np.full(len(numbers), True)
    for name, family in families.items():
        link = top_k(family[0].dim // DELTA)
        curves, floors = [], []
        for part in STEPS:
            plans = [
                Plan.scaled(instances.steps(n), 1 / (part * DELTA * p.smoothness))
                for n, p in zip(numbers, family, strict=True)
            ]
            runs = simulate_many(algorithms.fedlin(uplink=link, downlink=link), family, plans, rounds)
            slopes = stack(runs, "grad_norm", rounds) ** 2
            slopes /= slopes[:, :1]
            curves.append(thin(summary(f"η̄ = 1/({part}Lδ)", slopes)))
            floors.append(np.median(slopes[:, -rounds // 10 :], axis=1))
        ratio = floors[0] / floors[1]
        good = (floors[0] < SMALL) & (floors[1] < floors[0])
        held &= good
        told = f"{np.median(floors[0]):.2g}, {np.median(floors[1]):.2g} (largest {np.max(floors):.2g})"
        rows += [
            Row(f"{name}: last ‖∇f‖² / first at the two steps", told, f"below {SMALL:g}", ok=np.max(floors) < SMALL),
            Row(
                f"{name}: a step 4 times smaller lowers it by",
                f"{np.median(ratio):.3g} times",
                "above 1",
                ok=ratio.min() > 1,
            ),
        ]
        findings.append(
            f"{name}: the floor of ‖∇f‖² goes like η̄ to the power {np.median(np.log(ratio)) / np.log(4):.2f}."
        )
        panels.append(Panel(name, "communication round", "‖∇f‖² / the first", tuple(curves)))
    return Outcome(
        rows=tuple(rows),
        setting={
            "clients": "10",
            "k": f"d/{DELTA} on both sides",
            "τ": "uniform on {1, ..., 10}",
            "rounds": str(rounds),
        },
        held=int(held.sum()),
        draws=len(numbers),
        figures=(Figure("combined", "TOP-k with error feedback at both ends", tuple(panels), CAPTION),),
        findings=tuple(findings),
    )
