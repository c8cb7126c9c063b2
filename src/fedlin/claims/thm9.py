"""Theorem 9: clients that send a few entries each come to a neighbourhood of x*, as wide as they are unlike."""

from collections.abc import Sequence
from math import ceil, log
from typing import NamedTuple

import numpy as np

from fedlin import theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common import instances
from fedlin.claims.common.algorithm1 import TopK
from fedlin.claims.common.bound_check import Case, case_figure, judge, lengths, play
from fedlin.claims.common.instances import DIM
from fedlin.claims.common.wrong_methods import FEDAVG, LATE_FEDAVG, LONGER, SIGN, STALE, TRIPLE, WHOLE, must_notice
from fedlin.problems.problem import Problem
from fedlin.report.verdict import Row
from fedlin.theory.dissimilarity import Dissimilarity

KAPPA = 1.2
EXACT = 1e-12  # of the start: what the bound, and so the model, is to come to where D = 0
NEAR = 5e-4  # the same where D > 0
SLOW_AND_FAST = np.resize((1, 10), instances.CLIENTS)  # τ where D > 0, so that to weigh clients by it is a large fault
DRIFT = (
    "A client's drift within a round is of the order of η̄ gradients, far inside the neighbourhood that the statement "
    "allows; where D = 0 there is none at x*."
)


class DissimilarFamily(NamedTuple):
    """Instances with their C and D, and how far the bound is to fall."""

    name: str
    members: Sequence[Problem]
    constants: list[Dissimilarity]
    k: int
    depth: float


def families(setting: Setting) -> list[DissimilarFamily]:
    """Clients that pull a little (D > 0), clients that share x*, and identical ones whose loss is not quadratic."""
    numbers = instances.draws(setting)
    alike = [instances.even_quadratics(n, KAPPA) for n in numbers]
    unlike = [instances.even_quadratics(n, KAPPA, pull=0.36) for n in numbers]
    least = [1.01 * theory.dissimilarity(p).C / 2 for p in alike]  # twice the least possible unless given
    same = [theory.dissimilarity(p, C)._replace(D=0.0) for p, C in zip(alike, least, strict=True)]  # but for rounding
    unequal = [theory.dissimilarity(p, 4.0) for p in unlike]
    chosen = [
        DissimilarFamily(f"quadratics, D = 0, k = {DIM // 4}", alike, same, DIM // 4, EXACT),
        DissimilarFamily(f"quadratics, D > 0, k = {DIM // 4}", unlike, unequal, DIM // 4, NEAR),
    ]
    if not setting.quick:
        rows = [instances.small_logistic(n, 0.5, identical=True) for n in numbers]
        chosen += [
            DissimilarFamily("quadratics, D > 0, k = 1", unlike, unequal, 1, NEAR),
            DissimilarFamily("logistic regression, D = 0, k = 5", rows, [Dissimilarity(1.0, 0.0)] * len(rows), 5, NEAR),
        ]
    return chosen


def cases(setting: Setting, family: DissimilarFamily) -> tuple[Case, Case]:
    """TOP-k at the clients against the bound on the squared distance and its corollary on the gap."""
    delta = family.members[0].dim / family.k
    pace = max(96 * delta * known.C * p.condition for p, known in zip(family.members, family.constants, strict=True))
    rounds = setting.rounds or ceil((log(2 * KAPPA) - log(family.depth)) * pace)
    plans = [
        theory.client_feedback(problem, SLOW_AND_FAST if known.D else instances.steps(n), delta, known.C)
        for n, (problem, known) in enumerate(zip(family.members, family.constants, strict=True))
    ]
    runs = play(setting, family.members, plans, rounds, up=TopK(family.k, feedback=True))
    far, high = [], []
    for problem, known, run in zip(family.members, family.constants, runs.runs, strict=True):
        fixed = (1 / (72 * problem.smoothness * delta * known.C), delta, known.C, known.D)
        far.append(theory.bounds.client_feedback(problem, rounds, run.distance[0], *fixed))
        high.append(theory.bounds.client_feedback_gap(problem, rounds, run.gap[0], *fixed))
    return (
        Case(f"{family.name}: squared distance", runs.curves("distance"), np.array(far), runs.departures),
        Case(f"{family.name}: gap", runs.curves("gap"), np.array(high), runs.departures),
    )


@claim(
    "thm9",
    order=230,
    title="TOP-k at the clients with error feedback",
    section="Compression",
    statement="Strongly convex clients with (1/m) Σ ‖∇f_i‖² ≤ C‖∇f‖² + D, each sends TOP-k of its gradient with error "
    "feedback, δ = d/k, η̄ = 1/(72LδC): ‖x̄_{T+1} - x*‖² ≤ 2(1 - ¾η̄μ)^T ‖x̄_1 - x*‖² + (16/3)η̄(6/(δC) + δ)D/μ, and "
    "f(x̄_{T+1}) - f* ≤ 2κ(1 - ¾η̄μ)^T (f(x̄_1) - f*) + (8L/3)η̄(6/(δC) + δ)D/μ.",
    wrong=must_notice(
        {
            TRIPLE: LONGER,
            STALE: "At a step of 1/(72LδC) a delay of one round is nothing beside the delay of the feedback itself.",
            WHOLE: "Feedback sends everything in the end, so at this step whole gradients do no worse.",
            FEDAVG: DRIFT,
            LATE_FEDAVG: DRIFT,
            SIGN: DRIFT,
        },
        links=True,
    ),
)
def check(setting: Setting) -> Outcome:
    """C and D exact; to 10⁻¹² of the start where D = 0, to the neighbourhood where it is not."""
    pairs = [cases(setting, family) for family in families(setting)]
    judged = [case for pair in pairs for case in pair]
    exact = pairs[0][0].measured
    last = float(np.max(exact[:, -1] / exact[:, 0]))
    C = [known.C for family in families(setting) for known in family.constants]
    return judge(
        judged,
        case_figure(
            "thm9",
            "TOP-k at the clients with error feedback",
            judged[::2],
            "‖x̄ - x*‖² / the first",
            bound="bound of Theorem 9",
        ),
        {"clients": "10", "κ of the quadratics": f"{KAPPA:g}", "τ": "uniform on {1, ..., 10}, 1 and 10 where D > 0"}
        | {"η": "1/(72LδCτ)"}
        | {"C": f"{min(C):.3g} to {max(C):.3g}", "rounds": lengths(judged[::2])},
        rows=[Row("D = 0: last squared distance over the first", f"{last:.1e}", f"at most {EXACT:g}", last <= EXACT)],
    )
