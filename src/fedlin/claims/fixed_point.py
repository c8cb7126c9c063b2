"""x* is a fixed point of FedLin; SCAFFOLD leaves it, because its control variates are those of the round before.

SCAFFOLD's first round is an affine map on quadratics, so there is a start from which it leads to x* exactly. What the
second round does from there is the paper's argument, played by the code: at x* SCAFFOLD still corrects by gradients
from where it came from. It stays where its control variates are ∇f_i(x*).
"""

from dataclasses import replace
from functools import cache

import numpy as np

from fedlin import algorithms, theory
from fedlin.algorithms.scaffold import ScaffoldClient, ScaffoldServer
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common.algorithm1 import departure
from fedlin.claims.common.bound_check import Departure, is_algorithm_1
from fedlin.claims.common.instances import draws, least_squares, least_squares_steps
from fedlin.claims.common.wrong_methods import (
    BY_STEPS,
    FEDAVG,
    FORGETS,
    LATE_FEDAVG,
    SIGN,
    WRONG,
    must_notice,
)
from fedlin.core import Algorithm, Array, Central, Local, Message, Method, Phase, Vector
from fedlin.engines.simulation.simulate import simulate
from fedlin.plan import Plan
from fedlin.problems.quadratic import Quadratic
from fedlin.report.verdict import Row

STAYS, LEAVES = 1e-13, 1e-3
DRIFTS = 1e-5  # as LEAVES, where the control variates come from near x*
ARRIVES = 1e-9  # how near to x* the first round leads, of the distance of the start


@cache
def informed_scaffold() -> Algorithm[ScaffoldServer, ScaffoldClient]:
    """SCAFFOLD whose control variates begin at ∇f_i(x_1) and their mean, by one exchange before the first round."""

    def send_gradient(state: ScaffoldClient, x: Vector, local: Local) -> tuple[ScaffoldClient, Message]:
        grad = local.oracle.grad(x, local.key)
        return ScaffoldClient(grad), grad

    def take_mean(state: ScaffoldServer, mean: Vector, central: Central) -> ScaffoldServer:
        return ScaffoldServer(state.x, mean)

    method = algorithms.scaffold()
    gradient = Phase("gradient", lambda state: state.x, send_gradient, take_mean)
    return replace(method, name="informed scaffold", opening=(gradient, *method.phases), recipe=None)


def fedavg_map(problem: Quadratic, plan: Plan) -> tuple[Array, Array]:
    """M and v of a round x ↦ Mx + v of FedAvg, which is SCAFFOLD's first round from zero control variates."""
    values, vectors = np.linalg.eigh(problem.data.A)
    power = (1 - plan.eta[:, None] * values) ** plan.tau[:, None]
    ends = np.einsum("ijk,ik,ilk->ijl", vectors, power, vectors)  # (I - η_iA_i)^τ_i
    own = np.linalg.solve(problem.data.A, problem.data.b[..., None])[..., 0]  # the clients' minimisers
    return ends.mean(axis=0), np.mean(own - np.einsum("ijk,ik->ij", ends, own), axis=0)


def start_before(problem: Quadratic, plan: Plan) -> Array:
    """The model from which SCAFFOLD's first round leads to x*."""
    M, v = fedavg_map(problem, plan)
    return np.asarray(np.linalg.solve(M, problem.minimizer - v))


@claim(
    "fixed-point",
    order=60,
    title="x* is a fixed point of FedLin",
    section="Why the others fall short",
    statement="FedLin that has come to x* stays there. SCAFFOLD does not in general: its control variates are those of "
    "the round before, and lead it away again. It stays where they are c_i = ∇f_i(x*).",
    wrong=must_notice(
        dict.fromkeys(
            set(WRONG) - {FEDAVG, SIGN, BY_STEPS, FORGETS, LATE_FEDAVG}, "x* is a fixed point of this method too."
        ),
        without=(LATE_FEDAVG,),  # two rounds are played
    ),
)
def check(setting: Setting) -> Outcome:
    """‖x̄ - x*‖ after the round that follows the one that led to x*, on the paper's least squares, η_i = 1/(6Lτ_i)."""
    numbers = draws(setting)
    stay, fresh, stale, informed, missed = [], [], [], [], []
    for draw in numbers:
        problem = least_squares(draw)
        plan = theory.strongly_convex(problem, least_squares_steps(draw))

        def moves(method: Method, start: Array, problem: Quadratic = problem, plan: Plan = plan) -> Array:
            """The distances from x* of the start and after each of two rounds."""
            return np.sqrt(simulate(method, problem, plan, 2, x0=start).distance)

        stay.append(moves(setting.fedlin(), problem.minimizer)[2])
        fresh.append(moves(algorithms.scaffold(), problem.minimizer)[1])
        before, there, stale_move = moves(algorithms.scaffold(), start_before(problem, plan))
        missed.append(there / before)
        stale.append(stale_move)
        informed.append(moves(informed_scaffold(), problem.minimizer)[2])
    problem, plan = least_squares(0), theory.strongly_convex(least_squares(0), least_squares_steps(0))
    elsewhere = simulate(setting.fedlin(), problem, plan, 2)
    premise = is_algorithm_1([Departure(*departure(problem, plan, elsewhere.iterates), 0)])
    arrived = bool(np.max(missed) <= ARRIVES)
    stays, rests = (np.array(each) <= STAYS for each in (stay, informed))
    leaves, drifts = np.array(fresh) > LEAVES, np.array(stale) > DRIFTS
    rows = (
        Row("FedLin from x*: largest distance", f"{max(stay):.1e}", f"≤ {STAYS:g}", bool(stays.all())),
        Row(
            "SCAFFOLD's first round leads to x*: largest distance over that of the start",
            f"{np.max(missed):.1e}",
            f"≤ {ARRIVES:g}",
            arrived,
            premise=True,
        ),
        Row("its second, by that round's control variates, leaves: least distance", f"{min(stale):.2g}",
            f"> {DRIFTS:g}", bool(drifts.all())),
        Row("SCAFFOLD from x* with c_i = 0: least distance after a round", f"{min(fresh):.2g}", f"> {LEAVES:g}",
            bool(leaves.all())),
        Row("SCAFFOLD from x* with c_i = ∇f_i(x*): largest distance", f"{max(informed):.1e}", f"≤ {STAYS:g}",
            bool(rests.all())),
        premise,
    )  # fmt: skip
    words = {"clients": "20", "d": "100", "α": "10", "τ": "uniform on {2, ..., 100}", "η": "1/(6Lτ)"}
    return Outcome(
        rows,
        words | {"rounds": "2", "draws": str(len(numbers))},
        held=int((stays & leaves & drifts & rests).sum()) if arrived else 0,
        draws=len(numbers),
    )
