"""Figure 3: least squares with TOP-k and error feedback at the clients."""

import numpy as np

from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common.algorithm1 import TopK
from fedlin.claims.common.bound_check import is_algorithm_1
from fedlin.claims.common.curves import BAND, distance_panel, floors, straight_row
from fedlin.claims.common.figure_runs import run_levels, settings_in_words
from fedlin.claims.common.instances import draws, least_squares, least_squares_steps
from fedlin.claims.common.wrong_methods import STALE, SWAPPED, must_notice
from fedlin.plan import Plan
from fedlin.report.figure import Figure
from fedlin.report.verdict import Row

ETA_BAR = 5e-4
ALPHA = (1.0, 10.0)
LEVELS = {
    "δ = 1 (dense)": None,
    "δ = 4/3 (TOP-75)": TopK(75, feedback=True),
    "δ = 2 (TOP-50)": TopK(50, feedback=True),
}
EXACT = 1e-20


@claim(
    "fig3",
    order=430,
    title="TOP-k at the clients, least squares",
    section="Figures",
    statement="η̄ = 5·10⁻⁴, clients' TOP-k with error feedback: linear to a floor that grows with δ and with α.",
    wrong=must_notice(
        {
            STALE: "A delay of one round is nothing beside that of the feedback, and the floor has no formula.",
            SWAPPED: "Plain TOP-k too ends at a floor that rises with δ and α, and no formula tells whose floor it is.",
        },
        links=True,
    ),
)
def check(setting: Setting) -> Outcome:
    """The floor of a run is the median of ‖x̄_t - x*‖² over its last quarter."""
    numbers, rounds = draws(setting), setting.rounds or 150
    families = {f"α = {alpha:g}": [least_squares(n, alpha) for n in numbers] for alpha in ALPHA}
    plans = [Plan.scaled(least_squares_steps(n), ETA_BAR) for n in numbers]
    runs = run_levels(setting, LEVELS, families, plans, rounds, at_clients=True)
    floor = {key: floors(curves) for key, curves in runs.curves.items()}
    few, many = families
    dense, *sparse = runs.of(few)
    good = np.ones(len(numbers), bool)
    rows = []
    for family in families:
        end = runs.curves[family, dense][:, -1]
        good &= end <= EXACT
        rows.append(
            Row(f"{family}, dense: largest final ‖x̄ - x*‖²", f"{end.max():.1e}", f"≤ {EXACT:g}", end.max() <= EXACT)
        )
        ordered = np.all(np.diff([floor[family, level] for level in (dense, *sparse)], axis=0) > 0, axis=0)
        good &= ordered
        words = ", ".join(f"{np.median(floor[family, level]):.2g}" for level in sparse)
        expected = "rising with δ, every draw"
        rows.append(Row(f"{family}: median floors for {', '.join(sparse)}", words, expected, bool(ordered.all())))
    above_floor = (
        (curve, max(1e-24, 3 * level))
        for key, curves in runs.curves.items()
        for curve, level in zip(curves, floor[key], strict=True)
    )
    rows.append(straight_row(above_floor, " until near the floor"))
    for level in sparse:
        ratio = floor[many, level] / floor[few, level]
        good &= ratio > 1
        words = f"× {np.median(ratio):.1f} (least {ratio.min():.1f})"
        rows.append(
            Row(f"{level}: floor at {many} against {few}", words, "above 1, every draw", bool(np.all(ratio > 1)))
        )
    size = ETA_BAR * 72 * min(problem.smoothness for problem in families[few])
    rows.append(
        Row("η̄ against Theorem 9's limit 1/(72LδC) with δ = C = 1", f"at least {size:.0f} times", "no bound applies")
    )
    panels = tuple(
        distance_panel(f"TOP-k at the clients with feedback, {family}", runs.of(family)) for family in families
    )
    return Outcome(
        (*rows, is_algorithm_1(runs.departures)),
        settings_in_words({"clients": "20", "d": "100"}, ETA_BAR, 100, rounds, len(numbers)),
        held=int(good.sum()),
        draws=len(numbers),
        figures=(Figure("fig3", "Sparse gradients from the clients leave a floor", panels, BAND),),
    )
