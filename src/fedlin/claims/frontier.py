"""The frontier of few bits and few rounds: every method on the logistic regression of FedNL's authors."""

from math import sqrt
from typing import NamedTuple

import numpy as np

from fedlin import algorithms, theory
from fedlin.claims.claim import OPEN, Outcome, Setting, claim
from fedlin.claims.common.published import CLIENTS, DIANA_ALPHA, DIANA_LEVELS, L2, dealt_a9a
from fedlin.compressors import cast, natural, quantize, top_k
from fedlin.core import Array, Method
from fedlin.engines.bits import count_bits
from fedlin.engines.simulation.simulate import simulate
from fedlin.engines.simulation.stop import Stop
from fedlin.links import innovation
from fedlin.matrices import low_rank
from fedlin.plan import Plan
from fedlin.problems.logistic import Logistic
from fedlin.report.figure import Curve, Figure, Panel
from fedlin.report.verdict import Row
from fedlin.result import first
from fedlin.theory.accelerated_steps import mask_share

GOALS = (1e-4, 1e-6, 1e-10)  # f - f*
HALF = cast("float16")
OURS = ("FedNL, rank 1, half precision", "the same, 2000 entries of each Hessian at the start")
SPARSITY = 16  # of 80 clients


class Entrant(NamedTuple):
    """A method with its plan, and the most rounds it gets."""

    method: Method
    plan: Plan
    most: int


def entrants(problem: Logistic) -> dict[str, Entrant]:
    """Every method at the steps of its own theory, with L that of all rows together, as the authors take it."""
    X = np.asarray(problem.sheet.X).reshape(-1, problem.dim)
    L = float(np.linalg.norm(X, 2) ** 2 / (4 * len(X))) + L2
    kappa, scale = L / L2, problem.smoothness / L
    one, few = 1.0, 1 / 8  # ω of dithering with √d levels, as its users take it, and of natural compression
    share = mask_share(CLIENTS, SPARSITY)
    rest = theory.locodl_pace(problem, few)
    p = sqrt((1 + 2 * few) / (kappa * rest))
    q = theory.adiana_probability(problem, one)
    diana, adiana = (Plan(1, made.eta * scale) for made in (theory.diana(problem, one), theory.adiana(problem, one)))
    newton = Plan(1, 1.0)
    starts = (HALF, cast("float16", top_k(2000)))
    halves = [
        algorithms.fednl(low_rank(1, HALF), start=start, uplink=innovation(HALF), strong_convexity=L2)
        for start in starts
    ]
    return {
        "DIANA": Entrant(algorithms.diana(quantize(DIANA_LEVELS), DIANA_ALPHA), diana, 2500),
        "ADIANA": Entrant(algorithms.adiana(quantize(DIANA_LEVELS), DIANA_ALPHA, q, strong_convexity=L2), adiana, 2600),
        "Scaffnew": Entrant(algorithms.scaffnew(), Plan(round(sqrt(kappa)), 1 / L), 600),
        "CompressedScaffnew": Entrant(
            algorithms.compressed_scaffnew(CLIENTS, SPARSITY), Plan(max(1, int(sqrt(share * kappa / 2))), 1 / L), 1500
        ),
        "LoCoDL": Entrant(algorithms.locodl(natural(), p, rest, strong_convexity=L2), Plan(1, 1 / L), 800),
        "FedNL, rank 1": Entrant(algorithms.fednl(low_rank(1), strong_convexity=L2), newton, 40),
    } | {name: Entrant(method, newton, 40) for name, method in zip(OURS, halves, strict=True)}


@claim(
    "frontier",
    order=710,
    title="The frontier of few bits",
    section=OPEN,
    statement="On the logistic regression of FedNL's authors (a9a, 80 clients), each method at the steps of its own "
    "theory, FedNL of rank 1 takes the fewest bits in all, up and down, to 10⁻¹⁰ if its Hessians and gradients travel "
    "in half precision; numbers count 32 bits or their own size, and indices log₂ d.",
    by_name=True,  # minutes of passes over all rows
)
def check(setting: Setting) -> Outcome:
    """Rounds and bits of one client to each gap, in the papers' way to count and on the wire."""
    problem = dealt_a9a()
    if problem is None:
        return Outcome((), skipped="a9a.gz was not found: set FEDLIN_DATA to its folder")
    rows, curves, totals = [], [], {}
    for name, entrant in entrants(problem).items():
        if setting.quick and "FedNL" not in name and name not in OURS:
            continue
        row, curve, totals[name] = _bill(name, entrant, problem)
        rows.append(row)
        curves.append(curve)
    others = min(total for name, total in totals.items() if name not in OURS)
    ours = np.array([totals[name] for name in OURS])
    fine = bool(np.all(ours < others))
    rows.append(
        Row(
            f"both in half precision: bits up and down to {GOALS[-1]:g} over the least of the others",
            ", ".join(f"{ratio:.2f}" for ratio in ours / others),
            "below 1",
            fine,
        )
    )
    panel = Panel("a9a, 80 clients", "bits up and down, a client", "gap", tuple(curves), xscale="log")
    return Outcome(
        tuple(rows),
        {
            "clients": f"{CLIENTS} of 407 rows",
            "l2": f"{L2:g}",
            "start": "x* + 0.1",
            "steps": "of each theory, L of all rows",
        }
        | {"bits": "of one client; 32 a number or its own size, log₂ d an index"},
        held=int(fine),
        draws=1,
        figures=(Figure("frontier", "Gap against bits", (panel,), "Each method at the steps of its own theory."),),
    )


def _bill(name: str, entrant: Entrant, problem: Logistic) -> tuple[Row, Curve, float]:
    """What a method sends to each goal, its curve, and its bits in all to the last goal."""
    method, plan, most = entrant
    start = problem.minimizer + 0.1
    run = simulate(method, problem, plan, most, x0=start, stop=Stop(gap=GOALS[-1]), iterates=False)
    # From the second round on all messages have one size.
    counts = count_bits(method, problem, plan, 2, x0=start)
    spent = {way: _continued(counts.bits("floats", way), run.rounds) for way in ("up", "both")}
    words = []
    for goal in GOALS:
        at = first(run.gap, goal)
        words.append("never" if at is None else f"{at}: {spent['up'][at]:,.0f} up, {spent['both'][at]:,.0f} in all")
    last = first(run.gap, GOALS[-1])
    total = np.inf if last is None else float(spent["both"][last])
    row = Row(f"{name}: rounds and bits to {' / '.join(f'{goal:g}' for goal in GOALS)}", "; ".join(words), "")
    return row, Curve(name, spent["both"][1:], run.gap[1:]), total


def _continued(bits: Array, rounds: int) -> Array:
    """Bits so far over all rounds, from those after 0, 1 and 2."""
    return np.concatenate([[0.0], bits[1] + (bits[2] - bits[1]) * np.arange(rounds)])
