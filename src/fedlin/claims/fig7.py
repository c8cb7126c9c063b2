"""Figure 7: least squares with noisy gradients."""

import numpy as np

from fedlin import algorithms, problems
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common.draws import BAND, distance_panel, draws, floors, least_squares, least_squares_steps, sweep
from fedlin.plan import Plan
from fedlin.report.figure import Figure
from fedlin.report.verdict import Row

ETA_BAR = 1e-2
VARIANCE = {"variance 10⁻⁵": 1e-5, "variance 10⁻³": 1e-3, "variance 10⁻¹": 1e-1}  # of every entry of every gradient


@claim(
    "fig7",
    order=470,
    title="Noisy gradients",
    section="Figures",
    statement="α = 10, η̄ = 10⁻²: with Gaussian noise in every gradient FedLin goes linearly to a floor that grows with "
    "the variance.",
)
def check(setting: Setting) -> Outcome:
    """The floor of a run is the median of ‖x̄_t - x*‖² over its last quarter."""
    numbers, rounds = draws(setting), setting.rounds or setting.pick(50, 30)
    families = {name: [problems.noisy(least_squares(n), value) for n in numbers] for name, value in VARIANCE.items()}
    plans = [Plan.scaled(least_squares_steps(n), ETA_BAR) for n in numbers]
    found = {
        family: curves for (family, _), curves in sweep({"": algorithms.fedlin()}, families, plans, rounds).items()
    }
    floor = np.array([floors(found[family]) for family in families])  # (variances, draws)
    good = np.all(np.diff(floor, axis=0) > 0, axis=0)
    rows = [
        Row(f"{family}: median floor (least, largest)", f"{np.median(one):.2g} ({one.min():.2g}, {one.max():.2g})")
        for family, one in zip(families, floor, strict=True)
    ]
    ratio = np.median(floor[1:] / floor[:-1], axis=1)
    told = " and ".join(f"× {value:.1f}" for value in ratio)
    rows.append(Row("floor for 100 times the variance", told, "above 1 on every draw", bool(good.all())))
    size = min(6 * least_squares(n).smoothness * ETA_BAR for n in numbers)
    rows.append(
        Row("η̄ against Theorem 5's limit 1/(6L)", f"at least {size:.0f} times", "its floor 50η̄σ²/μ is not claimed")
    )
    panel = distance_panel("Noise in every gradient, α = 10", found)
    return Outcome(
        tuple(rows),
        {"clients": "20", "d": "100", "η̄": f"{ETA_BAR:g}", "τ": "uniform on {2, ..., 100}"}
        | {"rounds": str(rounds), "draws": str(len(numbers))},
        held=int(good.sum()),
        draws=len(numbers),
        figures=(Figure("fig7", "Noise leaves a floor in proportion to its variance", (panel,), BAND),),
    )
