"""Figure 6: logistic regression with TOP-k and error feedback at the clients."""

import numpy as np

from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common.algorithm1 import TopK
from fedlin.claims.common.bound_check import is_algorithm_1
from fedlin.claims.common.curves import BAND, distance_panel, floors
from fedlin.claims.common.figure_runs import LOGISTIC, run_levels, settings_in_words
from fedlin.claims.common.instances import draws, logistic, logistic_steps
from fedlin.claims.common.wrong_methods import EXCLUDED, FEDAVG, SMALLEST, STILL, WHOLE
from fedlin.plan import Plan
from fedlin.report.figure import Figure
from fedlin.report.verdict import Row

ETA_BAR = 0.1
LEVELS = {
    "δ = 1 (dense)": None,
    "δ = 1.25 (TOP-80)": TopK(80, feedback=True),
    "δ = 1.67 (TOP-60)": TopK(60, feedback=True),
}
LOWER = 1e-2  # of the start: a dense run ends below, or it is no convergence to speak of


@claim(
    "fig6",
    order=460,
    title="TOP-k at the clients, logistic regression",
    section="Figures",
    statement="η̄ = 0.1, f_i a sum over 500 rows, clients' TOP-k with error feedback: a floor that grows with δ.",
    wrong=dict.fromkeys((STILL, FEDAVG, WHOLE), EXCLUDED)  # each takes seconds
    | {SMALLEST: "Its floor grows with δ as well, and the figure has no formula for it."},
)
def check(setting: Setting) -> Outcome:
    """The level of a run is the median of ‖x̄_t - x*‖² over its last quarter; a dense run keeps falling."""
    numbers = draws(setting)
    rounds = setting.rounds or setting.pick(100, 80)
    plans = [Plan.scaled(logistic_steps(n), ETA_BAR) for n in numbers]
    family = {"": [logistic(n) for n in numbers]}
    runs = run_levels(setting, LEVELS, family, plans, rounds, at_clients=True, together=False)
    curves = runs.of("")
    level = np.array([floors(values) for values in curves.values()])  # (levels of sparsification, draws)
    dense = level[0] / next(iter(curves.values()))[:, 0]
    low, grows = dense <= LOWER, np.all(np.diff(level, axis=0) > 0, axis=0)
    rows = [
        Row(
            f"{name}: median level of the last quarter",
            f"{np.median(values):.2g} ({values.min():.2g} to {values.max():.2g})",
        )
        for name, values in zip(curves, level, strict=True)
    ]
    ratio = level[1:] / level[:-1]
    words = ", ".join(f"× {np.median(values):.2g} (least {values.min():.2g})" for values in ratio)
    rows += [
        Row("dense: that level over the start, largest", f"{dense.max():.1e}", f"at most {LOWER:g}", bool(low.all())),
        Row("level against the next smaller δ", words, "above 1 on every draw", bool(grows.all())),
        is_algorithm_1(runs.departures),
    ]
    panel = distance_panel("Logistic regression, TOP-k at the clients with feedback", curves)
    return Outcome(
        tuple(rows),
        settings_in_words(LOGISTIC, ETA_BAR, 50, rounds, len(numbers)),
        held=int((low & grows).sum()),
        draws=len(numbers),
        figures=(Figure("fig6", "Logistic regression: sparse gradients from the clients", (panel,), BAND),),
    )
