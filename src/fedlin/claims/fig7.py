"""Figure 7: least squares with noisy gradients."""

import numpy as np

from fedlin import problems
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common.curves import BAND, distance_panel, floors, stack, sweep
from fedlin.claims.common.figure_runs import open_choices
from fedlin.claims.common.instances import draws, least_squares, least_squares_steps
from fedlin.claims.common.wrong_methods import THIRD, must_notice
from fedlin.plan import Plan
from fedlin.report.figure import Figure
from fedlin.report.verdict import Row

ETA_BAR = 1e-2
PROPORTION = (50.0, 200.0)  # a floor in proportion to the variance is 100 times higher
VARIANCE = {"variance 10⁻⁵": 1e-5, "variance 10⁻³": 1e-3, "variance 10⁻¹": 1e-1}  # of every entry of every gradient


@claim(
    "fig7",
    order=470,
    title="Noisy gradients",
    section="Figures",
    statement="α = 10, η̄ = 10⁻²: with Gaussian noise in every gradient FedLin converges to a floor that grows with the "
    "variance.",
    wrong=must_notice({THIRD: "A third of the step has a floor too, that grows with the variance as well."}),
)
def check(setting: Setting) -> Outcome:
    """The floor of a run is the median of ‖x̄_t - x*‖² over its last quarter."""
    numbers, rounds = draws(setting), setting.rounds or setting.pick(40, 30)
    families = {name: [problems.noisy(least_squares(n), value) for n in numbers] for name, value in VARIANCE.items()}
    plans = [Plan.scaled(least_squares_steps(n), ETA_BAR) for n in numbers]
    runs = sweep({"": setting.fedlin()}, families, plans, rounds)
    curves = {family: stack(results, "distance", rounds) for (family, _), results in runs.items()}
    floor = np.array([floors(curves[family]) for family in families])  # (variances, draws)
    ratios = floor[1:] / floor[:-1]
    good = np.all((ratios > PROPORTION[0]) & (ratios < PROPORTION[1]), axis=0)
    rows = [
        Row(
            f"{family}: median floor (least, largest)",
            f"{np.median(values):.2g} ({values.min():.2g}, {values.max():.2g})",
        )
        for family, values in zip(families, floor, strict=True)
    ]
    words = " and ".join(f"× {np.median(values):.1f}" for values in ratios)
    expected = f"× {PROPORTION[0]:g} to {PROPORTION[1]:g} on every draw"
    rows.append(Row("floor for 100 times the variance", words, expected, bool(good.all())))
    size = min(6 * least_squares(n).smoothness * ETA_BAR for n in numbers)
    rows.append(
        Row("η̄ against Theorem 5's limit 1/(6L)", f"at least {size:.0f} times", "its floor 50η̄σ²/μ is not claimed")
    )
    panel = distance_panel("Noise in every gradient, α = 10", curves)
    return Outcome(
        tuple(rows),
        {"clients": "20", "d": "100", "η̄": f"{ETA_BAR:g}", "τ": "uniform on {2, ..., 100}"}
        | open_choices(start="0", noise="that variance in each entry", rounds=str(rounds))
        | {"draws": str(len(numbers))},
        held=int(good.sum()),
        draws=len(numbers),
        figures=(Figure("fig7", "Noise leaves a floor in proportion to its variance", (panel,), BAND),),
    )
