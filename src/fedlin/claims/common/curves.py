"""What the runs of several draws come to: curves side by side, their levels, rates and pictures."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from fedlin.claims.claim import Setting
from fedlin.core import Array as Array  # exported to claims too
from fedlin.core import Method
from fedlin.engines.simulation.simulate import simulate, simulate_many
from fedlin.plan import Plan
from fedlin.problems.problem import Problem
from fedlin.report.figure import Curve, Kind, Panel, Scale
from fedlin.report.verdict import Row
from fedlin.result import Result, log_line

T = TypeVar("T")
BAND = "Lines are medians over all draws, bands the range of the draws that came closer to x* than they began."
STRAIGHT = 0.95  # R² of what counts as a straight line on a logarithmic axis
RESOLVED = 1e-20  # of the start: what lies below is rounding


def extremes(setting: Setting, methods: Mapping[str, T]) -> dict[str, T]:
    """The methods of a figure; on a quick run the first and the last, for each costs seconds to compile."""
    return dict(setting.pick(list(methods.items()), [*methods.items()][:: len(methods) - 1]))


def sweep(
    methods: Mapping[str, Method],
    families: Mapping[str, Sequence[Problem]],
    plans: Sequence[Plan],
    rounds: int,
    *,
    together: bool = True,
) -> dict[tuple[str, str], list[Result]]:
    """Every method on every family of instances, one run a draw, by (family, method).

    One by one instead of `together` is faster on a CPU where local steps are loops over many rows: each client
    then stops at its own τ_i, and its rows stay in cache. All draws take their clients in turn, so that they share a
    program whatever their τ_i.
    """
    keys = [(family, method) for family in families for method in methods]
    runs = [
        (methods[method], problem, plan, draw)
        for family, method in keys
        for draw, (problem, plan) in enumerate(zip(families[family], plans, strict=True))
    ]
    if together:
        algorithms, instances, each, seeds = (list(part) for part in zip(*runs, strict=True))
        results = simulate_many(algorithms, instances, each, rounds, seeds=seeds)
    else:
        results = [
            simulate(method, problem, plan, rounds, seed=draw, layout="client") for method, problem, plan, draw in runs
        ]
    count = len(plans)
    return {key: results[place * count : (place + 1) * count] for place, key in enumerate(keys)}


def stack(runs: Sequence[Result], name: str, rounds: int | None = None) -> Array:
    """One measure of every run, (runs, rounds + 1), as long as the longest unless a length is given.

    It is infinite after a run has diverged, and stays as it is after one has arrived.
    """
    curves = [np.asarray(getattr(run, name)) for run in runs]
    length = max(map(len, curves)) if rounds is None else rounds + 1
    ends = [np.inf if run.status == "diverged" else curve[-1] for run, curve in zip(runs, curves, strict=True)]
    return np.array(
        [np.pad(curve, (0, length - len(curve)), constant_values=end) for curve, end in zip(curves, ends, strict=True)]
    )


def summary(label: str, curves: Array, kind: Kind = "measured") -> Curve:
    """The median of the rows as a curve over rounds, with the range of the rows that end below their beginning.

    >>> summary("two draws", np.array([[1.0, 0.1], [1.0, 0.3]])).y.tolist()
    [1.0, 0.2]
    """
    good = curves[curves[:, -1] < curves[:, 0]]
    band = good if len(good) else curves
    rounds = np.arange(curves.shape[1], dtype=np.float64)
    return Curve(label, rounds, np.median(curves, axis=0), band.min(axis=0), band.max(axis=0), kind)


def median_and_range(label: str, x: ArrayLike, rows: Array) -> Curve:
    """The median of the rows against x, with their range.

    >>> median_and_range("two draws", [10, 100], np.array([[1.0, 2.0], [3.0, 4.0]])).high.tolist()
    [3.0, 4.0]
    """
    return Curve(label, np.asarray(x), np.median(rows, axis=0), rows.min(axis=0), rows.max(axis=0))


def thin(curve: Curve, xscale: Scale = "linear", points: int = 160) -> Curve:
    """The same curve drawn through fewer points, evenly spread on its axis."""
    last = len(curve.x) - 1
    spread = np.linspace(0, last, points) if xscale == "linear" else np.geomspace(1, max(last, 1), points)
    keep = np.unique(np.round(spread).astype(int)) if last >= points else np.arange(len(curve.x))
    low, high = (None if edge is None else edge[keep] for edge in (curve.low, curve.high))
    return replace(curve, x=curve.x[keep], y=curve.y[keep], low=low, high=high)


def distance_panel(title: str, curves: Mapping[str, Array]) -> Panel:
    """‖x̄ - x*‖² over rounds: every name's median and range."""
    lines = tuple(summary(name, rows) for name, rows in curves.items())
    return Panel(title, "communication round", "‖x̄ - x*‖²", lines)


