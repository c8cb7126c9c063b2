"""How much faster FedLin is than Theorems 1, 7, 8 and 9 promise, as κ and δ grow.

The clients share x*, so that Theorem 9 has no floor (D = 0) and every run has a rate. They are drawn twice: on even
quadratics, where the theorems are at their sharpest, and with an eigenbasis each, where averaging evens f out and κ, a
property of the worst client, overstates the difficulty.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedlin import theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common import instances
from fedlin.claims.common.algorithm1 import TopK
from fedlin.claims.common.bound_check import Departure, is_algorithm_1, play
from fedlin.claims.common.curves import fall
from fedlin.claims.common.instances import DIM
from fedlin.claims.common.wrong_methods import (
    BY_STEPS,
    FEDAVG,
    FORGETS,
    LATE_FEDAVG,
    LONGER,
    SIGN,
    STALE,
    TRIPLE,
    WHOLE,
    must_notice,
)
from fedlin.core import Array
from fedlin.plan import Plan
from fedlin.problems.problem import Problem
from fedlin.problems.quadratic import Quadratic
from fedlin.report.figure import Curve, Figure, Panel
from fedlin.report.verdict import Row

EVEN, OWN = "even quadratics", "a basis each"
FAMILIES: dict[str, Callable[[int, float], Quadratic]] = {
    EVEN: instances.even_quadratics,
    OWN: lambda n, kappa: instances.quadratics(n, kappa, shared=True),
}
FIXED_KAPPA = 3.0  # κ as δ grows
NEAR = 0.1  # by how much a measured exponent may differ from the promised one


@dataclass(frozen=True)
class LooseTheorem:
    """The plan a theorem gives, the rate it promises, 1 - drop a round, and where it compresses."""

    name: str
    plan: Callable[[Problem, Array, float], Plan]
    drop: Callable[[Problem, float], float]
    at_clients: bool = False
    feedback: bool | None = None  # None: nothing is compressed
    measure: str = "gap"


THEOREMS = (
    LooseTheorem(
        "Theorem 1",
        lambda problem, tau, delta: theory.strongly_convex(problem, tau),
        lambda problem, delta: 1 / (6 * problem.condition),
    ),
    LooseTheorem(
        "Theorem 7",
        theory.server_sparse,
        lambda problem, delta: 1 / (2 * delta * (2 + np.sqrt(delta)) * problem.condition),
        feedback=False,
    ),
    LooseTheorem(
        "Theorem 8",
        theory.server_feedback,
        lambda problem, delta: 1 / (96 * delta * problem.condition),
        feedback=True,
    ),
    LooseTheorem(
        "Theorem 9",
        theory.client_feedback,
        lambda problem, delta: 1 / (96 * delta * theory.dissimilarity(problem).C * problem.condition),
        at_clients=True,
        feedback=True,
        measure="distance",
    ),
)


@dataclass(frozen=True)
class Point:
    """Rates of all draws at one κ and δ: how much the logarithm falls a round, measured and promised."""

    measured: Array
    promised: Array
    departures: list[Departure]

    @property
    def loose(self) -> Array:
        """Measured over promised."""
        return np.asarray(self.measured / self.promised)


def run(setting: Setting, theorem: LooseTheorem, family: str, kappa: float, k: int) -> Point:
    """Until the bound has fallen by half: the start lies along the slowest direction, so that is soon all there is."""
    delta, numbers = DIM / k, instances.draws(setting)
    members = [FAMILIES[family](n, kappa) for n in numbers]
    plans = [theorem.plan(p, instances.steps(n), delta) for n, p in zip(numbers, members, strict=True)]
    promised = np.array([-np.log1p(-theorem.drop(p, delta)) for p in members])
    rounds = int(np.log(2) / promised.min())
    sparse = None if theorem.feedback is None else TopK(k, theorem.feedback)
    up, down = (sparse, None) if theorem.at_clients else (None, sparse)
    runs = play(setting, members, plans, rounds, up=up, down=down, replayed=1)
    return Point(np.array([fall(curve) for curve in runs.curves(theorem.measure)]), promised, runs.departures)


def slope(x: Sequence[float], rates: Array) -> float:
    """The exponent with which a rate goes, from the first to the last x."""
    return float(np.log(rates[-1] / rates[0]) / np.log(x[-1] / x[0]))


def panel(title: str, xlabel: str, x: Sequence[float], points: dict[str, list[Point]]) -> Panel:
    """Measured rates as points with their range over draws, the promised rate as a line, both logarithmic."""
    curves = []
    for label, line in points.items():
        rates = np.array([point.measured for point in line])
        curves.append(
            Curve(label, np.array(x), np.median(rates, axis=1), rates.min(axis=1), rates.max(axis=1), kind="points")
        )
    promised = np.array([np.median(point.promised) for point in points[EVEN]])
    between = np.geomspace(x[0], x[-1], 40)  # the promise is about a power of x, so it is drawn as one
    promise = np.exp(np.interp(np.log(between), np.log(x), np.log(promised)))
    curves.append(Curve("promised", between, promise, kind="theory"))
    return Panel(title, xlabel, "fall of the logarithm a round", tuple(curves))


@claim(
    "looseness",
    order=300,
    title="Measured rates beside the promised ones",
    section="Compression",
    statement="FedLin is at least as fast as Theorems 1, 7, 8 and 9 promise, at every κ and δ. Where they are sharpest "
    "its rate goes with κ and with δ as theirs do: like 1/κ, like 1/δ with error feedback, and like 1/(δ(2+√δ)) "
    "without, which tends to δ^{-3/2}.",
    wrong=must_notice(
        {
            TRIPLE: LONGER,
            STALE: "A delay of one round costs nothing at these steps.",
            **dict.fromkeys((FEDAVG, LATE_FEDAVG, SIGN), "Clients share x*, where no local step moves them."),
            **dict.fromkeys((BY_STEPS, FORGETS), "Clients share x*, so any weights lead there."),
            WHOLE: "Whole gradients are faster, and on a quick run δ takes one value only.",
        },
        links=True,
    ),
)
def check(setting: Setting) -> Outcome:
    """κ at δ = 4 and δ at κ = 3, each theorem at its own step size."""
    kappas = setting.pick((2.0, 6.0, 15.0), (2.0, 6.0))
    sizes = setting.pick((DIM // 2, DIM // 4, 1), (DIM // 4,))
    across_kappa, across_delta, rows, findings, departures = [], [], [], [], []
    families = setting.pick((EVEN, OWN), (EVEN,))
    held = np.full(len(instances.draws(setting)), True)
    for theorem in THEOREMS:
        by_kappa = {label: [run(setting, theorem, label, kappa, DIM // 4) for kappa in kappas] for label in families}
        across_kappa.append(panel(theorem.name, "κ", kappas, by_kappa))
        everywhere = [point for points in by_kappa.values() for point in points]
        rows.append(_exponent(theorem.name, "κ", kappas, by_kappa[EVEN]))
        if theorem.feedback is not None and len(sizes) > 1:
            deltas = [DIM / k for k in sizes]
            by_delta = {label: [run(setting, theorem, label, FIXED_KAPPA, k) for k in sizes] for label in families}
            across_delta.append(panel(theorem.name, "δ", deltas, by_delta))
            everywhere += [point for points in by_delta.values() for point in points]
            rows.append(_exponent(theorem.name, "δ", deltas, by_delta[EVEN]))
        least = np.min([point.loose for point in everywhere], axis=0)
        fast = least >= 1
        held &= fast & (rows[-1].ok is not False)
        rows.append(
            Row(f"{theorem.name}: least measured/promised rate", f"{least.min():.3g}", "at least 1", bool(fast.all()))
        )
        spread = {label: np.array([point.loose for point in points]) for label, points in by_kappa.items()}
        words = " and ".join(
            f"{ratios.min():.1f} to {ratios.max():.1f} times ({label})" for label, ratios in spread.items()
        )
        findings.append(f"{theorem.name}: measured over promised rate is {words}.")
        departures += [departure for point in everywhere for departure in point.departures]
    figures = [Figure("looseness-kappa", "Rates as the condition number grows, δ = 4", tuple(across_kappa))]
    if across_delta:
        figures.append(
            Figure("looseness-delta", f"Rates as compression grows, κ = {FIXED_KAPPA:g}", tuple(across_delta))
        )
    return Outcome(
        rows=(*rows, is_algorithm_1(departures)),
        setting={"clients": f"10 quadratics that share x*, d = {DIM}", "τ": "uniform on {1, ..., 10}"},
        held=int(held.sum()),
        draws=len(held),
        figures=tuple(figures),
        findings=tuple(findings),
    )


def _exponent(theorem: str, symbol: str, x: Sequence[float], points: list[Point]) -> Row:
    """The exponents of the measured and of the promised rate in κ or δ, where the theorem is sharpest."""
    measured, promised = (
        slope(x, np.array([np.median(getattr(point, kind)) for point in points])) for kind in ("measured", "promised")
    )
    what = f"{theorem}, {EVEN}: the rate goes with {symbol} to the power"
    expected = f"{promised:.2f} ± {NEAR:g}, as promised"
    return Row(what, f"{measured:.2f}", expected, abs(measured - promised) <= NEAR)
