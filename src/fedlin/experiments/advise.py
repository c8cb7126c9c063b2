"""Which method, step and compression to use: facts of the problem, a pilot of each candidate, a run that checks it.

A pilot of a few rounds tunes each candidate's step by the rule of `tune`. The fall of its last half, continued as a
straight line in the logarithm, predicts the rounds and the bytes to the target. The best few then run to the end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf, log
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlin.engines.simulation.many import simulate_many
from fedlin.engines.simulation.simulate import simulate
from fedlin.engines.simulation.stop import Stop
from fedlin.engines.sizes import message_sizes
from fedlin.errors import UnknownError
from fedlin.experiments import build
from fedlin.experiments.candidates import Candidate, candidates, promised
from fedlin.experiments.config import ExperimentConfig, TuningConfig
from fedlin.experiments.jobs import Job
from fedlin.experiments.tune import Trial, search, trial
from fedlin.plan import Plan
from fedlin.result import Result, first, log_line

PILOT = (60, 600)  # rounds at least and at most; κ of them in between, by when the fast directions are done
LONGEST = 200_000  # rounds of a run that checks a prediction


@dataclass(frozen=True)
class Forecast:
    """A candidate at its best step: what it should cost to reach the target, infinite where it will not."""

    candidate: Candidate
    step: float
    rounds: float
    bytes: float
    gradients: float
    promised: float | None


@dataclass(frozen=True)
class Check:
    """A forecast and what the run really took; infinite where it did not arrive."""

    forecast: Forecast
    rounds: float
    bytes: float
    gradients: float


@dataclass(frozen=True)
class Advice:
    """All forecasts, the best first, and the best few beside their measurement, again the best first."""

    facts: dict[str, str]
    forecasts: tuple[Forecast, ...]
    checks: tuple[Check, ...]


def advise(job: Job, experiment: ExperimentConfig, by: str, check: int, say: Callable[[str], None]) -> Advice:
    """Advice for the problem, plan and participation of a job, on the hardest target of its experiment."""
    target, pilot = min(experiment.targets), _pilot(job)
    found = []
    for candidate in candidates(job.problem, job.member.participation):
        say(f"pilot of {pilot} rounds: {candidate.label}, {candidate.why}")
        found.append(_forecast(candidate, job, experiment.measure, target, pilot))
    ordered = tuple(sorted(found, key=attrgetter(by)))
    checks: list[Check] = []
    for forecast in ordered:
        # A forecast that was too bright does not count: the next best takes its place.
        if forecast.rounds < inf and sum(one.rounds < inf for one in checks) < check:
            say(f"measured: {forecast.candidate.label}")
            checks.append(_check(forecast, job, experiment.measure, target))
    return Advice(_facts(job), ordered, tuple(sorted(checks, key=attrgetter(by))))


def _facts(job: Job) -> dict[str, str]:
    size = message_sizes(job.algorithm, job.problem).later
    one_way = job.problem.dim * job.problem.dtype.itemsize
    return {
        **job.built.facts(),
        "a whole model": f"{one_way:,} bytes",
        f"a round of {job.member.label}": f"{sum(m.up.total + m.down.total for m in size):,} bytes a client",
    }


def _pilot(job: Job) -> int:
    least, most = PILOT
    try:
        return int(min(most, max(least, job.problem.condition)))
    except UnknownError:
        return least


def _forecast(candidate: Candidate, job: Job, measure: str, target: float, pilot: int) -> Forecast:
    problem, seen = job.problem, dict[float, Result]()
    method = build.algorithm(candidate.method, candidate.arguments)

    def attempt(values: Sequence[float]) -> list[Trial]:
        runs = simulate_many(
            method,
            problem,
            [_plan(candidate, job, value) for value in values],
            pilot,
            seeds=job.member.seed,
            participation=job.member.participation,
            stop=Stop(**{measure: target}),
            iterates=False,
            measure_every=1,
        )
        seen.update(zip(values, runs, strict=True))
        return [trial(value, run, measure, [target]) for value, run in zip(values, runs, strict=True)]

    best = search(attempt, TuningConfig(), 1 / problem.smoothness)
    run = seen[best.value]
    curve = getattr(run, measure)
    rounds = inf if run.status == "diverged" else predicted(curve, target)
    ratio = curve[0] / target
    return Forecast(
        candidate,
        best.value,
        rounds,
        _continued(run.bytes, rounds),
        _continued(run.gradients, rounds),
        promised(candidate, problem, ratio) if measure == "gap" and ratio > 1 else None,
    )


def predicted(curve: NDArray[Any], target: float) -> float:
    """The round at which a measure comes to `target`: seen, or where the line through its last half leads.

    >>> predicted(100 * 0.5 ** np.arange(11), 100 * 0.5**20)
    20.0
    """
    seen = first(curve, target)
    if seen is not None:
        return float(seen)
    # A fall of less than a thousandth a round at the end is a floor, or too slow for a pilot to tell.
    slope, level = log_line(curve, len(curve) // 2)
    if max(slope, log_line(curve, 3 * len(curve) // 4)[0]) > -1e-3:
        return inf
    return float(ceil(round((log(target) - level) / slope, 6)))


def _continued(spent: NDArray[Any], rounds: float) -> float:
    """A running sum at a later round, each as dear as the mean one of the pilot's last half."""
    last = len(spent) - 1
    if rounds <= last:
        return float(spent[int(rounds)])
    half = last // 2
    return float(spent[last] + (rounds - last) * (spent[last] - spent[half]) / (last - half))


def _check(forecast: Forecast, job: Job, measure: str, target: float) -> Check:
    candidate = forecast.candidate
    run = simulate(
        build.algorithm(candidate.method, candidate.arguments),
        job.problem,
        _plan(candidate, job, forecast.step),
        min(LONGEST, 3 * int(forecast.rounds) + PILOT[0]),
        seed=job.member.seed,
        participation=job.member.participation,
        stop=Stop(**{measure: target}),
        iterates=False,
        measure_every=1,
    )
    place = first(getattr(run, measure), target)
    if place is None:
        return Check(forecast, inf, inf, inf)
    return Check(forecast, place, float(run.bytes[place]), float(run.gradients[place]))


def _plan(candidate: Candidate, job: Job, step: float) -> Plan:
    if candidate.tau is not None:
        return Plan(candidate.tau, step)
    return Plan.scaled(build.steps(job.member.plan.tau, job.problem.clients), step)
