"""The step size of a method, by one rule for all.

Every candidate runs in one batch. Of those that do not diverge the best is the one that reaches the most
targets; among equals the one that takes the fewest rounds to the hardest target it reaches; if none is reached, the
one whose last measure is smallest. While the best is the smallest or the largest tried, the grid grows that way.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import ceil, inf
from typing import Any

from numpy.typing import NDArray

from fedlin.engines.simulation.simulate import simulate_many
from fedlin.engines.simulation.stop import Stop
from fedlin.experiments.config import TuningConfig
from fedlin.experiments.prepare import PreparedRun
from fedlin.result import Result, first


@dataclass(frozen=True)
class Trial:
    """One step size: how it ended, the first round at each target (None: not reached) and the last measure."""

    value: float
    status: str
    reached: tuple[int | None, ...]
    last: float

    @property
    def rank(self) -> tuple[bool, int, float, float]:
        """Smaller is better."""
        hits = [round_number for round_number in self.reached if round_number is not None]
        return self.status == "diverged", -len(hits), hits[-1] if hits else inf, self.last if not hits else 0.0


@dataclass(frozen=True)
class Tuned:
    """The step size chosen, all that were tried, and whether the chosen one is still the outermost."""

    value: float
    edge: bool
    trials: tuple[Trial, ...]

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


def tune(run: PreparedRun) -> Tuned:
    """Search for the step size of one method on one problem, with the first seed."""
    experiment, planned, setting = run.experiment, run.planned, run.planned.plan.tuning
    rounds = setting.rounds or experiment.rounds
    targets = sorted(experiment.targets, reverse=True)

    def attempt(values: Sequence[float]) -> list[Trial]:
        results = simulate_many(
            run.algorithm,
            run.problem,
            [run.plan(rounds, value) for value in values],
            rounds,
            seeds=planned.seed,
            participation=planned.participation,
            # Nothing after the hardest target matters to the rule.
            stop=Stop(**{experiment.measure: targets[-1]}),
            iterates=False,
            measure_every=1,
        )
        if any(result.status == "interrupted" for result in results):
            raise KeyboardInterrupt  # the engine ends between rounds and does not raise it itself
        return [
            trial(value, result, experiment.measure, targets) for value, result in zip(values, results, strict=True)
        ]

    return search(attempt, setting, 1 / run.problem.smoothness)


def search(attempt: Callable[[Sequence[float]], list[Trial]], setting: TuningConfig, unit: float) -> Tuned:
    """The best of a geometric grid of multiples of `unit`, grown while the best is outermost.

    >>> def attempt(values):
    ...     return [Trial(value, "done", (None,), abs(value - 60)) for value in values]
    >>> search(attempt, TuningConfig(low=0.01, high=1.0, count=3), 1.0).value
    100.0
    """
    factor = (setting.high / setting.low) ** (1 / (setting.count - 1))
    more = ceil(setting.count / 2)
    low, high = 0, setting.count - 1
    trials = dict(zip(range(low, high + 1), attempt(_values(setting, unit, factor, range(low, high + 1))), strict=True))
    for _ in range(setting.extend):
        best = _best(trials)
        if low < best < high:
            break
        fresh = range(low - more, low) if best == low else range(high + 1, high + 1 + more)
        trials |= dict(zip(fresh, attempt(_values(setting, unit, factor, fresh)), strict=True))
        low, high = min(trials), max(trials)
    best = _best(trials)
    return Tuned(trials[best].value, best in (low, high), tuple(trials[place] for place in sorted(trials)))


def _values(setting: TuningConfig, unit: float, factor: float, places: range) -> list[float]:
    # Four figures, so that the file, the table and the run agree on the number.
    return [float(f"{setting.low * factor**place * unit:.4g}") for place in places]


def _best(trials: dict[int, Trial]) -> int:
    return min(sorted(trials), key=lambda place: trials[place].rank)


def trial(value: float, result: Result, measure: str, targets: Sequence[float]) -> Trial:
    """What a run with this step size came to."""
    curve: NDArray[Any] = getattr(result, measure)
    return Trial(value, result.status, tuple(first(curve, target) for target in targets), float(curve[-1]))
