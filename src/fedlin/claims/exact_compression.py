"""What TOP-k costs at the server: the worst case over all functions and all compressors with the same δ.

Of the compressor no more is used than ‖C(v) - v‖² ≤ (1 - 1/δ)‖v‖². Proofs are stored and are checked here in exact
arithmetic; runs with TOP-k stay below them.
"""

from collections.abc import Sequence
from functools import cache, partial
from math import sqrt

import numpy as np

from fedlin import algorithms
from fedlin.claims.claim import EXACT, Outcome, Setting, claim
from fedlin.claims.common import exact_proofs as proofs
from fedlin.claims.common import instances
from fedlin.claims.common.algorithm1 import TopK
from fedlin.claims.common.bound_check import Case, is_algorithm_1, play
from fedlin.claims.common.wrong_methods import BY_STEPS, FORGETS, STALE, WHOLE, must_notice
from fedlin.core import Array
from fedlin.plan import Plan
from fedlin.problems.quadratic import Quadratic
from fedlin.report.figure import Curve, Figure, Panel
from fedlin.report.verdict import Row

KAPPA = proofs.CURVE_KAPPA
STEPS = np.array(proofs.SPARSE_STEPS)  # η̄L
NEAR = 0.03  # by how much a share of the rate may differ from the one stated
PLAYED = 4.0  # δ of the runs
ROUNDS = 600


@claim(
    "exact-compression",
    order=620,
    title="What TOP-k costs at the server",
    section=EXACT,
    statement="κ = 10, two local steps, any compressor with ‖C(v) - v‖² ≤ (1 - 1/δ)‖v‖² at the server. Without error "
    "feedback a round keeps the share 1 - √(1 - 1/δ) of its rate while steps are small. With feedback it keeps all of "
    "it, and has a rate only up to a step that shrinks like 1/δ. At the best step of each, feedback is slower at "
    "δ = 2 and faster at δ = 8.",
    wrong=must_notice(
        {
            STALE: "A delay of one round costs little at these steps, and the bound is an upper one.",
            WHOLE: "The whole gradient is better than a part of it, and the bound is an upper one.",
        },
        links=True,
        without=(BY_STEPS, FORGETS),  # all clients take as many steps
    ),
)
def check(setting: Setting) -> Outcome:
    """Stored proofs, checked again, and runs with TOP-k below them."""
    deltas = proofs.SPARSITY
    forgets = {delta: drops(algorithms.fedlin, delta, False) for delta in deltas}
    remembers = {delta: drops(algorithms.fedlin, delta, True) for delta in deltas}
    full = 1 - (1 - STEPS[0] / proofs.TWO / KAPPA) ** (2 * proofs.TWO)  # without any compression, at the smallest step
    rows = []
    for delta in deltas:
        theta = 1 - sqrt(1 - 1 / delta)
        share, whole = forgets[delta][0] / full, remembers[delta][0] / full
        rows += [
            Row(
                f"δ = {delta:g}: share of the rate kept without feedback, η̄ = {STEPS[0]:g}/L",
                f"{share:.4f}",
                f"{theta:.4f} up to {NEAR:.0%}",
                ok=abs(share / theta - 1) <= NEAR,
            ),
            Row(
                f"δ = {delta:g}: with feedback",
                f"{whole:.4f}",
                f"1 up to {NEAR:.0%}",
                ok=abs(whole - 1) <= NEAR,
            ),
        ]
    furthest = {delta: float(STEPS[np.isfinite(remembers[delta])].max()) for delta in deltas}
    spread = [delta * step for delta, step in furthest.items()]
    rows.append(
        Row(
            "with feedback: δ times the largest η̄L that has a rate",
            ", ".join(f"{value:.2g}" for value in spread),
            "the same within a factor of 1.5",
            ok=max(spread) <= 1.5 * min(spread),
        )
    )
    ratios = [float(np.nanmax(remembers[delta]) / np.nanmax(forgets[delta])) for delta in deltas]
    rows.append(
        Row(
            f"best drop with feedback over best drop without, δ = {', '.join(f'{delta:g}' for delta in deltas)}",
            ", ".join(f"{ratio:.2f}" for ratio in ratios),
            "the first below 1, the last above",
            ok=ratios[0] < 1 < ratios[-1],
        )
    )
    numbers = instances.draws(setting)
    families = {
        "even quadratics": [instances.even_quadratics(n, KAPPA) for n in numbers],
        "a basis each": [instances.quadratics(n, KAPPA) for n in numbers],
    }
    cases = [
        _played(setting, name, family, feedback, (remembers if feedback else forgets)[PLAYED])
        for name, family in families.items()
        for feedback in (False, True)
    ]
    held = np.logical_and.reduce([case.held for case in cases])
    return Outcome(
        (
            *rows,
            *(case.below() for case in cases),
            is_algorithm_1([departure for case in cases for departure in case.departures]),
        ),
        {"clients": "any number, two local steps", "κ": f"{KAPPA:g}", "runs": "10 clients, TOP-3 of 12 entries"},
        held=int(held.sum()),
        draws=len(held),
        figures=(_figure(forgets, remembers),),
        findings=(
            "TOP-k is not the worst compressor of its δ, which shortens v as a whole: its runs are faster than proved.",
        ),
    )


