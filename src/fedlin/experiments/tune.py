"""The step size of a method, by one rule for all, at a fraction of what running every candidate would cost.

The rule: of the steps that do not diverge the best is the one that reaches the most targets; among equals the one that
takes the fewest rounds to the hardest target it reaches; if none is reached, the one whose last measure is smallest.
While the best is the smallest or the largest tried, the grid grows that way.

Successive halving: all candidates play some rounds in one batch, the best of them more, the best two half of a run.
What a candidate would come to in the rounds it has not played is where its curve leads, see `continued`.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import ceil, inf, log
from typing import Any

import numpy as np

from fedlin import theory
from fedlin.core import Array
from fedlin.engines.simulation.simulate import simulate_many
from fedlin.engines.simulation.stop import Stop
from fedlin.errors import FedLinError
from fedlin.experiments.config import TuningConfig
from fedlin.experiments.prepare import PreparedRun
from fedlin.result import Result, first, log_line

FIRST = 24  # the share of a run's rounds that all candidates play
SECOND = 6  # the share that the best few play
LAST = 2  # the share that the best two play
FEW = 4  # candidates that go on after the first look: as many as an extension adds, so that they share a program
SHORT = 20  # rounds of a first look at least; runs of fewer than twice as many are played whole


@dataclass(frozen=True)
class Trial:
    """One step size: how it ended, the round at each target (None: not within a run) and the measure at its end.

    Where fewer rounds were played than a run has, the rest is what its curve leads to.
    """

    value: float
    status: str
    reached: tuple[int | None, ...]
    last: float
    rounds: int = 0  # played

    @property
    def rank(self) -> tuple[bool, int, float, float]:
        """Smaller is better."""
        hits = [round_number for round_number in self.reached if round_number is not None]
        return self.status == "diverged", -len(hits), hits[-1] if hits else inf, self.last if not hits else 0.0


Attempt = Callable[[Sequence[float], int], list[Trial]]  # of step sizes, all for so many rounds


@dataclass(frozen=True)
class Tuned:
    """The step size chosen, all that were tried, and whether the chosen one is still the outermost."""

    value: float
    edge: bool
    trials: tuple[Trial, ...]

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


def tune(run: PreparedRun, *, halve: bool = True) -> Tuned:
    """Search for the step size of one method on one problem, with the first seed; see `search`."""
    experiment, planned, setting = run.experiment, run.planned, run.planned.plan.tuning
    whole = setting.rounds or experiment.rounds
    targets = sorted(experiment.targets, reverse=True)

    def attempt(values: Sequence[float], rounds: int) -> list[Trial]:
        results = simulate_many(
            run.algorithm,
            run.problem,
            [run.plan(whole, value) for value in values],
            rounds,
            seeds=planned.seed,
            participation=planned.participation,
            aggregate=run.aggregate,
            # Nothing after the hardest target matters to the rule.
            stop=Stop(**{experiment.measure: targets[-1]}),
            iterates=False,
            measure_every=1,
            layout=experiment.layout,
        )
        if any(result.status == "interrupted" for result in results):
            raise KeyboardInterrupt  # the engine ends between rounds and does not raise it itself
        return [
            trial(value, result, experiment.measure, targets, whole)
            for value, result in zip(values, results, strict=True)
        ]

    return search(
        attempt, setting, 1 / run.problem.smoothness, whole, halve=halve, least=_certified(run) if halve else 0.0
    )


def _certified(run: PreparedRun) -> float:
    """The certified step of FedLin, below which there is nothing to look for; zero where there is none."""
    if not run.is_certified or run.problem.sampling is not None:
        return 0.0
    plan = run.plan(run.experiment.rounds, 1.0)
    try:
        certified = theory.certified(run.problem, plan.tau)
    except FedLinError:
        return 0.0
    return float(np.min(np.asarray(certified.eta) / np.asarray(plan.eta)))


def search(
    attempt: Attempt, setting: TuningConfig, unit: float, rounds: int, *, halve: bool = True, least: float = 0.0
) -> Tuned:
    """The best of a geometric grid of multiples of `unit`, grown while the best is outermost.

    Args:
        attempt: Plays step sizes for a number of rounds.
        setting: The grid.
        unit: What its limits are multiples of.
        rounds: Those of a whole run.
        halve: Whether only the best go on; without, every candidate plays all rounds.
        least: A step size that is known to be good: smaller ones but the next are left out.

    Returns:
        The step chosen, with all trials.

    >>> def attempt(values, rounds):
    ...     return [Trial(value, "done", (None,), abs(value - 60)) for value in values]
    >>> search(attempt, TuningConfig(low=0.01, high=1.0, count=3), 1.0, 100).value
    100.0
    """
    factor = (setting.high / setting.low) ** (1 / (setting.count - 1))
    more = ceil(setting.count / 2)
    halve = halve and rounds >= 2 * SHORT
    look = max(SHORT, rounds // FIRST) if halve else rounds
    low, high = 0, setting.count - 1
    if least > 0:
        low = int(np.clip(np.floor(log(least / unit / setting.low) / log(factor)), 0, high - 2))
    trials: dict[int, Trial] = {}

    def play(places: Sequence[int], count: int) -> None:
        values = [float(f"{setting.low * factor**place * unit:.4g}") for place in places]
        trials.update(zip(places, attempt(values, count), strict=True))

    play(range(low, high + 1), look)
    for _ in range(setting.extend):
        best = _order(trials)[0]
        if low < best < high or (best == low and least > 0):
            break
        play(range(low - more, low) if best == low else range(high + 1, high + 1 + more), look)
        low, high = min(trials), max(trials)
    order = _order(trials)
    if halve:
        for keep, share in ((FEW, SECOND), (2, LAST)):
            remaining, count = sorted(order[:keep]), max(SHORT, rounds // share)
            if count > look:
                play(remaining, count)
            order = _order({place: trials[place] for place in remaining})
    best = order[0]
    return Tuned(trials[best].value, best in (low, high), tuple(trials[place] for place in sorted(trials)))


def _order(trials: dict[int, Trial]) -> list[int]:
    """The best first."""
    return sorted(sorted(trials), key=lambda place: trials[place].rank)


def trial(value: float, result: Result, measure: str, targets: Sequence[float], rounds: int) -> Trial:
    """What a run of so many rounds with this step size comes to."""
    curve: Array = getattr(result, measure)
    played = len(curve) - 1
    times, values = (np.array([played]), curve[-1:]) if result.status != "done" else continued(curve, rounds)
    places = []
    for target in targets:
        measured, later = first(curve, target), first(values, target)
        places.append(measured if measured is not None or later is None else int(times[later]))
    return Trial(value, result.status, tuple(places), float(values[-1]), played)


def continued(curve: Array, rounds: int) -> tuple[Array, Array]:
    """The rounds after a curve's own up to `rounds`, and where the curve leads in them; its end where there are none.

    The logarithm's fall from one quarter of the curve to the next shrinks as it did from the third to the last: it goes
    on falling for ever if it did not shrink, and comes to rest on a floor if it did.

    >>> bool(np.isclose(continued(0.5 ** np.arange(41), 50)[1][-1], 0.5**50, rtol=1e-6))
    True
    >>> bool(continued(1 + 0.5 ** np.arange(41), 400)[1][-1] > 0.99)
    True
    """
    played = len(curve) - 1
    quarter = played // 4
    if rounds <= played or quarter < 2 or not np.all((curve > 0) & np.isfinite(curve)):
        return np.array([played]), curve[-1:]
    third, last = (
        log_line(curve[start : start + quarter + 1])[0] for start in (played - 2 * quarter, played - quarter)
    )
    shrinks = float(np.clip(last / third, 0.0, 1.0)) if last < 0 and third < 0 else float(last < 0)
    times = np.arange(played + 1, rounds + 1)
    steps = min(0.0, last) * shrinks ** ((times - played) / quarter)
    return times, curve[-1] * np.exp(np.cumsum(steps))
