"""A method beside gradient descent on what it is said to minimise (Propositions 1 and 2)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedlin import algorithms, problems
from fedlin.claims.claim import Outcome, Setting
from fedlin.core import Algorithm
from fedlin.engines.simulation.simulate import simulate_many
from fedlin.plan import Plan
from fedlin.problems.quadratic import Quadratic
from fedlin.report.verdict import Row

CLIENTS, DIM = 4, 6
AGREE = 1e-10


class Pair(NamedTuple):
    """One method on one instance, and the surrogate of that instance."""

    draw: int
    name: str
    method: Algorithm[Any, Any]
    problem: Quadratic
    surrogate: Quadratic
    tau: ArrayLike
    eta: float


def random_clients(draw: int) -> Quadratic:
    """A_i = GGᵀ/d + I/10 with normal G, and normal b_i: positive definite, nothing in common between clients."""
    source = np.random.default_rng(draw)
    G = source.standard_normal((CLIENTS, DIM, DIM))
    A = G @ G.transpose(0, 2, 1) / DIM + np.eye(DIM) / 10
    return problems.quadratic(A, source.standard_normal((CLIENTS, DIM)))


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
    errors = np.array(
        [
            np.max(np.linalg.norm(a.iterates - b.iterates, axis=1) / np.linalg.norm(a.iterates, axis=1))
            for a, b in zip(true, copy, strict=True)
        ]
    )
    names, numbers = [p.name for p in pairs], np.array([p.draw for p in pairs])
    rows = []
    for name in dict.fromkeys(names):
        mine = [k for k, other in enumerate(names) if other == name]
        off = [np.linalg.norm(pairs[k].surrogate.minimizer - pairs[k].problem.minimizer) for k in mine]
        size = [np.linalg.norm(pairs[k].problem.minimizer) for k in mine]
        worst = max(mine, key=lambda k: errors[k])
        told = f"{errors[worst]:.1e} (draw {numbers[worst]})"
        rows.append(
            Row(f"{name}: trajectories differ by, relative", told, f"at most {AGREE:g}", errors[worst] <= AGREE)
        )
        rows.append(Row(f"{name}: f̃'s minimiser is off x* by, relative", f"{np.median(np.divide(off, size)):.2g}"))
    good = [bool(np.all(errors[numbers == n] <= AGREE)) for n in np.unique(numbers)]
    where = {"clients": str(CLIENTS), "d": str(DIM), "rounds": str(rounds), "draws": str(len(good))}
    return Outcome(tuple(rows), where, held=sum(good), draws=len(good))
