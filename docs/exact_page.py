"""Write docs/exact.md and its pictures from what the exact theory computes: `python docs/exact_page.py`, some minutes.

Needs the extra fedlin[exact]. What was computed is kept in docs/pictures/exact.json.
"""

import json
from functools import partial
from math import log, sqrt
from pathlib import Path
from typing import Any

import numpy as np

import fedlin
from fedlin import Plan
from fedlin.claims.common import exact_proofs as proofs
from fedlin.claims.exact_compression import drops
from fedlin.claims.exact_local_steps import curve, kappa_figure, steps_figure
from fedlin.claims.exact_rates import looseness
from fedlin.report.matplotlib_figures import save
from fedlin.theory.certified_steps import choose
from fedlin.theory.exact import Smooth, worst_case

HOME = Path(__file__).parent
FEDLIN = fedlin.fedlin()
TABLE_STEPS = (1 / 6, 1.0, 2.0, 3.0, 5.0, 6.0, 8.0)  # η̄L
TABLE_TAU = ((1, 1), (2, 2), (5, 5), (20, 20), (1, 20))
LIMIT_KAPPA, LIMIT_TAU = (3.0, 10.0, 100.0, 1000.0), (1, 2, 3, 4, 8)


def factor(tau: tuple[int, ...], eta_bar: float, kappa: float) -> float:
    """The proved factor of ‖x - x*‖² in a round."""
    return worst_case(FEDLIN, Plan(np.array(tau), eta_bar / np.array(tau)), Smooth(1.0, 1 / kappa)).factor


def full_rate_limit(tau: int, kappa: float) -> float:
    """The largest η̄L at which the exact factor is (1 - ημ)^{2τ}, by bisection."""
    low, high = 1.0, 8.0
    while high - low > 2e-3:
        middle = (low + high) / 2
        full = (1 - middle / tau / kappa) ** (2 * tau)
        exact = worst_case(FEDLIN, Plan(tau, middle / tau), Smooth(1.0, 1 / kappa)).solved
        # The solver is right to about a millionth of the drop; beyond the limit a hundredth is soon lost.
        low, high = (middle, high) if exact <= full + 1e-5 * (1 - full) else (low, middle)
    return low


def compute() -> dict[str, Any]:
    """What the page tells and no claim does, as numbers."""
    return {
        "table": [[factor(tau, step, 10.0) for step in TABLE_STEPS] for tau in TABLE_TAU],
        "limits": [[full_rate_limit(tau, kappa) for tau in LIMIT_TAU] for kappa in LIMIT_KAPPA],
    }


def proved(name: str, case: Any) -> float:
    """A stored factor, its proof checked."""
    found = proofs.factor(name, case)
    assert found is not None, name
    return found


def table(header: list[str], rows: list[list[str]]) -> str:
    """Markdown."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def tables(found: dict[str, Any]) -> dict[str, str]:
    """What the page's text leaves open."""
    sizes = ["1/(6L)", *(f"{step:g}/L" for step in TABLE_STEPS[1:])]
    exact = [
        [", ".join(map(str, tau)), *(f"{value:.4f}" for value in row)]
        for tau, row in zip(TABLE_TAU, found["table"], strict=True)
    ]
    limits = [
        [f"{kappa:g}", *(f"{value:.2f}" for value in row)]
        for kappa, row in zip(LIMIT_KAPPA, found["limits"], strict=True)
    ]
    loosened = looseness(fedlin.fedlin, proofs.KAPPAS)
    loose = [[name, *(f"{value:.2f}" for value in values)] for name, values in loosened.items()]
    certified = []
    for kappa in (2.0, 10.0, 100.0, 1000.0, 1e5):
        row = [f"{kappa:g}"]
        for tau in ((2, 2), (5, 5), (20, 50), (1, 20)):
            best = choose(kappa, np.array(tau))
            row.append(f"{best.eta_bar:g}/L, {6 * kappa * -log(best.factor):.0f} ×")
        certified.append(row)
    convex = []
    for rounds in proofs.ROUNDS:
        row = [str(rounds)]
        for name, promise in proofs.CONVEX.items():
            exact_gap = proved(f"{name}, T = {rounds}", partial(promise.case, fedlin.fedlin, rounds))
            row += [f"{exact_gap:.4f}", f"{promise.factor(rounds):.4f}"]
        convex.append(row)
    return {
        "exact": table(["τ of the clients", *sizes], exact),
        "limits": table(["κ", *(f"τ = {tau}" for tau in LIMIT_TAU)], limits),
        "looseness": table(["", *(f"κ = {kappa:g}" for kappa in proofs.KAPPAS)], loose),
        "certified": table(["κ", "τ = 2, 2", "τ = 5, 5", "τ = 20, 50", "τ = 1, 20"], certified),
        "convex": table(["rounds T", "mean of the models", "promised", "last model", "promised"], convex),
        "sparse": table(
            ["δ", "share of the rate left, small steps", "1 - √(1 - 1/δ)", "best drop, forgets", "best drop, feedback"],
            [sparse_row(delta) for delta in proofs.SPARSITY],
        ),
    }


def sparse_row(delta: float) -> list[str]:
    """What is left of the rate without feedback at small steps, and the best drop of both."""
    forgets, remembers = (drops(fedlin.fedlin, delta, feedback) for feedback in (False, True))
    step = proofs.SPARSE_STEPS[0]
    share = forgets[0] / (1 - (1 - step / proofs.CURVE_KAPPA / proofs.TWO) ** (2 * proofs.TWO))
    best = [
        f"{np.nanmax(drop):.4f} at {proofs.SPARSE_STEPS[int(np.nanargmax(drop))]:g}/L" for drop in (forgets, remembers)
    ]
    return [f"{delta:g}", f"{share:.3f}", f"{1 - sqrt(1 - 1 / delta):.3f}", *best]


def main() -> None:
    """Compute, draw and write."""
    kept = HOME / "pictures" / "exact.json"
    if not kept.exists():
        kept.write_text(json.dumps(compute()) + "\n", encoding="utf-8")
    found = json.loads(kept.read_text(encoding="utf-8"))
    factors = {tau: curve(fedlin.fedlin, tau) for tau in proofs.CURVE_TAU}
    for figure in (steps_figure(factors), kappa_figure()):
        png, _ = save(figure, HOME / "pictures")
        png.unlink()
    text = (HOME / "exact_page.txt").read_text(encoding="utf-8")
    for name, content in tables(found).items():
        text = text.replace(f"{{{{{name}}}}}", content)
    (HOME / "exact.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
