"""Differential privacy: uploads clipped and noised, every round paid for in ε, and what accuracy that leaves."""

from collections.abc import Sequence

import numpy as np

from fedlin import algorithms, problems
from fedlin.claims.claim import OPEN, Outcome, Setting, claim
from fedlin.claims.common.curves import median_and_range
from fedlin.claims.common.instances import draws
from fedlin.core import Array, Method
from fedlin.engines.simulation.simulate import simulate
from fedlin.plan import Plan, draw_steps
from fedlin.privacy import Where, account, gaussian
from fedlin.problems.problem import Problem
from fedlin.report.figure import Figure, Panel
from fedlin.report.verdict import Row

CLIENTS, DIM, ROUNDS = 1000, 10, 40
PUBLIC = range(100, 102)  # draws on which noise and rounds are chosen
DELTA = 1e-5  # δ
STEP = 1 / 8  # η̄
CLIP = 12.0  # of gradients; a move is η̄ gradients long, and is clipped so
# Noise multipliers: few rounds with little noise, or many with much.
NOISES: dict[Where, tuple[float, ...]] = {"central": (32.0, 6.0, 1.2), "local": (0.5,)}
BUDGETS: dict[Where, Array] = {"central": np.geomspace(0.25, 32, 8), "local": np.geomspace(8, 128, 5)}


@claim(
    "open-privacy",
    order=560,
    title="Differential privacy",
    section=OPEN,
    statement="With every upload clipped and noised, a client's data is private at a stated ε, and the error falls as "
    "ε grows. FedLin uploads twice a round and so pays twice for it: FedAvg is nearer at small ε, and FedLin passes it "
    "once the noise is below FedAvg's own bias. How much noise and how many rounds is chosen on other, public data, so "
    "that the choice costs nothing.",
)
def check(setting: Setting) -> Outcome:
    """For each ε what was best on public instances, of a few noises and of all numbers of rounds that ε pays for."""
    numbers, rounds = draws(setting), setting.rounds or ROUNDS
    family = [_instance(n) for n in numbers]
    plan = Plan.scaled(draw_steps(CLIENTS, 2, 10), STEP)
    rows, panels, held = [], [], np.ones(len(numbers), bool)
    places: tuple[Where, ...] = setting.pick(("central", "local"), ("central",))
    for where in places:
        errors_of = {
            name: _errors(setting, name, where, family, plan, rounds, numbers) for name in ("FedLin", "FedAvg")
        }
        linear, average = errors_of["FedLin"], errors_of["FedAvg"]
        for place, epsilon in ((0, BUDGETS[where][0]), (-1, BUDGETS[where][-1])):
            what = f"{where} noise, ε = {epsilon:g}: distance² of FedLin against FedAvg"
            words = f"{np.median(linear[:, place]):.1e} against {np.median(average[:, place]):.1e} (median)"
            if where != "central":
                rows.append(Row(what, words))
                continue
            nearer = (linear[:, place] < average[:, place]) == (place == -1)
            held &= nearer
            rows.append(Row(what, words, f"{('FedAvg', 'FedLin')[place]} nearer on every draw", bool(nearer.all())))
        falls = linear[:, -1] < linear[:, 0]
        held &= falls
        rows.append(
            Row(
                f"{where} noise: distance² of FedLin at the largest ε over that at the least",
                f"{np.median(linear[:, -1] / linear[:, 0]):.1e} (median)",
                "below 1 on every draw",
                bool(falls.all()),
            )
        )
        curves = tuple(median_and_range(name, BUDGETS[where], errors) for name, errors in errors_of.items())
        panels.append(Panel(f"Noise: {where}", f"ε at δ = {DELTA:g}", "‖x̄ - x*‖²", curves, xscale="log"))
    return Outcome(
        tuple(rows),
        {
            "clients": f"{CLIENTS}, each private as a whole",
            "d": str(DIM),
            "δ": f"{DELTA:g}",
            "clip": f"{CLIP:g} (gradients), {CLIP * STEP:g} (moves)",
            "noise multipliers": "; ".join(f"{where} {NOISES[where]}" for where in places),
            "rounds": f"at most {rounds}",
            "chosen on": f"draws {PUBLIC.start} to {PUBLIC[-1]}, which are not reported",
        },
        held=int(held.sum()),
        draws=len(numbers),
        figures=(
            Figure(
                "open-privacy", "Error against ε", tuple(panels), "Lines are medians over the draws, bands the range."
            ),
        ),
    )


def _instance(number: int) -> Problem:
    """Quadratics whose curvature and centre go together, so that averaging models is biased; x* is far from 0."""
    source = np.random.default_rng(number)
    curvature = source.uniform(1, 4, (CLIENTS, DIM))
    centre = 1 + curvature - 2.5 + 0.3 * source.standard_normal((CLIENTS, DIM))
    return problems.quadratic(curvature[:, :, None] * np.eye(DIM), curvature * centre)


def _method(setting: Setting, name: str, where: Where, noise: float) -> Method:
    gradients, moves = (gaussian(clip, noise, where=where) for clip in (CLIP, CLIP * STEP))
    if name == "FedLin":
        return setting.fedlin(uplink=gradients, model_uplink=moves)
    return algorithms.fedpaq(moves)


def _errors(
    setting: Setting,
    name: str,
    where: Where,
    family: list[Problem],
    plan: Plan,
    rounds: int,
    numbers: Sequence[int],
) -> Array:
    """‖x̄ - x*‖² of every draw at every ε, (draws, budgets)."""
    spent, reached, public = [], [], []
    for noise in NOISES[where]:
        method = _method(setting, name, where, noise)

        def distances(problems: list[Problem], seeds: Sequence[int], method: Method = method) -> list[Array]:
            # One by one: as a batch, the program that draws the noise takes twice as long to compile.
            return [simulate(method, p, plan, rounds, seed=n).distance for n, p in zip(seeds, problems, strict=True)]

        spent += [0.0] + [account(method, t, delta=DELTA).epsilon for t in range(1, rounds + 1)]
        reached.append(distances(family, numbers))
        public.append(distances([_instance(n) for n in PUBLIC], PUBLIC))
    typical: Array = np.median(np.concatenate(public, axis=1), axis=0)
    best = [int(np.argmin(np.where(np.array(spent) <= epsilon, typical, np.inf))) for epsilon in BUDGETS[where]]
    return np.concatenate(reached, axis=1)[:, best]
