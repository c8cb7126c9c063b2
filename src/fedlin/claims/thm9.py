"""Theorem 9: clients that send a few entries each come to a neighbourhood of x*, as wide as they are unlike."""

from collections.abc import Sequence

import numpy as np

from fedlin import algorithms, theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common import instances
from fedlin.claims.common.draws import draws, stack
from fedlin.claims.common.instances import DIM
from fedlin.claims.common.rates import Case, judge
from fedlin.claims.thm7 import KAPPA, kept
from fedlin.compressors import top_k
from fedlin.engines.simulation.simulate import simulate_many
from fedlin.links import error_feedback
from fedlin.problems.quadratic import Quadratic
from fedlin.report.figure import Figure
from fedlin.report.verdict import Row


def cases(name: str, k: int, family: Sequence[Quadratic], rounds: int) -> tuple[Case, Case]:
    """TOP-k at the clients against the bound on the squared distance and its corollary on the gap."""
    delta = DIM / k
    constants = [theory.dissimilarity(problem) for problem in family]
    plans = [
        theory.client_feedback(problem, instances.steps(n), delta, known.C)
        for n, (problem, known) in enumerate(zip(family, constants, strict=True))
    ]
    runs = simulate_many(algorithms.fedlin(uplink=error_feedback(top_k(k))), family, plans, rounds)
    far, high = [], []
    for problem, known, run in zip(family, constants, runs, strict=True):
        eta_bar = 1 / (72 * problem.smoothness * delta * known.C)
        fixed = (eta_bar, delta, known.C, known.D)
        far.append(theory.bounds.client_feedback(problem, rounds, run.distance[0], *fixed))
        high.append(theory.bounds.client_feedback_gap(problem, rounds, run.gap[0], *fixed))
    return (
        Case(f"{name}: squared distance", stack(runs, "distance", rounds), np.array(far)),
        Case(f"{name}: gap", stack(runs, "gap", rounds), np.array(high)),
    )


@claim(
    "thm9",
    order=230,
    title="TOP-k at the clients with error feedback",
    section="Compression",
    statement="Strongly convex clients with (1/m) Σ ‖∇f_i‖² ≤ C‖∇f‖² + D, each sends TOP-k of its gradient with error "
    "feedback, δ = d/k, η̄ = 1/(72LδC): ‖x̄_{T+1} - x*‖² ≤ 2(1 - ¾η̄μ)^T ‖x̄_1 - x*‖² + (16/3)η̄(6/(δC) + δ)D/μ, and "
    "f(x̄_{T+1}) - f* ≤ 2κ(1 - ¾η̄μ)^T (f(x̄_1) - f*) + (8L/3)η̄(6/(δC) + δ)D/μ.",
)
def check(setting: Setting) -> Outcome:
    """C and D exact for the quadratics at hand; unlike clients, and clients that share x*, where D = 0."""
    numbers = draws(setting)
    unlike = [instances.quadratics(n, KAPPA) for n in numbers]
    alike = [instances.quadratics(n, KAPPA, shared=True) for n in numbers]
    rounds = setting.rounds or setting.pick(8000, 2000)
    found: list[Case] = []
    rows, left = [], []
    for k in kept(setting):
        pair = cases(f"k = {k}", k, unlike, rounds)
        left.append(np.median(pair[0].measured[:, -1] / pair[0].bound[:, -1]))
        rows.append(Row(f"k = {k}: last squared distance over the bound's (median)", f"{left[-1]:.2g}"))
        found += pair
    shared = cases("k = 1, shared x*", 1, alike, rounds)
    C = [theory.dissimilarity(problem).C for problem in unlike]
    panels = (*found[::2], shared[0])
    return judge(
        [*found, *shared],
        Figure(
            "thm9",
            f"TOP-k at the clients with error feedback, κ = {KAPPA:g}, d = {DIM}",
            tuple(case.panel("‖x̄ - x*‖² / the first", bound="bound of Theorem 9") for case in panels),
        ),
        {
            "clients": f"10 quadratics, κ = {KAPPA:g}, d = {DIM}",
            "τ": "uniform on {1, ..., 10}",
            "η": "1/(72LδCτ)",
            "C": f"{min(C):.3g} to {max(C):.3g}, twice the least possible",
        },
        rows=rows,
        findings=[
            f"After {rounds} rounds with k = {kept(setting)[0]} the "
            f"squared distance is {left[0]:.1g} of what the bound allows."
        ],
        rates=False,
    )
