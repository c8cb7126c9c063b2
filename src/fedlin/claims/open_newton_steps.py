"""FedLin with Newton's local steps: a rate that depends on how much the clients' curvatures differ, not on κ."""

import numpy as np

from fedlin import algorithms, problems, theory
from fedlin.claims.claim import OPEN, Outcome, Setting, claim
from fedlin.claims.common.curves import Array, median_and_range
from fedlin.claims.common.instances import draws
from fedlin.claims.common.method_faults import SHORTER, any_fault
from fedlin.compressors import nearest
from fedlin.core import Method
from fedlin.engines.simulation.simulate import simulate
from fedlin.links import innovation, plain
from fedlin.problems.quadratic import Quadratic
from fedlin.report.figure import Figure, Panel
from fedlin.report.verdict import Row
from fedlin.result import first

KAPPA = (1e2, 1e3, 1e4, 1e5)
SIZE = 5  # d and m
APART = 0.6  # how far the eigenvalues of A_i relative to H are from 1, at most
ACCURACY = 1e-10  # of the first gap
ROUNDS, WATCHED = 60, 4  # in all, and those from the worst start in which rounding does not show
FLAT = 0.1  # slope of log rounds against log κ
ROOM, TIGHT = 1e-6, 1e-4
LEVELS = 127  # eight bits an entry


@claim(
    "open-newton-steps",
    order=537,
    title="Local steps of Newton's kind",
    section=OPEN,
    statement="On quadratics a round of FedLin with Newton's local steps multiplies the gap by ((M - 1)/(M + 1))² at "
    "most, and from some starts by just that, where M is 1 for clients of one curvature and grows as they differ. "
    "Rounds do not grow with κ. Clients have minimisers of their own. It stays exact if all four messages have eight "
    "bits an entry.",
    wrong=any_fault(without=(SHORTER,)),  # local steps are no descent here, which is what that fault shortens
)
def check(setting: Setting) -> Outcome:
    """Gaps beside the bound from any start and from the worst, rounds against κ, and the end with eight bits."""
    numbers, kappas = draws(setting), setting.pick(KAPPA, KAPPA[::3])
    over, apart, ends = np.zeros((3, len(numbers)))
    counts = np.zeros((len(numbers), len(kappas)))
    for row, number in enumerate(numbers):
        for column, kappa in enumerate(kappas):
            problem = similar_quadratics(number, kappa)
            gaps, bound = _run(setting, problem, problem.start, ROUNDS)
            above = bound > ACCURACY * bound[0]
            over[row] = max(over[row], np.max(gaps[above] / bound[above]))
            rounds = first(gaps, ACCURACY * gaps[0])
            counts[row, column] = np.inf if rounds is None else rounds
            gaps, bound = _run(setting, problem, _worst_start(problem), WATCHED)
            apart[row] = max(apart[row], np.max(np.abs(gaps / bound - 1)))
        problem = similar_quadratics(number, KAPPA[0])
        few_bits = simulate(setting.tested(_rounded()), problem, theory.fedlin_newton(problem), ROUNDS)
        ends[row] = few_bits.gap[-1] / few_bits.gap[0]
    there = np.all(np.isfinite(counts), axis=1)
    lines = np.log(np.where(np.isfinite(counts), counts, 1))
    slopes = np.array([np.polyfit(np.log(kappas), line, 1)[0] for line in lines])
    parts = {
        "gap over bound, largest": (over, 1 + ROOM),
        "from the worst start: gap over bound, away from 1": (apart, TIGHT),
        f"eight bits an entry, κ = {KAPPA[0]:g}: last gap over the first": (ends, ACCURACY),
    }
    held = there & (np.abs(slopes) <= FLAT)
    rows = [
        Row(
            "slope of log rounds against log κ",
            f"{slopes.min():.2f} to {slopes.max():.2f}" if there.all() else "never comes to it",
            f"0 ± {FLAT}",
            bool(held.all()),
        )
    ]
    for quantity, (measured, limit) in parts.items():
        held &= measured <= limit
        rows.append(Row(quantity, f"{measured.max():.7g}", f"at most {limit:g}", bool(np.all(measured <= limit))))
    curve = median_and_range("rounds", kappas, counts)
    panel = Panel("Quadratics", "condition number κ", "rounds to 10⁻¹⁰ of the gap", (curve,), xscale="log")
    return Outcome(
        tuple(rows),
        {"clients": f"{SIZE} with minimisers of their own", "d": str(SIZE)}
        | {"curvatures": f"{1 - APART:g}H to {1 + APART:g}H, mean H", "steps": "of theory.fedlin_newton"},
        held=int(held.sum()),
        draws=len(numbers),
        figures=(Figure("open-newton-steps", "Rounds and κ", (panel,), "Median and range over draws."),),
    )


def similar_quadratics(draw: int, kappa: float) -> Quadratic:
    """A_i = H^½(I + S_i)H^½, S_i of mean zero and norm 0.6 at most; H has eigenvalues 1 to κ, log-uniform between."""
    source = np.random.default_rng(draw)
    spectrum = kappa ** np.concatenate([[0, 1], source.random(SIZE - 2)])
    vectors = np.linalg.qr(source.standard_normal((SIZE, SIZE)))[0]
    root = (vectors * np.sqrt(spectrum)) @ vectors.T
    noise = source.standard_normal((SIZE, SIZE, SIZE))
    noise = noise + noise.transpose(0, 2, 1)
    noise -= noise.mean(axis=0)
    noise *= APART / np.max(np.abs(np.linalg.eigvalsh(noise)))
    A = root @ (np.eye(SIZE) + noise) @ root
    return problems.quadratic(A, np.einsum("ijk,ik->ij", A, source.standard_normal((SIZE, SIZE))))


def _run(setting: Setting, problem: Quadratic, start: Array, rounds: int) -> tuple[Array, Array]:
    """The gaps and their bound."""
    method = setting.tested(algorithms.fedlin_newton())
    run = simulate(method, problem, theory.fedlin_newton(problem), rounds, x0=start, iterates=False)
    return run.gap, theory.bounds.fedlin_newton(problem, rounds, run.gap[0])


def _worst_start(problem: Quadratic) -> Array:
    """x* + v, v the eigenvector of (mean of A_i⁻¹)H that M belongs to."""
    inverse = np.linalg.inv(problem.data.A).mean(axis=0)
    values, vectors = np.linalg.eig(inverse @ problem.hessian)
    return np.asarray(problem.minimizer + np.real(vectors[:, np.argmax(np.real(values))]))


def _rounded() -> Method:
    compressor = nearest(LEVELS)
    rest = dict.fromkeys(("downlink", "model_uplink", "model_downlink"), plain(compressor))
    return algorithms.fedlin_newton(uplink=innovation(compressor), **rest)
