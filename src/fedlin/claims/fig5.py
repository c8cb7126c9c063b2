"""Figure 5: logistic regression with TOP-k at the server and no error feedback."""

import numpy as np

from fedlin import algorithms
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common.draws import BAND, Array, distance_panel, draws, extremes, logistic, logistic_steps, of, sweep
from fedlin.claims.common.stability import examine
from fedlin.compressors import top_k
from fedlin.links import plain
from fedlin.plan import Plan
from fedlin.report.figure import Figure
from fedlin.report.verdict import Row

ETA_BAR = 0.15
METHODS = {
    "δ = 1 (dense)": algorithms.fedlin(),
    "δ = 2 (TOP-50)": algorithms.fedlin(downlink=plain(top_k(50))),
    "δ = 4 (TOP-25)": algorithms.fedlin(downlink=plain(top_k(25))),
}


def arrives(curves: Array) -> Array:
    """Which runs head for x* to the end: the last tenth lies wholly below half of the tenth after half-time."""
    tenth = max(1, curves.shape[1] // 10)
    return np.asarray(curves[:, -tenth:].max(axis=1) <= curves[:, 5 * tenth : 6 * tenth].min(axis=1) / 2)


@claim(
    "fig5",
    order=450,
    title="TOP-k at the server, logistic regression",
    section="Figures",
    statement="η̄ = 0.15, f_i a sum over 500 rows, server TOP-k without feedback: convergence to the true minimiser.",
)
def check(setting: Setting) -> Outcome:
    """Whether runs keep falling; where x* repels the dense round (spectral radius above 1), they cannot."""
    numbers, methods = draws(setting, quick=3), extremes(setting, METHODS)
    rounds = setting.rounds or setting.pick(160, 100)
    problems = [logistic(n) for n in numbers]
    plans = [Plan.scaled(logistic_steps(n), ETA_BAR) for n in numbers]
    curves = {name: one for (_, name), one in sweep(methods, {"": problems}, plans, rounds, together=False).items()}
    arrived = {name: arrives(one) for name, one in curves.items()}
    survey = [examine(logistic(n), logistic_steps(n), ETA_BAR) for n in range(max(len(numbers), setting.pick(24, 4)))]
    repelled = np.array([one.radius >= 1 for one in survey])
    rows = []
    for name, one in curves.items():
        median = np.median(one, axis=0)
        told = f"{median[-1]:.1e}; {of(int(arrived[name].sum()), len(numbers))} converge"
        rows.append(Row(f"{name}: median final ‖x̄ - x*‖²", told, "median still falls", bool(arrives(median[None])[0])))
    held = np.logical_and.reduce(list(arrived.values()))
    unexplained = ~held & ~repelled[: len(numbers)]
    told = ", ".join(f"{one.radius:.2f}" for one in survey[: len(numbers)])
    rows.append(Row("spectral radius of the dense round at x*, by draw", told, "above 1: x* repels"))
    rows.append(
        Row("draws that fail although x* attracts", str(int(unexplained.sum())), "0", not bool(unexplained.any()))
    )
    missed = [
        f"Draw {n} does not converge with {', '.join(name for name in methods if not arrived[name][n])}: {survey[n]}."
        for n in np.flatnonzero(~held)
    ]
    worst = [survey[n] for n in np.flatnonzero(repelled)]
    panel = distance_panel("Logistic regression, TOP-k at the server", curves)
    finding = (
        f"η̄ = {ETA_BAR:g} makes x* repel the dense round on {of(len(worst), len(survey))} (0 to {len(survey) - 1})"
    )
    if worst:
        finding += (
            f", through clients with few, coarse steps: τ = {', '.join(str(one.tau) for one in worst)} with η·L = "
            f"{', '.join(f'{one.reach:.1f}' for one in worst)} at x*, where 2 is the limit"
        )
    return Outcome(
        tuple(rows),
        {"clients": "10", "d": "100", "rows": "500 a client, summed", "η̄": f"{ETA_BAR:g}"}
        | {"τ": "uniform on {2, ..., 50}", "rounds": str(rounds), "draws": str(len(numbers))},
        held=int(held.sum()),
        draws=len(numbers),
        figures=(Figure("fig5", "Logistic regression: sparse gradients from the server", (panel,), BAND),),
        findings=(*missed, f"{finding}."),
        # Where the step size itself drives the model away from x*, no algorithm of this form can hold the claim.
        should_hold=False if not held.all() and not unexplained.any() else None,
    )
