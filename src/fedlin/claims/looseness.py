"""How much faster FedLin is than Theorems 1, 7, 8 and 9 promise, as κ and δ grow.

The clients share x*, so that Theorem 9 has no floor (D = 0) and every run has a rate. They are drawn twice: with one
eigenbasis for all, so that f is as badly conditioned as its clients and the theorems are at their sharpest, and with
a basis each, where averaging evens f out and κ, a property of the worst client, overstates the difficulty.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlin import algorithms, theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common import instances
from fedlin.claims.common.draws import draws, stack
from fedlin.claims.common.instances import DIM
from fedlin.claims.common.rates import fall
from fedlin.compressors import top_k
from fedlin.core import Algorithm
from fedlin.engines.simulation.simulate import simulate_many
from fedlin.links import error_feedback, plain
from fedlin.plan import Plan
from fedlin.problems.problem import Problem
from fedlin.report.figure import Curve, Figure, Panel
from fedlin.report.verdict import Row

Array = NDArray[Any]
BASES = {"clients with one eigenbasis": True, "clients with a basis each": False}


@dataclass(frozen=True)
class LooseTheorem:
    """A method, the plan a theorem gives it, and the rate it promises: 1 - drop a round."""

    name: str
    algorithm: Callable[[int], Algorithm[Any, Any]]  # of k
    plan: Callable[[Problem, Any, float], Plan]
    drop: Callable[[Problem, float], float]
    measure: str = "gap"


THEOREMS = (
    LooseTheorem(
        "Theorem 1",
        lambda k: algorithms.fedlin(),
        lambda problem, tau, delta: theory.strongly_convex(problem, tau),
        lambda problem, delta: 1 / (6 * problem.condition),
    ),
    LooseTheorem(
        "Theorem 7",
        lambda k: algorithms.fedlin(downlink=plain(top_k(k))),
        theory.server_sparse,
        lambda problem, delta: 1 / (2 * delta * (2 + np.sqrt(delta)) * problem.condition),
    ),
    LooseTheorem(
        "Theorem 8",
        lambda k: algorithms.fedlin(downlink=error_feedback(top_k(k))),
        theory.server_feedback,
        lambda problem, delta: 1 / (96 * delta * problem.condition),
    ),
    LooseTheorem(
        "Theorem 9",
        lambda k: algorithms.fedlin(uplink=error_feedback(top_k(k))),
        theory.client_feedback,
        lambda problem, delta: 1 / (96 * delta * theory.dissimilarity(problem).C * problem.condition),
        "distance",
    ),
)


@dataclass(frozen=True)
class Point:
    """Rates of all draws at one κ and δ: how much the logarithm falls a round, measured and promised."""

    measured: Array
    promised: Array

    @property
    def loose(self) -> Array:
        """Measured over promised."""
        return np.asarray(self.measured / self.promised)


def run(theorem: LooseTheorem, kappa: float, k: int, aligned: bool, numbers: range) -> Point:
    """Until the bound has fallen by half: the start lies along the slowest direction, so that is soon all there is."""
    delta = DIM / k
    family = [instances.quadratics(n, kappa, aligned=aligned, shared=True) for n in numbers]
    plans = [theorem.plan(p, instances.steps(n), delta) for n, p in zip(numbers, family, strict=True)]
    promised = np.array([-np.log1p(-theorem.drop(p, delta)) for p in family])
    rounds = int(np.log(2) / promised.min())
    runs = simulate_many(theorem.algorithm(k), family, plans, rounds, iterates=False)
    return Point(np.array([fall(curve) for curve in stack(runs, theorem.measure, rounds)]), promised)


def panel(title: str, xlabel: str, x: Sequence[float], points: dict[str, list[Point]]) -> Panel:
    """Measured rates as points with their range over draws, the promised rate as a line, both logarithmic."""
    curves = []
    for label, line in points.items():
        rates = np.array([point.measured for point in line])
        curves.append(
            Curve(label, np.array(x), np.median(rates, axis=1), rates.min(axis=1), rates.max(axis=1), kind="points")
        )
        promised = np.array([np.median(point.promised) for point in line])
    between = np.geomspace(x[0], x[-1], 40)  # the promise is a power of x, so it is drawn as one
    promise = np.exp(np.interp(np.log(between), np.log(x), np.log(promised)))
    curves.append(Curve("promised", between, promise, kind="theory"))
    return Panel(title, xlabel, "fall of the logarithm a round", tuple(curves))


@claim(
    "looseness",
    order=300,
    title="Measured rates beside the promised ones",
    section="How tight the theory is",
    statement="FedLin is at least as fast as Theorems 1, 7, 8 and 9 promise, at every κ and δ.",
)
def check(setting: Setting) -> Outcome:
    """κ at δ = 2 and δ at κ = 3, each theorem at its own step size."""
    numbers = draws(setting)
    kappas = setting.pick((2.0, 5.0, 15.0), (2.0, 5.0))
    kept = setting.pick((DIM // 2, DIM // 4, 1), (1,))
    across_kappa, across_delta, rows, findings = [], [], [], []
    held = np.full(len(numbers), True)
    for theorem in THEOREMS:
        by_kappa = {
            label: [run(theorem, kappa, kept[0], aligned, numbers) for kappa in kappas]
            for label, aligned in BASES.items()
        }
        across_kappa.append(panel(theorem.name, "κ", kappas, by_kappa))
        everywhere = {label: list(points) for label, points in by_kappa.items()}
        if theorem is not THEOREMS[0]:
            by_delta = {
                label: [run(theorem, 3.0, k, aligned, numbers) for k in kept] for label, aligned in BASES.items()
            }
            across_delta.append(panel(theorem.name, "δ", [DIM / k for k in kept], by_delta))
            everywhere = {label: everywhere[label] + by_delta[label] for label in BASES}
        loose = {label: np.array([point.loose for point in points]) for label, points in everywhere.items()}
        least = np.min([ratios.min(axis=0) for ratios in loose.values()], axis=0)
        held &= least >= 1
        rows.append(
            Row(
                f"{theorem.name}: least measured/promised rate", f"{least.min():.3g}", "at least 1", ok=least.min() >= 1
            )
        )
        told = " and ".join(
            f"{ratios.min():.2g} to {ratios.max():.2g} times the promised one for {label}"
            for label, ratios in loose.items()
        )
        findings.append(f"{theorem.name}: the measured rate is {told}.")
    figures = [Figure("looseness-kappa", "Rates as the condition number grows", tuple(across_kappa))]
    figures.append(Figure("looseness-delta", "Rates as compression grows, κ = 3", tuple(across_delta)))
    return Outcome(
        rows=tuple(rows),
        setting={"clients": f"10 quadratics that share x*, d = {DIM}", "τ": "uniform on {1, ..., 10}"},
        held=int(held.sum()),
        draws=len(numbers),
        figures=tuple(figures),
        findings=tuple(findings),
    )
