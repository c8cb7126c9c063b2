"""What a run of an entrant has spent after every round: rounds, bits in every convention, gradients and seconds."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedlin.claims.common.entrants import Entrant, Variant
from fedlin.claims.common.shootout_data import Battle
from fedlin.core import Method
from fedlin.engines.bits import DIRECTIONS, WAYS, count_bits
from fedlin.engines.messages import message_bits
from fedlin.engines.simulation.simulate import simulate
from fedlin.engines.simulation.stop import Stop
from fedlin.engines.timing.clock import Clock
from fedlin.problems.problem import Problem
from fedlin.result import Result, first

Array = NDArray[np.float64]
CODED = 4  # rounds whose messages an encoder is given; later ones count as the last of these
LINKS = (1, 10, 100)  # Mbit/s, up and down
SPEED, LATENCY = 1000.0, 0.01  # gradients a second of every client, and seconds that a message is on its way
LONG, SELDOM = 1000, 5  # runs that may take more rounds are measured only so often
TARGETS = (1e-4, 1e-6, 1e-8, 1e-10, 1e-12)  # f - f*


def bits_in_all(method: Method, problem: Problem, share: float, rounds: float) -> float:
    """Bits up and down a client after so many rounds: 32 a number or its own size if less, ⌈log₂ d⌉ an index.

    Where a coin has later rounds played as the first one, they count by how often it falls.
    """
    opening, later = map(sum, message_bits(method, problem))
    again = 0.0 if method.renewal is None else float(method.renewal)
    return share * (opening + (rounds - 1) * (again * opening + (1 - again) * later))


class Spending(NamedTuple):
    """A run, and by the name of a unit what it had spent after every round; bits are of one client."""

    run: Result
    spent: dict[str, Array]

    def at(self, target: float, unit: str) -> float:
        """What was spent when the gap first was at the target; infinite where it never was."""
        met = first(self.run.gap, target)
        return np.inf if met is None else float(self.spent[unit][met])


def bits_unit(way: str, direction: str) -> str:
    """The name of a unit of bits."""
    return f"bits {direction}, {way}"


def seconds_unit(rate: int) -> str:
    """The name of the seconds on links of that many Mbit/s."""
    return f"seconds at {rate} Mbit/s"


def play(entrant: Entrant, variant: Variant, battle: Battle, multiple: float, seed: int) -> Spending:
    """The run to the last target, or as long as the entrant may go on, and what it spent."""
    method, problem = variant.method, battle.problem
    plan, most = entrant.plan(problem, variant, multiple), entrant.most(variant)
    run = simulate(
        method,
        problem,
        plan,
        most,
        seed=seed,
        x0=battle.start,
        participation=variant.participation,
        stop=Stop(gap=TARGETS[-1]),
        iterates=False,
        measure_every=SELDOM if most > LONG else 1,
    )
    rounds = np.arange(run.rounds + 1.0)
    work = entrant.work(problem) * rounds
    spent: dict[str, Array] = {
        "rounds": rounds,
        "gradients": run.gradients / problem.clients + variant.participation * work,
    }
    counts = count_bits(method, problem, plan, min(CODED, most), x0=battle.start, seed=seed)
    share = variant.participation if method.cohort is None else 1.0  # else counted over the clients it draws
    for way in WAYS:
        for direction in DIRECTIONS:
            spent[bits_unit(way, direction)] = share * counts.on(run, way, direction).bits
    for rate in LINKS:
        clock = Clock(SPEED, up=rate * 1e6 / 8, down=rate * 1e6 / 8, latency=LATENCY)
        timed = clock.time(run, method, problem, plan, participation=variant.participation)
        spent[seconds_unit(rate)] = timed.simulated + work / SPEED
    return Spending(run, spent)
