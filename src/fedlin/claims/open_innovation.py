"""Client compression without a floor: send TOP-k of what changed since the last gradient, and both sides add it up."""

import numpy as np

from fedlin.claims.claim import OPEN, Outcome, Setting, claim
from fedlin.claims.common.curves import BAND, fall, floors, stack, summary, thin
from fedlin.claims.common.instances import draws, least_squares, least_squares_steps
from fedlin.claims.common.method_faults import HALFWAY, RETREATS, SHORTER, any_fault
from fedlin.compressors import top_k
from fedlin.core import Array
from fedlin.engines.simulation.simulate import simulate_many
from fedlin.engines.simulation.stop import Stop
from fedlin.links import error_feedback, innovation
from fedlin.plan import Plan
from fedlin.report.figure import Figure, Panel
from fedlin.report.verdict import Row

ETA_BAR = 5e-4  # Figure 3's
LIMIT = {10: 1e-24, 1: 1e-20}  # ‖x̄ - x*‖² to reach, by k
ROUNDS = {10: 400, 1: 2000}  # and in how many rounds
SETTLED = 300  # rounds after which error feedback is at its floor
FLOOR = 1e-3  # ‖x̄ - x*‖² that error feedback stays above


@claim(
    "open-innovation",
    order=510,
    title="Client compression without a floor",
    section=OPEN,
    statement="On Figure 3's instance clients that send TOP-k of the change of their gradient, with both sides "
    "remembering the sum, reach x* itself: at TOP-10, and more slowly at TOP-1, where error feedback stays at a floor.",
    wrong=any_fault(
        {HALFWAY: "Slower, but it comes to x* as well."}, without=(RETREATS, SHORTER)
    ),  # each takes seconds
)
def check(setting: Setting) -> Outcome:
    """Both rules with the same number of entries, on the same draws."""
    numbers = draws(setting)
    family = [least_squares(n) for n in numbers]
    plans = [Plan.scaled(least_squares_steps(n), ETA_BAR) for n in numbers]
    rows, held, shown = [], np.ones(len(numbers), bool), {}

    def distances(rounds: int, k: int, feedback: bool) -> Array:
        link = (error_feedback if feedback else innovation)(top_k(k))
        arrived = Stop(distance=LIMIT[k] / 10)
        runs = simulate_many(setting.fedlin(uplink=link), family, plans, rounds, stop=arrived, iterates=False)
        return stack(runs, "distance", rounds)

    for k in setting.pick((10, 1), (10,)):  # TOP-1 takes more rounds than a quick run has
        curves = distances(setting.rounds or ROUNDS[k], k, feedback=False)
        arrived = curves[:, -1] <= LIMIT[k]
        held &= arrived
        words = f"{curves[:, -1].max():.1e} (worst draw), × {np.exp(-np.median([fall(c) for c in curves])):.4f} a round"
        rows.append(Row(f"TOP-{k} of changes: final ‖x̄ - x*‖²", words, f"≤ {LIMIT[k]:g}", bool(arrived.all())))
        shown[f"TOP-{k} of changes"] = curves
        if not setting.quick:  # the rule to compare with costs a program of its own
            other = distances(setting.rounds or SETTLED, k, feedback=True)
            floor = floors(other)
            stays = floor > FLOOR
            held &= stays
            words = f"{np.median(floor):.2g} (median), {floor.min():.2g} (least)"
            rows.append(Row(f"TOP-{k} with feedback: floor", words, f"above {FLOOR:g}", bool(stays.all())))
            shown[f"TOP-{k} with feedback"] = other
    panel = Panel(
        "Figure 3's least squares, α = 10",
        "communication round",
        "‖x̄ - x*‖²",
        tuple(thin(summary(name, curves)) for name, curves in shown.items()),
    )
    return Outcome(
        tuple(rows),
        {"clients": "20", "d": "100", "η̄": f"{ETA_BAR:g}", "draws": str(len(numbers))}
        | {"rounds": f"at most {ROUNDS[10]} (TOP-10) and {ROUNDS[1]} (TOP-1), {SETTLED} (feedback)"},
        held=int(held.sum()),
        draws=len(numbers),
        figures=(Figure("open-innovation", "Changes instead of gradients", (panel,), BAND),),
    )
