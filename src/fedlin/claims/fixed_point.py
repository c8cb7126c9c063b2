"""x* is a fixed point of FedLin, whatever the clients; methods that must first learn the others' pull leave it."""

import numpy as np

from fedlin import algorithms, theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common.draws import draws, least_squares, least_squares_steps
from fedlin.engines.simulation.simulate import simulate
from fedlin.report.verdict import Row

STAYS, LEAVES = 1e-13, 1e-3


@claim(
    "fixed-point",
    order=60,
    title="x* is a fixed point of FedLin",
    section="Why the others fall short",
    statement="Started at x*, FedLin stays there. SCAFFOLD with fresh (zero) control variates leaves it.",
)
def check(setting: Setting) -> Outcome:
    """‖x̄ - x*‖ after one round from x* on the paper's least squares, η_i = 1/(6Lτ_i) for both."""
    moved: dict[str, list[float]] = {"FedLin": [], "SCAFFOLD": []}
    methods = {"FedLin": algorithms.fedlin(), "SCAFFOLD": algorithms.scaffold()}
    numbers = draws(setting)
    for draw in numbers:
        problem = least_squares(draw)
        plan = theory.strongly_convex(problem, least_squares_steps(draw))
        for name, method in methods.items():
            run = simulate(method, problem, plan, 1, x0=problem.minimizer)
            moved[name].append(float(np.linalg.norm(run.x - problem.minimizer)))
    good = sum(a <= STAYS and b > LEAVES for a, b in zip(moved["FedLin"], moved["SCAFFOLD"], strict=True))
    rows = (
        Row("FedLin: largest distance", f"{max(moved['FedLin']):.1e}", f"≤ {STAYS:g}", max(moved["FedLin"]) <= STAYS),
        Row(
            "SCAFFOLD: least distance",
            f"{min(moved['SCAFFOLD']):.2g}",
            f"> {LEAVES:g}",
            min(moved["SCAFFOLD"]) > LEAVES,
        ),
    )
    told = {"clients": "20", "d": "100", "α": "10", "τ": "uniform on {2, ..., 100}", "η": "1/(6Lτ)"}
    return Outcome(rows, told | {"rounds": "1", "draws": str(len(numbers))}, held=good, draws=len(numbers))
