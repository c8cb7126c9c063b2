"""Which method, step and compression to use: facts of the problem, a pilot of each candidate, a run that checks it.

A pilot of a few rounds tunes each candidate's step by the rule of `tune`. The fall of its last half, continued as a
straight line in the logarithm, predicts the rounds and the bytes to the target, and the seconds where a `Clock` says
what the machines and their connections can do. The best few then run to the end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf, isfinite, log
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from fedlin import theory
from fedlin.columns import write
from fedlin.core import Array
from fedlin.engines.messages import message_sizes
from fedlin.engines.simulation.simulate import simulate, simulate_many
from fedlin.engines.simulation.stop import Stop
from fedlin.engines.timing.clock import Clock
from fedlin.errors import ArgumentError, UnknownError
from fedlin.experiments import build_method
from fedlin.experiments.candidates import Candidate, candidates, promised
from fedlin.experiments.config import TuningConfig
from fedlin.experiments.prepare import PreparedRun
from fedlin.experiments.tune import Trial, search, trial
from fedlin.plan import Plan
from fedlin.report.text_table import TextTable
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
    seconds: float | None = None  # None without a clock


@dataclass(frozen=True)
class Check:
    """A forecast and what the run really took; infinite where it did not arrive."""

    forecast: Forecast
    rounds: float
    bytes: float
    gradients: float
    seconds: float | None = None


@dataclass(frozen=True)
class Advice:
    """All forecasts, the best first, and the best few beside their measurement, again the best first."""

    facts: dict[str, str]
    forecasts: tuple[Forecast, ...]
    checks: tuple[Check, ...]


def advise(run: PreparedRun, by: str, check: int, say: Callable[[str], None], clock: Clock | None = None) -> Advice:
    """Advice for the problem, plan and participation of a run, on the hardest target of its experiment."""
    if by == "seconds" and clock is None:
        raise ArgumentError("--by seconds needs the speed of the connections: give --mbit, megabits a second each way.")
    measure, target, pilot = run.experiment.measure, min(run.experiment.targets), _pilot(run)
    forecasts = []
    for candidate in candidates(run.problem, run.planned.participation):
        say(f"pilot of {pilot} rounds: {candidate.label}, {candidate.why}")
        forecasts.append(_forecast(candidate, run, measure, target, pilot, clock))
    ordered = tuple(sorted(forecasts, key=attrgetter(by)))
    checks: list[Check] = []
    for forecast in ordered:
        # A forecast that was too bright does not count: the next best takes its place.
        if forecast.rounds < inf and sum(one.rounds < inf for one in checks) < check:
            say(f"measured: {forecast.candidate.label}")
            checks.append(_check(forecast, run, measure, target, clock))
    return Advice(_facts(run), ordered, tuple(sorted(checks, key=attrgetter(by))))


def _facts(run: PreparedRun) -> dict[str, str]:
    size = message_sizes(run.algorithm, run.problem).later
    one_way = run.problem.dim * run.problem.dtype.itemsize
    return {
        **run.built.facts(),
        "a whole model": f"{one_way:,} bytes",
        f"a round of {run.planned.label}": f"{sum(m.up.total + m.down.total for m in size):,} bytes a client",
    }


def _pilot(run: PreparedRun) -> int:
    least, most = PILOT
    try:
        return int(min(most, max(least, run.problem.condition)))
    except UnknownError:
        return least


def _forecast(
    candidate: Candidate, prepared: PreparedRun, measure: str, target: float, pilot: int, clock: Clock | None
) -> Forecast:
    problem, results = prepared.problem, dict[float, Result]()
    method = build_method.algorithm(candidate.method, candidate.arguments)

    def attempt(values: Sequence[float], rounds: int) -> list[Trial]:
        runs = simulate_many(
            method,
            problem,
            [_plan(candidate, prepared, value) for value in values],
            rounds,
            seeds=prepared.planned.seed,
            participation=prepared.planned.participation,
            stop=Stop(**{measure: target}),
            iterates=False,
            measure_every=1,
            layout=prepared.experiment.layout,
        )
        results.update(zip(values, runs, strict=True))
        return [trial(value, run, measure, [target], pilot) for value, run in zip(values, runs, strict=True)]

    if candidate.certified:
        step = float((theory.certified(problem, _tau(prepared)).eta * _tau(prepared))[0])
        attempt([step], pilot)
    elif candidate.step is not None:
        step = candidate.step
        attempt([step], pilot)
    else:
        step = search(attempt, TuningConfig(), 1 / problem.smoothness, pilot).value
    run = results[step]
    curve = getattr(run, measure)
    rounds = inf if run.status == "diverged" else predicted(curve, target)
    ratio = curve[0] / target
    return Forecast(
        candidate,
        step,
        rounds,
        _continued(run.bytes, rounds),
        _continued(run.gradients, rounds),
        promised(candidate, problem, _tau(prepared), ratio) if measure == "gap" and ratio > 1 else None,
        None if clock is None else _continued(_seconds(clock, run, candidate, prepared, step), rounds),
    )


def _seconds(clock: Clock, run: Result, candidate: Candidate, prepared: PreparedRun, step: float) -> Array:
    """What the clock says of a run, after every round."""
    method, plan = build_method.algorithm(candidate.method, candidate.arguments), _plan(candidate, prepared, step)
    timed = clock.time(run, method, prepared.problem, plan, participation=prepared.planned.participation)
    return np.asarray(timed.simulated)


def predicted(curve: Array, target: float) -> float:
    """The round at which a measure comes to `target`: measured, or where the line through its last half leads.

    >>> predicted(100 * 0.5 ** np.arange(11), 100 * 0.5**20)
    20.0
    """
    reached = first(curve, target)
    if reached is not None:
        return float(reached)
    # A fall of less than a thousandth a round at the end is a floor, or too slow for a pilot to show.
    slope, level = log_line(curve, len(curve) // 2)
    if max(slope, log_line(curve, 3 * len(curve) // 4)[0]) > -1e-3:
        return inf
    return float(ceil(round((log(target) - level) / slope, 6)))


def _continued(spent: Array, rounds: float) -> float:
    """A running sum at a later round, each as dear as the mean one of the pilot's last half."""
    last = len(spent) - 1
    if rounds <= last:
        return float(spent[int(rounds)])
    half = last // 2
    return float(spent[last] + (rounds - last) * (spent[last] - spent[half]) / (last - half))


