"""Mini-batches with a linear rate: each local step draws one batch and uses it at the iterate and at the model."""

from collections.abc import Sequence

import numpy as np

from fedlin import algorithms, problems
from fedlin.claims.claim import OPEN, Outcome, Setting, claim
from fedlin.claims.common.curves import BAND, floors, stack, summary, thin
from fedlin.claims.common.instances import draws
from fedlin.claims.common.method_faults import SHORTER, any_fault
from fedlin.engines.simulation.simulate import simulate_many
from fedlin.plan import Plan, draw_steps
from fedlin.report.figure import Figure, Panel
from fedlin.report.verdict import Row
from fedlin.result import Result

BATCH = 10
ETA_BAR = 1e-3
LIMIT = 1e-12
RENEWAL = 0.2


@claim(
    "open-finite-sum",
    order=550,
    title="Mini-batches with a linear rate",
    section=OPEN,
    statement="Local steps on mini-batches of 10 rows, each batch used at the current point and at the round's model: "
    "the noise vanishes as the two come together, and the gap falls linearly below 1e-12, where fresh batches stop at "
    "a floor. So does S-Local-SVRG, which takes full gradients in a share of the rounds only.",
    wrong=any_fault({SHORTER: "Slower, but below 10⁻¹² within these rounds as well."}),
)
def check(setting: Setting) -> Outcome:
    """All corrections on the same data, plan and number of rows a step."""
    numbers, rounds = draws(setting), setting.rounds or 300
    exact = [problems.least_squares(clients=10, dim=20, samples=100, seed=n) for n in numbers]
    family = [problems.minibatch(problem, BATCH) for problem in exact]
    plans = [Plan.scaled(draw_steps(10, 2, 8, seed=n), ETA_BAR) for n in numbers]
    methods = {"same batch": setting.fedlin(same_batch=True)}
    if not setting.quick:  # each method costs a program of its own
        methods |= {"S-Local-SVRG": algorithms.s_local_svrg(RENEWAL), "fresh batches": setting.fedlin()}
    runs = {name: simulate_many(method, family, plans, rounds, seeds=list(numbers)) for name, method in methods.items()}
    gaps = {name: stack(results, "gap") for name, results in runs.items()}
    end = gaps["same batch"][:, -1]
    rows = [Row("same batch: final gap", f"{end.max():.1e} (worst draw)", f"≤ {LIMIT:g}", end.max() <= LIMIT)]
    if "fresh batches" in gaps:
        floor = float(np.median(floors(gaps["fresh batches"])))
        rows.append(Row("fresh batches: floor of the gap (median)", f"{floor:.2g}", f"above {LIMIT:g}", floor > LIMIT))
    if "S-Local-SVRG" in gaps:
        rival = gaps["S-Local-SVRG"][:, -1].max()
        share = _full(runs["S-Local-SVRG"], plans) / _full(runs["same batch"], plans)
        rows.append(Row("S-Local-SVRG: final gap", f"{rival:.1e} (worst draw)", f"≤ {LIMIT:g}", rival <= LIMIT))
        rows.append(Row("S-Local-SVRG: full gradients, of those the same batch takes", f"{share:.0%}"))
    lines = tuple(thin(summary(name, curves)) for name, curves in gaps.items())
    panel = Panel("Least squares, batches of 10", "communication round", "f(x̄) - f*", lines)
    return Outcome(
        tuple(rows),
        {
            "clients": "10 with 100 rows each",
            "d": "20",
            "η̄": f"{ETA_BAR:g}",
            "renewal of S-Local-SVRG": f"{RENEWAL:g}",
            "rounds": str(rounds),
        },
        held=int((end <= LIMIT).sum()),
        draws=len(numbers),
        figures=(Figure("open-finite-sum", "One batch at both points", (panel,), BAND),),
    )


def _full(runs: Sequence[Result], plans: Sequence[Plan]) -> float:
    """Gradients over all rows of a client: those beyond the two of every local step."""
    return float(
        sum(run.gradients[-1] - 2 * run.rounds * plan.tau.sum() for run, plan in zip(runs, plans, strict=True))
    )
