"""Accelerated methods that compress: rounds against κ at the steps of their theories; and how Newton's method ends."""

import numpy as np

from fedlin import algorithms, theory
from fedlin.claims.claim import OPEN, Outcome, Setting, claim
from fedlin.claims.common.curves import median_and_range
from fedlin.claims.common.instances import draws, quadratics, small_logistic
from fedlin.claims.common.method_faults import SHORTER, any_fault
from fedlin.compressors import rand_k
from fedlin.core import Array, Method
from fedlin.engines.simulation.simulate import simulate
from fedlin.engines.simulation.stop import Stop
from fedlin.matrices import low_rank
from fedlin.plan import Plan
from fedlin.problems.quadratic import Quadratic
from fedlin.report.figure import Figure, Panel
from fedlin.report.verdict import Row

KAPPA = (100.0, 1000.0, 10000.0)
ACCURACY = 1e-10  # of the first squared distance
SIZE = 5  # d and m
SPARSITY, KEPT = 3, 2  # s of the m clients send an entry; entries of d that are sent
COHORT = 4  # clients that take part in a round of TAMUNA
METHODS = ("Scaffnew", "GradSkip", "CompressedScaffnew", "TAMUNA", "LoCoDL", "ADIANA")
SLOPE = 0.5  # of log rounds against log κ
SEEDS = 3  # of which the mean counts, since the coins of one run alone move a slope by 0.1
NEAR = 0.15
MOST = 1.0  # rounds over those in which the bound of a proof comes to the accuracy
MOST_DRAWS = 4  # each is a dozen runs of every method
LAST = 0.01  # what the last factor of the distance may be


@claim(
    "open-acceleration",
    order=535,
    title="Acceleration and compression at once",
    section=OPEN,
    statement="At the steps of their theories the rounds to a fixed accuracy grow like √κ for CompressedScaffnew, "
    "LoCoDL and ADIANA, whose messages are compressed, as they do for Scaffnew and GradSkip, and for TAMUNA though one "
    "client in five misses each round; and all but ADIANA, for which we have none, take no more than the bounds of "
    "their proofs do. Clients have minimisers of their own. "
    "FedNL with Hessians learned from zero by differences of rank 1 ends faster than at any linear rate: the factor of "
    "the distance falls in every round.",
    wrong=any_fault({SHORTER: "Steps a tenth shorter are proved too, and take a tenth more rounds."}),
)
def check(setting: Setting) -> Outcome:
    """Slopes in log-log over two decades of κ; factors of the distance from round to round."""
    numbers, kappas = draws(setting)[:MOST_DRAWS], setting.pick(KAPPA, KAPPA[:2])
    counts: dict[str, Array] = {name: np.zeros((len(numbers), len(kappas))) for name in METHODS}
    shares: dict[str, Array] = {name: np.zeros((len(numbers), len(kappas))) for name in METHODS}
    for row, number in enumerate(numbers):
        for column, kappa in enumerate(kappas):
            problem = quadratics(number, kappa, dim=SIZE, clients=SIZE, aligned=True)
            for name in METHODS:
                counts[name][row, column] = rounds_needed(setting, name, problem, number)
                shares[name][row, column] = counts[name][row, column] / rounds_proved(name, problem)
    rows, held = [], np.ones(len(numbers), bool)
    for name in METHODS:
        there = np.all(np.isfinite(counts[name]), axis=1)
        lines = np.log(np.where(np.isfinite(counts[name]), counts[name], 1))
        slopes = np.array([np.polyfit(np.log(kappas), line, 1)[0] for line in lines])
        fine = there & (np.abs(slopes - SLOPE) <= NEAR)
        few = np.all(shares[name] <= MOST, axis=1)
        held &= fine & few
        words = f"{slopes.min():.2f} to {slopes.max():.2f}" if there.all() else "never comes to it"
        rows.append(Row(f"{name}: slope of log rounds against log κ", words, f"{SLOPE} ± {NEAR}", bool(fine.all())))
        if name in PROVED:
            words = f"{shares[name].min():.2f} to {shares[name].max():.2f}"
            rows.append(Row(f"{name}: rounds over those of its bound", words, f"at most {MOST:g}", bool(few.all())))
    factors = [newton_factors(number) for number in numbers]
    ends, rises = np.array([f[-1] for f in factors]), np.array([np.max(f[1:] / f[:-1]) for f in factors])
    held &= (ends < LAST) & (rises < 1)
    rows += [
        Row(
            "FedNL, rank 1: the last factor of the squared distance",
            f"{ends.min():.1e} to {ends.max():.1e}",
            f"below {LAST:g}",
            bool(np.all(ends < LAST)),
        ),
        Row(
            "FedNL, rank 1: a factor over the one before",
            f"{rises.max():.2f} (largest)",
            "below 1",
            bool(np.all(rises < 1)),
        ),
    ]
    curves = tuple(median_and_range(name, kappas, rounds) for name, rounds in counts.items())
    panel = Panel("Quadratics", "condition number κ", "rounds to 10⁻¹⁰ of the distance²", curves, xscale="log")
    return Outcome(
        tuple(rows),
        {"clients": f"{SIZE} with minimisers of their own, one eigenbasis", "d": str(SIZE)}
        | {"compression": f"an entry from {SPARSITY} of {SIZE} clients; {KEPT} of {SIZE} entries at random"}
        | {"FedNL": "logistic regression, l2 = 0.1"},
        held=int(held.sum()),
        draws=len(numbers),
        figures=(Figure("open-acceleration", "Rounds and κ", (panel,), "Median and range over draws."),),
    )


