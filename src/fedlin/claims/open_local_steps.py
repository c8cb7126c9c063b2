"""Can local steps provably help? Rounds to an accuracy against κ, for FedLin and for Scaffnew."""

import numpy as np

from fedlin import algorithms, theory
from fedlin.claims.claim import OPEN, Outcome, Setting, claim
from fedlin.claims.common.draws import Array, draws
from fedlin.claims.common.instances import quadratics
from fedlin.engines.simulation.simulate import simulate
from fedlin.engines.simulation.stop import Stop
from fedlin.problems.quadratic import Quadratic
from fedlin.report.figure import Curve, Figure, Panel
from fedlin.report.verdict import Row

KAPPA = (10.0, 100.0, 1000.0, 10000.0)
ACCURACY = 1e-3  # of the first squared distance
METHODS = {"FedLin": (algorithms.fedlin(), 1.0), "Scaffnew": (algorithms.scaffnew(), 0.5)}  # and the expected slope
NEAR = 0.15


@claim(
    "open-local-steps",
    order=530,
    title="Local steps that pay",
    section=OPEN,
    statement="At the step sizes of their theories the rounds to a fixed accuracy grow like κ for FedLin and like √κ "
    "for Scaffnew, which takes √κ local steps a round on average: local steps can shorten training.",
)
def check(setting: Setting) -> Outcome:
    """Slopes in log-log over three decades of κ."""
    numbers, kappas = draws(setting), setting.pick(KAPPA, KAPPA[:3])
    counts: dict[str, Array] = {name: np.zeros((len(numbers), len(kappas))) for name in METHODS}
    for column, kappa in enumerate(kappas):
        for row, number in enumerate(numbers):
            problem = quadratics(number, kappa, dim=5, clients=5, aligned=True, shared=True)
            for name in METHODS:
                counts[name][row, column] = _rounds(name, problem, number)
    slopes = {name: [_slope(kappas, line) for line in found] for name, found in counts.items()}
    rows, held = [], np.ones(len(numbers), bool)
    for name, (_, expected) in METHODS.items():
        found = np.array(slopes[name])
        fine = np.abs(found - expected) <= NEAR
        held &= fine
        told = f"{found.min():.2f} to {found.max():.2f}"
        rows.append(Row(f"{name}: slope of log rounds against log κ", told, f"{expected} ± {NEAR}", bool(fine.all())))
    curves = tuple(
        Curve(name, np.array(kappas), np.median(found, axis=0), found.min(axis=0), found.max(axis=0))
        for name, found in counts.items()
    )
    panel = Panel("Quadratics, τ = √κ", "condition number κ", "rounds to 10⁻³ of the distance²", curves, xscale="log")
    return Outcome(
        tuple(rows),
        {"clients": "5, one eigenbasis", "d": "5", "FedLin": "η = 1/(6Lτ)", "Scaffnew": "γ = 1/L, p = 1/√κ"},
        held=int(held.sum()),
        draws=len(numbers),
        figures=(Figure("open-local-steps", "What local steps buy", (panel,), "Median and range over draws."),),
    )


def _rounds(name: str, problem: Quadratic, seed: int) -> int:
    """Rounds to the accuracy, at the step size of the method's theory."""
    plan = theory.scaffnew(problem)
    if name == "FedLin":
        plan = theory.strongly_convex(problem, plan.tau)
    goal = Stop(distance=ACCURACY * float(problem.measure(problem.start)["distance"]))
    most = int(200 * problem.condition)
    return simulate(METHODS[name][0], problem, plan, most, seed=seed, stop=goal, iterates=False).rounds


def _slope(kappas: tuple[float, ...], rounds: Array) -> float:
    return float(np.polyfit(np.log(kappas), np.log(rounds), 1)[0])
