"""The paper's random instances by the number of the draw, and what runs over several draws come to.

Draw n takes seed n for its data and for its numbers of local steps, so every claim that names a draw means
the same instance. Section 7 of the paper describes the least squares, its appendix the logistic regression.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from fedlin import problems
from fedlin.claims.claim import Setting
from fedlin.core import Algorithm
from fedlin.engines.simulation.simulate import simulate, simulate_many
from fedlin.plan import Plan, draw_steps
from fedlin.problems.logistic import Logistic
from fedlin.problems.problem import Problem
from fedlin.problems.quadratic import Quadratic
from fedlin.report.figure import Curve, Kind, Panel
from fedlin.result import Result

Array = NDArray[Any]
T = TypeVar("T")
BAND = "Lines are medians over all draws, bands the range of the draws that came closer to x* than they began."


def draws(setting: Setting, quick: int = 2) -> range:
    """The numbers of the draws: all that were asked for, a few at most on a quick run."""
    return range(setting.pick(setting.draws, min(setting.draws, quick)))


def extremes(setting: Setting, methods: Mapping[str, T]) -> dict[str, T]:
    """The methods of a figure; on a quick run the first and the last, for each costs seconds to compile."""
    return dict(setting.pick(list(methods.items()), [*methods.items()][:: len(methods) - 1]))


@lru_cache(maxsize=16)
def least_squares(draw: int, alpha: float = 10.0) -> Quadratic:
    """20 clients with 500 rows of 100 features; kept, since several figures share it."""
    return problems.least_squares(clients=20, dim=100, samples=500, alpha=alpha, seed=draw)


def least_squares_steps(draw: int) -> NDArray[np.int32]:
    """τ_i uniform on {2, ..., 100} for the 20 clients."""
    return draw_steps(20, 2, 100, seed=draw)


@lru_cache(maxsize=24)
def logistic(draw: int) -> Logistic:
    """10 clients, f_i the sum over 500 rows of 100 features, labels drawn by the logistic model of x ~ N(0, I)."""
    source = np.random.default_rng(draw)
    A = source.standard_normal((10, 500, 100))
    x = source.standard_normal(100)
    labels = np.where(source.random((10, 500)) < expit(A @ x), 1.0, -1.0)
    return problems.logistic(A, labels, reduction="sum")


def logistic_steps(draw: int) -> NDArray[np.int32]:
    """τ_i uniform on {2, ..., 50} for the 10 clients."""
    return draw_steps(10, 2, 50, seed=draw)


def sweep(
    methods: Mapping[str, Algorithm[Any, Any]],
    families: Mapping[str, Sequence[Problem]],
    plans: Sequence[Plan],
    rounds: int,
    *,
    together: bool = True,
) -> dict[tuple[str, str], Array]:
    """Every method on every family of instances, one run a draw: ‖x̄_t - x*‖² by (family, method).

    One by one instead of `together` is faster on a CPU where local steps are loops over many rows: each client
    then stops at its own τ_i, and its rows stay in cache.
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
        results = [simulate(method, problem, plan, rounds, seed=draw) for method, problem, plan, draw in runs]
    found = stack(results, "distance").reshape(len(keys), len(plans), -1)
    return dict(zip(keys, found, strict=True))


def stack(runs: Sequence[Result], name: str, rounds: int | None = None) -> Array:
    """One measure of every run, (runs, rounds + 1), as long as the longest unless told.

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


def distance_panel(title: str, curves: Mapping[str, Array]) -> Panel:
    """‖x̄ - x*‖² over rounds: every name's median and range."""
    shown = tuple(summary(name, found) for name, found in curves.items())
    return Panel(title, "communication round", "‖x̄ - x*‖²", shown)


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


def rate(distance: Array, above: float = 1e-24) -> float:
    """The factor a round by which a squared distance shrinks, fitted to its logarithm until it comes to `above`.

    >>> round(rate(4.0 * 0.5 ** np.arange(20)), 6)
    0.5
    """
    small = np.flatnonzero(~(distance > above))
    end = int(small[0]) if small.size else len(distance)
    if end < 2:
        return float("nan")
    return float(np.exp(np.polyfit(np.arange(end), np.log(distance[:end]), 1)[0]))


def of(count: int, total: int) -> str:
    """How many of how many draws.

    >>> of(7, 8)
    '7 of 8 draws'
    """
    return f"{count} of {total} draws"