@cache
def drops(make: proofs.Maker, delta: float, feedback: bool) -> Array:
    """1 - factor at every step of `SPARSE_STEPS`; nan where nothing is proved."""
    factors: list[float | None] = []
    for step in proofs.SPARSE_STEPS:
        if feedback:
            name, search = f"feedback, δ = {delta:g}, η̄L = {step:g}", partial(proofs.sparse_rate, make, delta, step)
            factors.append(proofs.rate(name, search))
        else:
            name, case = f"plain, δ = {delta:g}, η̄L = {step:g}", partial(proofs.sparse_case, make, delta, step)
            factors.append(proofs.factor(name, case))
    return np.array([np.nan if factor is None else 1 - factor for factor in factors])


def _played(setting: Setting, name: str, family: Sequence[Quadratic], feedback: bool, drop: Array) -> Case:
    """TOP-k at the step whose proved drop is the largest, beside the proved curve."""
    best = int(np.nanargmax(drop))
    plans = [Plan(proofs.TWO, STEPS[best] / proofs.TWO / problem.smoothness) for problem in family]
    k = round(instances.DIM / PLAYED)
    runs = play(setting, family, plans, ROUNDS, down=TopK(k, feedback))
    measured = runs.curves("distance" if feedback else "gap")
    # The constant in front of a rate that a Lyapunov function proves; of a factor a round it is 1.
    constant = proofs.constant(f"feedback, δ = {PLAYED:g}, η̄L = {STEPS[best]:g}") if feedback else 1.0
    bound = constant * measured[:, :1] * (1 - drop[best]) ** np.arange(ROUNDS + 1)
    words = f"{name}, {'with' if feedback else 'without'} feedback, η̄ = {STEPS[best]:g}/L"
    return Case(words, measured, bound, runs.departures)


def _figure(forgets: dict[float, Array], remembers: dict[float, Array]) -> Figure:
    panels = tuple(
        Panel(
            f"δ = {delta:g}",
            "η̄L",
            "proved drop a round",
            (
                Curve("without feedback", STEPS, np.where(forgets[delta] > 0, forgets[delta], np.nan)),
                Curve("with feedback", STEPS, remembers[delta]),
                Curve(
                    "nothing compressed", STEPS, 1 - (1 - STEPS / proofs.TWO / KAPPA) ** (2 * proofs.TWO), kind="theory"
                ),
            ),
            "log",
        )
        for delta in forgets
    )
    return Figure("exact-compression", "What a compressor at the server costs at its worst, κ = 10", panels)
