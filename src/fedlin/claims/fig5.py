"""Figure 5: logistic regression with TOP-k at the server and no error feedback."""

import numpy as np

from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common.algorithm1 import TopK
from fedlin.claims.common.bound_check import is_algorithm_1
from fedlin.claims.common.curves import BAND, distance_panel, of
from fedlin.claims.common.figure_runs import LOGISTIC, run_levels, settings_in_words
from fedlin.claims.common.instances import draws, logistic, logistic_steps
from fedlin.claims.common.stability import examine
from fedlin.core import Array
from fedlin.plan import Plan
from fedlin.report.figure import Figure
from fedlin.report.verdict import Row

ETA_BAR = 0.15
LEVELS = {
    "δ = 1 (dense)": None,
    "δ = 2 (TOP-50)": TopK(50, feedback=False),
    "δ = 4 (TOP-25)": TopK(25, feedback=False),
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
    statement="η̄ = 0.15, f_i a sum over 500 rows, server TOP-k without feedback: whatever the level of sparsification, "
    "FedLin always converges to the true minimiser.",
    should_hold=False,  # not always: η̄ = 0.15 makes x* repel the round where a client with few steps has a large L_i
)
def check(setting: Setting) -> Outcome:
    """The rule: a draw converges if all its runs keep falling, and should where the dense round attracts to x*."""
    numbers = draws(setting, quick=3)
    rounds = setting.rounds or setting.pick(100, 80)
    # Decided before anything runs, from the Hessians at x* alone.
    survey = [examine(logistic(n), logistic_steps(n), ETA_BAR) for n in range(max(len(numbers), setting.pick(24, 4)))]
    attracted = np.array([draw.radius < 1 for draw in survey])
    plans = [Plan.scaled(logistic_steps(n), ETA_BAR) for n in numbers]
    family = {"": [logistic(n) for n in numbers]}
    runs = run_levels(setting, LEVELS, family, plans, rounds, at_clients=False, together=False)
    curves = runs.of("")
    arrived = {level: arrives(distances) for level, distances in curves.items()}
    held = np.logical_and.reduce(list(arrived.values()))
    rows = [
        Row(
            f"{level}: draws that converge",
            f"{of(int(arrived[level].sum()), len(numbers))}; median final ‖x̄ - x*‖² {np.median(distances[:, -1]):.1e}",
            "always, the paper says",
            bool(arrived[level].all()),
        )
        for level, distances in curves.items()
    ]
    radii = ", ".join(f"{draw.radius:.2f}" for draw in survey[: len(numbers)])
    wrong = int(np.sum(held != attracted[: len(numbers)]))
    rows += [
        Row("spectral radius of the dense round at x*, by draw", radii, "above 1: x* repels"),
        Row("draws that do other than this says", f"{wrong} of {len(numbers)}", "0", wrong == 0, premise=True),
        is_algorithm_1(runs.departures),
    ]
    missed = [
        f"Draw {n} does not converge with {', '.join(level for level in curves if not arrived[level][n])}: {survey[n]}."
        for n in np.flatnonzero(~held)
    ]
    worst = [survey[n] for n in np.flatnonzero(~attracted)]
    finding = (
        f"The paper says always; we see {of(int(held.sum()), len(numbers))}. η̄ = {ETA_BAR:g} makes x* repel the dense "
        f"round on {of(len(worst), len(survey))} (0 to {len(survey) - 1})"
    )
    if worst:
        finding += (
            f", through clients with few, coarse steps: τ = {', '.join(str(draw.tau) for draw in worst)} with η·L = "
            f"{', '.join(f'{draw.reach:.1f}' for draw in worst)} at x*, where 2 is the limit"
        )
    return Outcome(
        tuple(rows),
        settings_in_words(LOGISTIC, ETA_BAR, 50, rounds, len(numbers)),
        held=int(held.sum()),
        draws=len(numbers),
        figures=(
            Figure(
                "fig5",
                "Logistic regression: sparse gradients from the server",
                (distance_panel("Logistic regression, TOP-k at the server", curves),),
                BAND,
            ),
        ),
        findings=(f"{finding}.", *missed),
    )