def floors(curves: Array) -> Array:
    """What every run has settled at: the median over the last quarter of its rounds.

    >>> floors(np.array([[9.0, 3.0, 1.0, 1.0, 1.0, 1.0, 1.2, 1.1]])).tolist()
    [1.15]
    """
    return np.asarray(np.median(curves[:, -max(1, curves.shape[1] // 4) :], axis=1))


def levels(label: str, values: Sequence[float], rounds: int) -> Curve:
    """Horizontal lines under one name: what theory predicts the runs to end at."""
    x = np.tile([0.0, rounds, np.nan], len(values))  # a gap after each
    return Curve(label, x, np.repeat(np.asarray(values, np.float64), 3), kind="floor")


def fall(curve: Array, above: float = RESOLVED) -> float:
    """By how much the logarithm falls a round, fitted to the latter half of what is above rounding.

    Args:
        curve: A measure after every round.
        above: The share of the start below which it counts as rounding.

    Returns:
        The fall; NaN where there is nothing to fit, as in a run that diverged at once.

    >>> round(fall(3 * 0.5 ** np.arange(20)), 4)
    0.6931
    """
    small = np.flatnonzero(~(np.isfinite(curve) & (curve > above * curve[0])))
    before = curve[: small[0]] if small.size else curve
    return -log_line(before, len(before) // 2)[0] if len(before) > 3 else float("nan")


def straightness(curve: Array, above: float) -> float:
    """How well a straight line on a logarithmic axis fits a curve until it first comes to `above`: R², at most 1.

    >>> round(straightness(0.5 ** np.arange(20.0), 1e-4), 6)
    1.0
    """
    small = np.flatnonzero(~(np.isfinite(curve) & (curve > above)))
    logarithms = np.log(curve[: small[0]] if small.size else curve)
    if len(logarithms) < 3:
        return float("nan")
    return float(np.corrcoef(np.arange(len(logarithms)), logarithms)[0, 1] ** 2)


def straight_row(runs: Iterable[tuple[Array, float]], until: str = "") -> Row:
    """Whether curves, each down to its own level, are straight lines on a logarithmic axis: the median run is."""
    fits = [straightness(curve, above) for curve, above in runs]
    return Row(
        f"linear: R² of a line on the logarithmic axis{until}, median of all runs (least)",
        f"{np.median(fits):.3f} ({np.min(fits):.3f})",
        f"median ≥ {STRAIGHT:g}",
        bool(np.median(fits) >= STRAIGHT),
    )


def exponent(curve: Array) -> float:
    """p where a curve falls like T^-p, fitted to the last two thirds of what is above rounding.

    >>> round(exponent(5 / np.arange(1, 1000.0)), 2)
    1.0
    """
    resolved = np.flatnonzero(np.isfinite(curve) & (curve > RESOLVED * curve[0]))
    late = resolved[resolved > max(0, len(resolved) // 3)]
    return float(-np.polyfit(np.log(late), np.log(curve[late]), 1)[0]) if len(late) > 1 else float("nan")


def of(count: int, total: int) -> str:
    """How many of how many draws.

    >>> of(7, 8)
    '7 of 8 draws'
    """
    return f"{count} of {total} draws"
