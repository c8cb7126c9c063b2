"""Advice in words: the forecasts, what was measured beside them, and the lines for an experiment file."""

from math import inf, isfinite

from fedlin.experiments.advise import Advice, Check, Forecast
from fedlin.experiments.costs import shown
from fedlin.report.comparison import ComparisonTable


def tables(advice: Advice, goal: str) -> tuple[ComparisonTable, ...]:
    """What is expected of every candidate, and how the best of them did."""
    expected = ComparisonTable(
        f"Expected until {goal}",
        ("method", "step", "rounds", "bytes", "gradient calls", "rounds by theory"),
        tuple(_expected(forecast) for forecast in advice.forecasts),
    )
    if not advice.checks:
        return (expected,)
    checked = ComparisonTable(
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
        shown("rounds", forecast.rounds),
        shown("bytes", forecast.bytes),
        shown("gradients", forecast.gradients),
        shown("rounds", promised),
    )


def _checked(check: Check) -> tuple[str, ...]:
    return (
        check.forecast.candidate.label,
        shown("rounds", check.forecast.rounds),
        shown("rounds", check.rounds),
        shown("bytes", check.forecast.bytes),
        shown("bytes", check.bytes),
        f"{check.rounds / max(check.forecast.rounds, 1):.2f}" if isfinite(check.rounds) else "–",
    )


def recommendation(advice: Advice) -> str:
    """The best candidate as lines to put into an experiment file; by measurement where there is one."""
    best = advice.checks[0].forecast if advice.checks else advice.forecasts[0]
    if not isfinite(advice.checks[0].rounds if advice.checks else best.rounds):
        return "No candidate is on its way to the target: raise the target, or look at the data first."
    candidate = best.candidate
    step = f"eta = {best.step:g}" if candidate.one_step_size else f"eta_bar = {best.step:g}"
    tau = [] if candidate.tau is None else [f"tau = {candidate.tau}"]
    lines = ["[[algorithm]]", f'name = "{candidate.method}"']
    lines += [f"{name} = {_toml(value)}" for name, value in candidate.arguments.items()]
    lines += [f"plan = {{ {', '.join([*tau, step])} }}"]
    return f"Use {candidate.label}: {candidate.why}.\n\n" + "\n".join(lines)


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
