"""Can local steps provably help? Rounds to an accuracy against κ, for FedLin and for Scaffnew."""

import numpy as np

from fedlin import algorithms, theory
from fedlin.claims.claim import OPEN, Outcome, Setting, claim
from fedlin.claims.common.curves import median_and_range
from fedlin.claims.common.instances import draws, quadratics
from fedlin.claims.common.method_faults import HALFWAY, SHORTER, any_fault
from fedlin.core import Array
from fedlin.engines.simulation.simulate import simulate
from fedlin.engines.simulation.stop import Stop
from fedlin.problems.quadratic import Quadratic
from fedlin.report.figure import Figure, Panel
from fedlin.report.verdict import Row

KAPPA = (10.0, 100.0, 1000.0, 10000.0)
ACCURACY = 1e-6  # of the first squared distance
SLOPES = {"FedLin": 1.0, "Scaffnew": 0.5}  # that are expected of log rounds against log κ
NEAR = 0.15
PATIENCE = 20  # FedAvg gets κ rounds this many times: several times those that FedLin takes


@claim(
    "open-local-steps",
    order=530,
    title="Local steps that pay",
    section=OPEN,
    statement="At the step sizes of their theories the rounds to a fixed accuracy grow like κ for FedLin and like √κ "
    "for Scaffnew, which takes √κ local steps a round on average: local steps can shorten training. Clients have "
    "minimisers of their own, so that FedAvg with as many local steps never comes to that accuracy.",
    wrong=any_fault(dict.fromkeys((SHORTER, HALFWAY), "A factor in the rounds leaves the slope as it is.")),
)
def check(setting: Setting) -> Outcome:
    """Slopes in log-log over three decades of κ."""
    numbers, kappas = draws(setting), setting.pick(KAPPA, KAPPA[:3])
    counts: dict[str, Array] = {name: np.zeros((len(numbers), len(kappas))) for name in SLOPES}
    ends = np.zeros(len(numbers))
    for row, number in enumerate(numbers):
        for column, kappa in enumerate(kappas):
            problem = quadratics(number, kappa, dim=5, clients=5, aligned=True)
            for name in SLOPES:
                counts[name][row, column] = _rounds(setting, name, problem, number)
        ends[row] = _average(quadratics(number, kappas[0], dim=5, clients=5, aligned=True))
    rows, held = [], np.ones(len(numbers), bool)
    for name, expected in SLOPES.items():
        there = np.all(np.isfinite(counts[name]), axis=1)
        slopes = np.array(
            [np.polyfit(np.log(kappas), np.log(np.where(np.isfinite(line), line, 1)), 1)[0] for line in counts[name]]
        )
        fine = there & (np.abs(slopes - expected) <= NEAR)
        held &= fine
        words = f"{slopes.min():.2f} to {slopes.max():.2f}" if there.all() else "never comes to it"
        rows.append(Row(f"{name}: slope of log rounds against log κ", words, f"{expected} ± {NEAR}", bool(fine.all())))
    stuck = ends > ACCURACY
    held &= stuck
    rows.append(
        Row(
            f"FedAvg at FedLin's steps, κ = {kappas[0]:g}: squared distance over the first, after {PATIENCE}κ rounds",
            f"{ends.min():.1e} to {ends.max():.1e}",
            f"above {ACCURACY:g}",
            bool(stuck.all()),
        )
    )
    curves = tuple(median_and_range(name, kappas, rounds) for name, rounds in counts.items())
    panel = Panel("Quadratics, τ = √κ", "condition number κ", "rounds to 10⁻⁶ of the distance²", curves, xscale="log")
    return Outcome(
        tuple(rows),
        {"clients": "5 with minimisers of their own, one eigenbasis", "d": "5"}
        | {"FedLin": "η = 1/(6Lτ)", "Scaffnew": "γ = 1/L, p = 1/√κ"},
        held=int(held.sum()),
        draws=len(numbers),
        figures=(Figure("open-local-steps", "What local steps buy", (panel,), "Median and range over draws."),),
    )


def _rounds(setting: Setting, name: str, problem: Quadratic, seed: int) -> float:
    """Rounds to the accuracy, at the step size of the method's theory; infinite where it never comes to it."""
    method, plan = algorithms.scaffnew(), theory.scaffnew(problem)
    if name == "FedLin":
        method, plan = setting.fedlin(), theory.strongly_convex(problem, plan.tau)
    goal = Stop(distance=ACCURACY * float(problem.measure(problem.start)["distance"]))
    most = int(200 * problem.condition)
    run = simulate(method, problem, plan, most, seed=seed, stop=goal, iterates=False)
    return run.rounds if run.status == "stopped" else np.inf


def _average(problem: Quadratic) -> float:
    """Where FedAvg ends with FedLin's plan."""
    plan = theory.strongly_convex(problem, theory.scaffnew(problem).tau)
    run = simulate(algorithms.fedavg(), problem, plan, int(PATIENCE * problem.condition), iterates=False)
    return float(run.distance[-1] / run.distance[0])
