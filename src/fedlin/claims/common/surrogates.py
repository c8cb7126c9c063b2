"""A method beside gradient descent on what it is said to minimise (Propositions 1 and 2)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedlin import algorithms, problems
from fedlin.claims.claim import Outcome, Setting
from fedlin.core import Array, Method
from fedlin.engines.simulation.simulate import simulate_many
from fedlin.plan import Plan
from fedlin.problems.quadratic import Quadratic
from fedlin.report.verdict import Row

CLIENTS, DIM = 4, 6
AGREE = 1e-10


class Pair(NamedTuple):
    """One method on one instance, the surrogate of that instance, and whether their minimisers are to agree."""

    draw: int
    name: str
    method: Method
    problem: Quadratic
    surrogate: Quadratic
    tau: ArrayLike
    eta: float
    same: bool


def random_clients(draw: int, identical: bool = False) -> Quadratic:
    """A_i = GGᵀ/d + I/10 with normal G, and normal b_i: positive definite, nothing in common between clients."""
    source = np.random.default_rng(draw)
    G = source.standard_normal((CLIENTS, DIM, DIM))
    A = G @ G.transpose(0, 2, 1) / DIM + np.eye(DIM) / 10
    b = source.standard_normal((CLIENTS, DIM))
    if identical:
        A[:], b[:] = A[0], b[0]
    return problems.quadratic(A, b)


def shares(draw: int) -> tuple[float, ...]:
    """η as shares of 1/(L + β): a random one below 1, and up to 2, beyond which f̃ has no minimum."""
    return float(np.random.default_rng(draw).uniform(0.1, 1)), 1.5, 1.99


def judge(pairs: Sequence[Pair], setting: Setting) -> Outcome:
    """The largest ‖x_t - y_t‖/‖x_t‖ over rounds, for every setting and draw; and how far f̃'s minimiser is off."""
    rounds = setting.rounds or 50
    one = np.ones(DIM)  # not zero, which would hide a fault in the linear part
    true = simulate_many(
        [p.method for p in pairs], [p.problem for p in pairs], [Plan(p.tau, p.eta) for p in pairs], rounds, x0=one
    )
    copy = simulate_many(
        algorithms.gradient_descent(), [p.surrogate for p in pairs], [Plan(1, p.eta) for p in pairs], rounds, x0=one
    )
    errors = np.array([_apart(a.iterates, b.iterates) for a, b in zip(true, copy, strict=True)])
    off = np.array(
        [
            np.linalg.norm(p.surrogate.minimizer - p.problem.minimizer) / np.linalg.norm(p.problem.minimizer)
            for p in pairs
        ]
    )
    same = np.array([p.same for p in pairs])
    good = (errors <= AGREE) & (~same | (off <= AGREE)) & (same | (off > AGREE))
    names, numbers = [p.name for p in pairs], np.array([p.draw for p in pairs])
    rows = []
    for name in dict.fromkeys(names):
        mine = np.flatnonzero([other == name for other in names])
        worst = mine[np.argmax(errors[mine])]
        measured = f"{errors[worst]:.1e} (draw {numbers[worst]})"
        rows.append(
            Row(f"{name}: trajectories differ by, relative", measured, f"at most {AGREE:g}", errors[worst] <= AGREE)
        )
        expected = f"at most {AGREE:g}" if same[mine[0]] else f"more than {AGREE:g}"
        fine = bool(np.all((off[mine] <= AGREE) == same[mine]))
        measured = f"{off[mine].min():.2g} to {off[mine].max():.2g}"
        rows.append(Row(f"{name}: f̃'s minimiser is off x* by, relative", measured, expected, fine))
    held = [bool(np.all(good[numbers == n])) for n in np.unique(numbers)]
    where = {"clients": str(CLIENTS), "d": str(DIM), "rounds": str(rounds), "draws": str(len(held))}
    return Outcome(tuple(rows), where | {"η": "random below 1/(L+β), 1.5 and 1.99 of it"}, sum(held), len(held))


def _apart(a: Array, b: Array) -> float:
    """The largest difference of two runs, relative; as far as both go where a run grows beyond bounds."""
    both = min(len(a), len(b))
    return float(np.max(np.linalg.norm(a[:both] - b[:both], axis=1) / np.linalg.norm(a[:both], axis=1)))
