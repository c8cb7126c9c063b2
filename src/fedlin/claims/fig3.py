"""Figure 3: least squares with TOP-k and error feedback at the clients."""

import numpy as np

from fedlin import algorithms
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common.draws import (
    BAND,
    distance_panel,
    draws,
    extremes,
    floors,
    least_squares,
    least_squares_steps,
    sweep,
)
from fedlin.compressors import top_k
from fedlin.plan import Plan
from fedlin.report.figure import Figure
from fedlin.report.verdict import Row

ETA_BAR = 5e-4
ALPHA = (1.0, 10.0)
METHODS = {
    "δ = 1 (dense)": algorithms.fedlin(),
    "δ = 4/3 (TOP-75)": algorithms.fedlin(uplink=top_k(75)),
    "δ = 2 (TOP-50)": algorithms.fedlin(uplink=top_k(50)),
}
EXACT = 1e-20


@claim(
    "fig3",
    order=430,
    title="TOP-k at the clients, least squares",
    section="Figures",
    statement="η̄ = 5·10⁻⁴, clients' TOP-k with error feedback: linear to a floor that grows with δ and with α.",
)
def check(setting: Setting) -> Outcome:
    """The floor of a run is the median of ‖x̄_t - x*‖² over its last quarter."""
    numbers, rounds, methods = draws(setting), setting.rounds or 150, extremes(setting, METHODS)
    families = {f"α = {alpha:g}": [least_squares(n, alpha) for n in numbers] for alpha in ALPHA}
    plans = [Plan.scaled(least_squares_steps(n), ETA_BAR) for n in numbers]
    found = sweep(methods, families, plans, rounds)
    floor = {key: floors(curves) for key, curves in found.items()}
    few, many = families
    dense, *sparse = methods
    good = np.ones(len(numbers), bool)
    rows = []
    for family in families:
        end = found[family, dense][:, -1]
        good &= end <= EXACT
        rows.append(
            Row(f"{family}, dense: largest final ‖x̄ - x*‖²", f"{end.max():.1e}", f"≤ {EXACT:g}", end.max() <= EXACT)
        )
        ordered = np.all(np.diff([floor[family, method] for method in methods], axis=0) > 0, axis=0)
        good &= ordered
        told = ", ".join(f"{np.median(floor[family, method]):.2g}" for method in sparse)
        expected = "rising with δ, every draw"
        rows.append(Row(f"{family}: median floors for {', '.join(sparse)}", told, expected, bool(ordered.all())))
    for method in sparse:
        ratio = floor[many, method] / floor[few, method]
        good &= ratio > 1
        told = f"× {np.median(ratio):.1f} (least {ratio.min():.1f})"
        rows.append(
            Row(f"{method}: floor at {many} against {few}", told, "above 1, every draw", bool(np.all(ratio > 1)))
        )
    size = ETA_BAR * 72 * min(problem.smoothness for problem in families[few])
    rows.append(
        Row("η̄ against Theorem 9's limit 1/(72LδC) with δ = C = 1", f"at least {size:.0f} times", "no bound applies")
    )
    panels = tuple(
        distance_panel(
            f"TOP-k at the clients with feedback, {family}", {method: found[family, method] for method in methods}
        )
        for family in families
    )
    return Outcome(
        tuple(rows),
        {"clients": "20", "d": "100", "η̄": f"{ETA_BAR:g}", "τ": "uniform on {2, ..., 100}"}
        | {"rounds": str(rounds), "draws": str(len(numbers))},
        held=int(good.sum()),
        draws=len(numbers),
        figures=(Figure("fig3", "Sparse gradients from the clients leave a floor", panels, BAND),),
    )
