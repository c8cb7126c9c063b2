"""Theorem 7: the server may send a few entries of the gradient, forget the rest, and x* is still reached."""

from collections.abc import Callable, Sequence
from functools import partial
from math import ceil, log, sqrt
from typing import NamedTuple

from fedlin import theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common import instances
from fedlin.claims.common.algorithm1 import TopK
from fedlin.claims.common.bound_check import Case, case_figure, judge, lengths, play
from fedlin.claims.common.instances import DIM
from fedlin.claims.common.wrong_methods import HOARDS, LONGER, STALE, TRIPLE, WHOLE, must_notice
from fedlin.core import Array
from fedlin.plan import Plan
from fedlin.problems.problem import Problem

DEPTH = 1e-4  # of the start, which the bound is to fall to
L2 = 0.5


class SparseFamily(NamedTuple):
    """Instances, how many entries are sent of how many, and κ."""

    name: str
    members: Sequence[Problem]
    k: int

    @property
    def delta(self) -> float:
        """δ = d/k."""
        return self.members[0].dim / self.k

    @property
    def condition(self) -> float:
        """The largest κ."""
        return max(problem.condition for problem in self.members)


def families(setting: Setting, kappa: float) -> list[SparseFamily]:
    """Quadratics on which TOP-k leaves out the most it can, k from half the entries to one, and logistic regression."""
    numbers = instances.draws(setting)
    even = [instances.even_quadratics(n, kappa, pull=300) for n in numbers]
    sizes = setting.pick((DIM // 2, DIM // 4, 1), (DIM // 4,))  # every k is a program to compile
    chosen = [SparseFamily(f"quadratics, d = {DIM}, k = {k}", even, k) for k in sizes]
    if not setting.quick:
        rows = [instances.small_logistic(n, L2) for n in numbers]
        chosen.append(SparseFamily(f"logistic regression, d = 10, l2 = {L2:g}, k = 5", rows, 5))
    return chosen


def run_family(
    setting: Setting,
    family: SparseFamily,
    plan: Callable[[Problem, Array, float], Plan],
    bound: Callable[..., Array],
    rounds: int,
    feedback: bool,
) -> Case:
    """Server-side TOP-k against a theorem's bound on the gap."""
    plans = [plan(p, instances.steps(n), family.delta) for n, p in enumerate(family.members)]
    runs = play(setting, family.members, plans, rounds, down=TopK(family.k, feedback))
    bounds = runs.bounds(partial(bound, delta=family.delta), "gap")
    return Case(family.name, runs.curves("gap"), bounds, runs.departures)


def without_feedback(setting: Setting) -> list[Case]:
    """Theorem 7's own cases; in the last, of many entries, error feedback would not stay below the bound."""
    wide = [instances.even_quadratics(n, 1.1, 96, pull=30) for n in instances.draws(setting)]
    cases = []
    for family, limit in [
        *((family, None) for family in families(setting, 2.0)),
        (SparseFamily("quadratics, d = 96, κ = 1.1, k = 1", wide, 1), 800),
    ]:
        promised = 2 * family.delta * (2 + sqrt(family.delta)) * family.condition
        rounds = setting.rounds or limit or ceil(-log(DEPTH) * promised)
        cases.append(run_family(setting, family, theory.server_sparse, theory.bounds.server_sparse, rounds, False))
    return cases


@claim(
    "thm7",
    order=210,
    title="TOP-k at the server, nothing remembered",
    section="Compression",
    statement="Strongly convex clients, the server sends TOP-k of the mean gradient without error feedback, δ = d/k, "
    "η_i = 1/(2(2+√δ)Lτ_i): f(x̄_{T+1}) - f* ≤ (1 - 1/(2δ(2+√δ)κ))^T (f(x̄_1) - f*), down to k = 1.",
    wrong=must_notice(
        {
            TRIPLE: LONGER,
            STALE: "The gradient of the round before points almost the same way at this step.",
            WHOLE: "The whole gradient is better than a part of it, and the bound is an upper one.",
        },
        links=True,
        without=(HOARDS,),  # there is no memory to empty
    ),
)
def check(setting: Setting) -> Outcome:
    """Every round against the bound, k from half the entries to a single one."""
    cases = without_feedback(setting)
    return judge(
        cases,
        case_figure("thm7", "TOP-k at the server without feedback", cases, bound="bound of Theorem 7"),
        {"clients": "10", "κ of the first quadratics": "2", "τ": "uniform on {1, ..., 10}", "η": "1/(2(2+√δ)Lτ)"}
        | {"rounds": lengths(cases)},
    )
