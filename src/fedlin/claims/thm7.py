"""Theorem 7: the server may send a few entries of the gradient, forget the rest, and x* is still reached."""

from collections.abc import Callable
from functools import partial
from typing import Any

from numpy.typing import NDArray

from fedlin import algorithms, theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common import instances
from fedlin.claims.common.draws import draws
from fedlin.claims.common.instances import DIM
from fedlin.claims.common.rates import Case, compare, judge
from fedlin.compressors import Compressor, top_k
from fedlin.links import Link, plain
from fedlin.plan import Plan
from fedlin.problems.problem import Problem
from fedlin.report.figure import Figure

KAPPA = 5.0


def kept(setting: Setting) -> tuple[int, ...]:
    """k = d/2, d/4 and 1; the last alone on a quick run, since every k is a program to compile."""
    return setting.pick((DIM // 2, DIM // 4, 1), (1,))


def cases(
    setting: Setting,
    link: Callable[[Compressor], Link],
    plan: Callable[[Problem, Any, float], Plan],
    bound: Callable[..., NDArray[Any]],
    per_delta: int,
) -> list[Case]:
    """Server-side TOP-k through `link`, one case a k, with rounds in proportion to δ = d/k as the rates are."""
    numbers = draws(setting)
    family = [instances.quadratics(n, KAPPA) for n in numbers]
    found = []
    for k in kept(setting):
        delta = DIM / k
        plans = [plan(p, instances.steps(n), delta) for n, p in zip(numbers, family, strict=True)]
        algorithm = algorithms.fedlin(downlink=link(top_k(k)))
        rounds = setting.rounds or int(per_delta * delta)
        limit = partial(bound, delta=delta)
        found.append(compare(f"k = {k}, δ = {delta:g}", algorithm, family, plans, rounds, limit))
    return found


def without_feedback(setting: Setting) -> list[Case]:
    """Theorem 7's own cases."""
    return cases(setting, plain, theory.server_sparse, theory.bounds.server_sparse, setting.pick(250, 60))


@claim(
    "thm7",
    order=210,
    title="TOP-k at the server, nothing remembered",
    section="Compression",
    statement="Strongly convex clients, the server sends TOP-k of the mean gradient without error feedback, δ = d/k, "
    "η_i = 1/(2(2+√δ)Lτ_i): f(x̄_{T+1}) - f* ≤ (1 - 1/(2δ(2+√δ)κ))^T (f(x̄_1) - f*), down to k = 1.",
)
def check(setting: Setting) -> Outcome:
    """Every round against the bound, k from half the entries to a single one."""
    found = without_feedback(setting)
    panels = tuple(case.panel("gap / first gap", bound="bound of Theorem 7") for case in found)
    return judge(
        found,
        Figure("thm7", f"TOP-k at the server without error feedback, κ = {KAPPA:g}, d = {DIM}", panels),
        {"clients": f"10 quadratics, κ = {KAPPA:g}, d = {DIM}", "τ": "uniform on {1, ..., 10}", "η": "1/(2(2+√δ)Lτ)"},
    )
