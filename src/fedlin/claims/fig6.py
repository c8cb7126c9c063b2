"""Figure 6: logistic regression with TOP-k and error feedback at the clients."""

import numpy as np

from fedlin import algorithms
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common.draws import BAND, distance_panel, draws, extremes, floors, logistic, logistic_steps, sweep
from fedlin.compressors import top_k
from fedlin.plan import Plan
from fedlin.report.figure import Figure
from fedlin.report.verdict import Row

ETA_BAR = 0.1
METHODS = {
    "δ = 1 (dense)": algorithms.fedlin(),
    "δ = 1.25 (TOP-80)": algorithms.fedlin(uplink=top_k(80)),
    "δ = 1.67 (TOP-60)": algorithms.fedlin(uplink=top_k(60)),
}


@claim(
    "fig6",
    order=460,
    title="TOP-k at the clients, logistic regression",
    section="Figures",
    statement="η̄ = 0.1, f_i a sum over 500 rows, clients' TOP-k with error feedback: a floor that grows with δ.",
)
def check(setting: Setting) -> Outcome:
    """The level of a run is the median of ‖x̄_t - x*‖² over its last quarter; a dense run keeps falling."""
    numbers, methods = draws(setting), extremes(setting, METHODS)
    rounds = setting.rounds or setting.pick(150, 100)
    problems = [logistic(n) for n in numbers]
    plans = [Plan.scaled(logistic_steps(n), ETA_BAR) for n in numbers]
    curves = {name: one for (_, name), one in sweep(methods, {"": problems}, plans, rounds, together=False).items()}
    floor = np.array([floors(one) for one in curves.values()])  # (methods, draws)
    good = np.all(np.diff(floor, axis=0) > 0, axis=0)
    rows = [
        Row(f"{name}: median level of the last quarter", f"{np.median(one):.2g} ({one.min():.2g} to {one.max():.2g})")
        for name, one in zip(methods, floor, strict=True)
    ]
    ratio = floor[1:] / floor[:-1]
    told = ", ".join(f"× {np.median(one):.2g} (least {one.min():.2g})" for one in ratio)
    rows.append(Row("level against the next smaller δ", told, "above 1 on every draw", bool(good.all())))
    panel = distance_panel("Logistic regression, TOP-k at the clients with feedback", curves)
    return Outcome(
        tuple(rows),
        {"clients": "10", "d": "100", "rows": "500 a client, summed", "η̄": f"{ETA_BAR:g}"}
        | {"τ": "uniform on {2, ..., 50}", "rounds": str(rounds), "draws": str(len(numbers))},
        held=int(good.sum()),
        draws=len(numbers),
        figures=(Figure("fig6", "Logistic regression: sparse gradients from the clients", (panel,), BAND),),
    )