def _check(forecast: Forecast, prepared: PreparedRun, measure: str, target: float, clock: Clock | None) -> Check:
    candidate = forecast.candidate
    run = simulate(
        build_method.algorithm(candidate.method, candidate.arguments),
        prepared.problem,
        _plan(candidate, prepared, forecast.step),
        min(LONGEST, 3 * int(forecast.rounds) + PILOT[0]),
        seed=prepared.planned.seed,
        participation=prepared.planned.participation,
        stop=Stop(**{measure: target}),
        iterates=False,
        measure_every=1,
    )
    round_reached = first(getattr(run, measure), target)
    if round_reached is None:
        return Check(forecast, inf, inf, inf, None if clock is None else inf)
    seconds = None if clock is None else float(_seconds(clock, run, candidate, prepared, forecast.step)[round_reached])
    return Check(forecast, round_reached, float(run.bytes[round_reached]), float(run.gradients[round_reached]), seconds)


def _plan(candidate: Candidate, prepared: PreparedRun, step: float) -> Plan:
    return Plan.scaled(_tau(prepared), step) if candidate.tau is None else Plan(candidate.tau, step)


def _tau(prepared: PreparedRun) -> NDArray[np.integer]:
    return build_method.steps(prepared.planned.plan.tau, prepared.problem.clients)


def advice_tables(advice: Advice, goal: str) -> tuple[TextTable, ...]:
    """What is expected of every candidate, and how the best of them did."""
    seconds = ("seconds",) if any(forecast.seconds is not None for forecast in advice.forecasts) else ()
    expected = TextTable(
        f"Expected until {goal}",
        ("method", "step", "rounds", "bytes", "gradient calls", "rounds by theory", *seconds),
        tuple(_expected(forecast) for forecast in advice.forecasts),
    )
    if not advice.checks:
        return (expected,)
    checked = TextTable(
        "Expected against measured",
        ("method", "rounds expected", "measured", "bytes expected", "measured", "measured over expected"),
        tuple(_checked(check) for check in advice.checks),
    )
    return expected, checked


def _expected(forecast: Forecast) -> tuple[str, ...]:
    promised = inf if forecast.promised is None else forecast.promised
    return (
        forecast.candidate.label,
        f"{forecast.step:.3g}",
        write("rounds", forecast.rounds),
        write("bytes", forecast.bytes),
        write("gradients", forecast.gradients),
        write("rounds", promised),
        *(() if forecast.seconds is None else (write("simulated", forecast.seconds),)),
    )


def _checked(check: Check) -> tuple[str, ...]:
    return (
        check.forecast.candidate.label,
        write("rounds", check.forecast.rounds),
        write("rounds", check.rounds),
        write("bytes", check.forecast.bytes),
        write("bytes", check.bytes),
        f"{check.rounds / max(check.forecast.rounds, 1):.2f}" if isfinite(check.rounds) else "–",
    )


def recommendation(advice: Advice) -> str:
    """The best candidate as lines to put into an experiment file; by measurement where there is one."""
    best = advice.checks[0].forecast if advice.checks else advice.forecasts[0]
    if not isfinite(advice.checks[0].rounds if advice.checks else best.rounds):
        return "No candidate is on its way to the target: raise the target, or look at the data first."
    candidate = best.candidate
    step = f"eta = {best.step:g}" if candidate.one_step_size else f"eta_bar = {best.step:g}"
    if candidate.certified:
        step = 'eta = "certified"'
    tau = [] if candidate.tau is None else [f"tau = {_steps(candidate.tau)}"]
    lines = ["[[algorithm]]", f'name = "{candidate.method}"']
    lines += [f"{name} = {_toml(value)}" for name, value in candidate.arguments.items()]
    lines += [f"plan = {{ {', '.join([*tau, step])} }}"]
    return f"Use {candidate.label}: {candidate.why}.\n\n" + "\n".join(lines)


def _steps(tau: int | tuple[int, ...]) -> str:
    return str(tau) if isinstance(tau, int) else f"{{ each = {list(tau)} }}"


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
