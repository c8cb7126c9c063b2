"""Client compression without a floor: send TOP-k of what changed since the last gradient, and both sides add it up."""

import numpy as np

from fedlin import algorithms
from fedlin.claims.claim import OPEN, Outcome, Setting, claim
from fedlin.claims.common.curves import BAND, fall, floors, stack, summary, sweep, thin
from fedlin.claims.common.instances import draws, least_squares, least_squares_steps
from fedlin.compressors import top_k
from fedlin.links import error_feedback, innovation
from fedlin.plan import Plan
from fedlin.report.figure import Figure, Panel
from fedlin.report.verdict import Row

ETA_BAR = 5e-4  # Figure 3's
LIMIT = {10: 1e-24, 1: 1e-20}  # ‖x̄ - x*‖² to reach, by k


@claim(
    "open-innovation",
    order=510,
    title="Client compression without a floor",
    section=OPEN,
    statement="On Figure 3's instance clients that send TOP-k of the change of their gradient, with both sides "
    "remembering the sum, reach x* itself: at TOP-10, and more slowly at TOP-1, where error feedback stays at a floor.",
)
def check(setting: Setting) -> Outcome:
    """Both rules with the same number of entries, on the same draws."""
    numbers, rounds = draws(setting), setting.rounds or setting.pick(2000, 300)
    limits = setting.pick(LIMIT, {10: LIMIT[10]})  # TOP-1 takes more rounds than a quick run has
    methods = {}
    for k in limits:
        methods[f"TOP-{k} of changes"] = algorithms.fedlin(uplink=innovation(top_k(k)))
        if not setting.quick:  # the rule to compare with costs a program of its own
            methods[f"TOP-{k} with feedback"] = algorithms.fedlin(uplink=error_feedback(top_k(k)))
    family = {"": [least_squares(n) for n in numbers]}
    plans = [Plan.scaled(least_squares_steps(n), ETA_BAR) for n in numbers]
    found = {name: stack(runs, "distance", rounds) for (_, name), runs in sweep(methods, family, plans, rounds).items()}
    rows, held = [], np.ones(len(numbers), bool)
    for k, limit in limits.items():
        curves = found[f"TOP-{k} of changes"]
        arrived = curves[:, -1] <= limit
        held &= arrived
        told = f"{curves[:, -1].max():.1e} (worst draw), × {np.exp(-np.median([fall(c) for c in curves])):.4f} a round"
        rows.append(Row(f"TOP-{k} of changes: final ‖x̄ - x*‖²", told, f"≤ {limit:g}", bool(arrived.all())))
        if f"TOP-{k} with feedback" in found:
            floor = float(np.median(floors(found[f"TOP-{k} with feedback"])))
            rows.append(Row(f"TOP-{k} with feedback: floor (median)", f"{floor:.2g}", "above 1e-3", floor > 1e-3))
    shown = tuple(thin(summary(name, curves)) for name, curves in found.items())
    panel = Panel("Figure 3's least squares, α = 10", "communication round", "‖x̄ - x*‖²", shown)
    return Outcome(
        tuple(rows),
        {"clients": "20", "d": "100", "η̄": f"{ETA_BAR:g}", "rounds": str(rounds), "draws": str(len(numbers))},
        held=int(held.sum()),
        draws=len(numbers),
        figures=(Figure("open-innovation", "Changes instead of gradients", (panel,), BAND),),
    )