def _method(name: str, problem: Quadratic) -> tuple[Method, Plan]:
    few, omega = rand_k(KEPT, unbiased=True), SIZE / KEPT - 1
    match name:
        case "Scaffnew":
            return algorithms.scaffnew(), theory.scaffnew(problem)
        case "GradSkip":
            return algorithms.gradskip(theory.gradskip_probability(problem)), theory.gradskip(problem)
        case "CompressedScaffnew":
            return algorithms.compressed_scaffnew(SIZE, SPARSITY), theory.compressed_scaffnew(problem, SPARSITY)
        case "TAMUNA":
            return algorithms.tamuna(SIZE, COHORT, SPARSITY), theory.tamuna(problem, SPARSITY)
        case "LoCoDL":
            p, pace = theory.locodl_probability(problem, omega), theory.locodl_pace(problem, omega)
            return algorithms.locodl(few, p, pace), theory.locodl(problem)
        case _:
            q = theory.adiana_probability(problem, omega)
            return algorithms.adiana(few, 1 / (1 + omega), q), theory.adiana(problem, omega)


PROVED = METHODS[:-1]


def rounds_proved(name: str, problem: Quadratic) -> float:
    """Rounds in which the bound of the method's proof comes to the accuracy; infinite where there is no proof."""
    if name not in PROVED:
        return np.inf
    start, omega = float(problem.measure(problem.start)["distance"]), SIZE / KEPT - 1
    spread = float(np.mean([np.sum(problem.client(i).grad(problem.minimizer) ** 2) for i in range(SIZE)]))
    most, plan = int(1000 * problem.condition**0.5), _method(name, problem)[1]
    match name:
        case "GradSkip":
            bound = theory.bounds.gradskip(problem, most, start, spread)
        case "LoCoDL":
            p = theory.locodl_probability(problem, omega)
            bound = theory.bounds.locodl(problem, most, problem.start, p, omega)
        case _:  # Scaffnew is CompressedScaffnew with every entry from everyone
            share = SIZE if name == "Scaffnew" else SPARSITY
            bound = theory.bounds.compressed_scaffnew(problem, most, start, spread, int(np.max(plan.tau)), share)
    return float(np.argmax(bound <= np.sqrt(ACCURACY * start)))


def rounds_needed(setting: Setting, name: str, problem: Quadratic, seed: int) -> float:
    """Rounds to the accuracy, at the step size of the method's theory; infinite where it never comes to it."""
    sound, plan = _method(name, problem)
    method = setting.tested(sound)
    goal = Stop(distance=ACCURACY * float(problem.measure(problem.start)["distance"]))
    most = int(1000 * problem.condition**0.5)
    seeds = range(SEEDS * seed, SEEDS * (seed + 1))
    share = 1.0 if method.cohort is None else method.cohort / SIZE
    runs = [
        simulate(method, problem, plan, most, seed=number, stop=goal, iterates=False, participation=share)
        for number in seeds
    ]
    return float(np.mean([run.rounds if run.status == "stopped" else np.inf for run in runs]))


def newton_factors(number: int) -> Array:
    """By what the squared distance falls in each round, as far as double precision shows it."""
    problem = small_logistic(number, l2=0.1)
    method = algorithms.fednl(low_rank(1), correction="shift", start="zero")
    run = simulate(method, problem, theory.fednl(problem), 40, iterates=False)
    above = run.distance[run.distance > 1e-26]
    return np.asarray(above[1:] / above[:-1])
