"""Clients that miss rounds: the server keeps the mean of everyone's last gradient, and FedLin still ends at x*."""

import numpy as np

from fedlin import algorithms
from fedlin.claims.claim import OPEN, Outcome, Setting, claim
from fedlin.claims.common.curves import BAND, floors, stack, summary, thin
from fedlin.claims.common.instances import draws, least_squares, least_squares_steps
from fedlin.claims.common.method_faults import RETREATS, SHORTER, any_fault
from fedlin.compressors import identity
from fedlin.core import Array
from fedlin.engines.simulation.simulate import simulate_many
from fedlin.links import innovation
from fedlin.plan import Plan
from fedlin.report.figure import Figure, Panel
from fedlin.report.verdict import Row

ETA_BAR = 2e-4
MISSING = 0.3
LIMIT = 1e-20
REMEMBERS, FORGETS = "FedLin that remembers", "FedLin as in the paper"


@claim(
    "open-dropout",
    order=570,
    title="Clients that miss rounds",
    section=OPEN,
    statement="With 30 % of the clients missing at random in every round, or one away for a third of the run, FedLin "
    "reaches x* if the server adds up the changes of gradients, so that an absent client's last gradient still counts. "
    "Averaging only those who answered stops at a floor.",
    wrong=any_fault(without=(RETREATS, SHORTER)),  # each takes seconds
)
def check(setting: Setting) -> Outcome:
    """Two patterns of absence: at random, and a long absence of one client that then returns."""
    numbers, rounds = draws(setting), setting.rounds or setting.pick(600, 400)
    away = np.random.default_rng(0).random((rounds, 20)) >= MISSING
    away[~away.any(axis=1), 0] = True
    gone = np.ones((rounds, 20))
    gone[rounds // 3 : 2 * rounds // 3, 0] = 0
    patterns = {"30 % missing at random": away.astype(float), "client 0 away for a third": gone}
    methods = {REMEMBERS: setting.fedlin(uplink=innovation(identity()))}
    if not setting.quick:  # each method costs a program of its own
        methods |= {"SCAFFOLD": algorithms.scaffold(), FORGETS: setting.fedlin()}
    family = [least_squares(n) for n in numbers]
    plans = [Plan.scaled(least_squares_steps(n), ETA_BAR) for n in numbers]
    rows, panels, held = [], [], np.ones(len(numbers), bool)
    for pattern, present in patterns.items():
        distances: dict[str, Array] = {
            name: stack(simulate_many(method, family, plans, rounds, participation=present), "distance")
            for name, method in methods.items()
        }
        for name, curves in distances.items():
            end = curves[:, -1]
            if name == REMEMBERS:
                held &= end <= LIMIT
                rows.append(
                    Row(f"{pattern}: {name}", f"{end.max():.1e} (worst draw)", f"≤ {LIMIT:g}", end.max() <= LIMIT)
                )
            else:
                rows.append(Row(f"{pattern}: {name}, floor (median)", f"{np.median(floors(curves)):.1e}"))
        lines = tuple(thin(summary(name, curves)) for name, curves in distances.items())
        panels.append(Panel(pattern, "communication round", "‖x̄ - x*‖²", lines))
    return Outcome(
        tuple(rows),
        {"clients": "20", "d": "100", "η̄": f"{ETA_BAR:g}", "rounds": str(rounds), "draws": str(len(numbers))},
        held=int(held.sum()),
        draws=len(numbers),
        figures=(Figure("open-dropout", "Clients that miss rounds", tuple(panels), BAND),),
    )
