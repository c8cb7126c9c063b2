"""Nesterov's momentum around FedLin's rounds: rounds against κ, and rates that are proved for any smooth clients."""

from functools import partial
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from fedlin import algorithms, theory
from fedlin.algorithms.momentum import momentum
from fedlin.claims.claim import OPEN, Outcome, Setting, claim
from fedlin.claims.common.curves import median_and_range
from fedlin.claims.common.exact_proofs import MOMENTUM_KAPPAS, MOMENTUM_TAU, rate
from fedlin.claims.common.exact_proofs import momentum as proved_momentum
from fedlin.claims.common.instances import draws, quadratics, steps
from fedlin.claims.common.method_faults import SHORTER, any_fault
from fedlin.claims.common.wrong_methods import MethodFactory
from fedlin.engines.simulation.simulate import simulate
from fedlin.engines.simulation.stop import Stop
from fedlin.problems.quadratic import Quadratic
from fedlin.report.figure import Figure, Panel
from fedlin.report.verdict import Row

KAPPA = (10.0, 100.0, 1000.0, 10000.0)
SIZE = 5  # d and m
ACCURACY = 1e-10  # of the first squared distance
SLOPE, NEAR = 0.5, 0.15  # of log rounds against log κ
PROMISED = 0.8  # (1 - ρ)√κ, ρ the factor of the squared distance
MOST = 1.0  # rounds over those that the proved factor asks for, of which the flattest part of f is not all


@claim(
    "open-momentum",
    order=536,
    title="Momentum around FedLin",
    section=OPEN,
    statement="With Nesterov's momentum around its rounds FedLin takes rounds that grow like √κ on quadratics whose "
    "clients have minimisers and step counts of their own, and no more than its proved factor asks for. On any smooth "
    "and strongly convex clients with one, two or five local steps a quadratic Lyapunov function proves that the "
    "squared distance falls by more than 0.8/√κ a round, for κ up to 1000.",
    wrong=any_fault({SHORTER: "Steps a tenth shorter make q a tenth smaller, and rounds one in twenty more."}),
)
def check(setting: Setting) -> Outcome:
    """Stored proofs, slopes in log-log over three decades of κ, and rounds beside the proved factor."""
    numbers, kappas = draws(setting), setting.pick(KAPPA, KAPPA[:3])
    counts = np.zeros((len(numbers), len(kappas)))
    shares = np.zeros_like(counts)
    for row, number in enumerate(numbers):
        for column, kappa in enumerate(kappas):
            problem = quadratics(number, kappa, dim=SIZE, clients=SIZE, aligned=True)
            counts[row, column], shares[row, column] = _rounds(setting, problem, steps(number, SIZE))
    there = np.all(np.isfinite(counts), axis=1)
    lines = np.log(np.where(np.isfinite(counts), counts, 1))
    slopes = np.array([np.polyfit(np.log(kappas), line, 1)[0] for line in lines])
    sloped, few = there & (np.abs(slopes - SLOPE) <= NEAR), np.all(shares <= MOST, axis=1)
    proofs = [
        rate(f"momentum, τ = {tau}, κ = {kappa:g}", partial(proved_momentum, _fedlin(setting), kappa, tau))
        for tau in MOMENTUM_TAU
        for kappa in MOMENTUM_KAPPAS
    ]
    drops = [0.0 if factor is None else 1 - factor for factor in proofs]
    least = min(drop * sqrt(kappa) for drop, kappa in zip(drops, MOMENTUM_KAPPAS * len(MOMENTUM_TAU), strict=True))
    rows = (
        Row(
            "slope of log rounds against log κ",
            f"{slopes.min():.2f} to {slopes.max():.2f}" if there.all() else "never comes to it",
            f"{SLOPE} ± {NEAR}",
            bool(sloped.all()),
        ),
        Row(
            "rounds over those that the factor 1 - √q asks for",
            f"{shares.min():.2f} to {shares.max():.2f}",
            f"at most {MOST:g}",
            bool(few.all()),
        ),
        Row(
            "proved drop of the squared distance a round, times √κ: the least",
            f"{least:.2f}",
            f"above {PROMISED:g}",
            least > PROMISED,
        ),
    )
    held = sloped & few & (least > PROMISED)
    curve = median_and_range("FedLin with momentum", kappas, counts)
    panel = Panel("Quadratics", "condition number κ", "rounds to 10⁻¹⁰ of the distance²", (curve,), xscale="log")
    return Outcome(
        rows,
        {"clients": f"{SIZE} with minimisers of their own, one eigenbasis", "d": str(SIZE)}
        | {"steps": "τ_i from 1 to 10, η_i = 1/(Lτ_i), β of theory.momentum_factor"},
        held=int(held.sum()),
        draws=len(numbers),
        figures=(Figure("open-momentum", "Rounds and κ", (panel,), "Median and range over draws."),),
        findings=(
            "The proofs end there: with more than one local step a round is no step along a gradient, and at κ = 10⁴ "
            "and five local steps no quadratic Lyapunov function shows that the method converges at this step.",
        ),
    )


def _fedlin(setting: Setting) -> MethodFactory:
    """FedLin without the fault, which is put around the momentum."""
    return setting.stand_in or algorithms.fedlin


def _rounds(setting: Setting, problem: Quadratic, tau: NDArray[np.int32]) -> tuple[float, float]:
    """Rounds to the accuracy, infinite where it never comes to it; and the same over what (1 - √q)² a round takes."""
    beta = theory.momentum_factor(problem, tau)
    method = setting.tested(momentum(_fedlin(setting)(), beta))
    goal = Stop(distance=ACCURACY * float(problem.measure(problem.start)["distance"]))
    promised = log(ACCURACY) / (2 * log(2 * beta / (1 + beta)))  # 1 - √q = 2β/(1 + β)
    run = simulate(method, problem, theory.momentum(problem, tau), int(10 * promised), stop=goal, iterates=False)
    rounds = float(run.rounds) if run.status == "stopped" else np.inf
    return rounds, rounds / promised
