"""Figure 2: least squares with TOP-k at the server and no error feedback."""

import numpy as np

from fedlin import problems
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common.algorithm1 import TopK
from fedlin.claims.common.bound_check import is_algorithm_1
from fedlin.claims.common.curves import BAND, distance_panel, fall, of, straight_row
from fedlin.claims.common.figure_runs import run_levels, settings_in_words
from fedlin.claims.common.instances import draws, least_squares, least_squares_steps
from fedlin.claims.common.stability import examine
from fedlin.claims.common.wrong_methods import HOARDS, THIRD, must_notice
from fedlin.core import Array
from fedlin.plan import Plan
from fedlin.report.figure import Figure
from fedlin.report.verdict import Row

ETA_BAR = 1e-2
ALPHA = (10.0, 50.0)
LEVELS = {
    "δ = 1 (dense)": None,
    "δ = 2 (TOP-50)": TopK(50, feedback=False),
    "δ = 4 (TOP-25)": TopK(25, feedback=False),
}
LIMIT = dict(zip(LEVELS, (1e-20, 1e-20, 1e-15), strict=True))
ALIKE = 0.1  # by how much the median rates of two values of α may differ, relative


@claim(
    "fig2",
    order=420,
    title="TOP-k at the server, least squares",
    section="Figures",
    statement="η̄ = 10⁻², server TOP-k without feedback: linear to the exact minimiser, slower as δ grows, "
    "unaffected by how much the clients differ (α).",
    wrong=must_notice(
        {THIRD: "η̄ is some 60 times the step of Theorem 1, so a third of it converges as well."},
        links=True,
        without=(HOARDS,),  # there is no memory to empty
    ),
)
def check(setting: Setting) -> Outcome:
    """Final distances and rates over the draws, and how near many other draws come to failing."""
    numbers, rounds = draws(setting), setting.rounds or 60
    families = {f"α = {alpha:g}": [least_squares(n, alpha) for n in numbers] for alpha in ALPHA}
    plans = [Plan.scaled(least_squares_steps(n), ETA_BAR) for n in numbers]
    runs = run_levels(setting, LEVELS, families, plans, rounds, at_clients=False)
    arrived = {key: curves[:, -1] <= LIMIT[key[1]] for key, curves in runs.curves.items()}
    factors = {key: np.exp([-fall(curve) for curve in curves]) for key, curves in runs.curves.items()}
    levels = [*runs.of(next(iter(families)))]
    rows = []
    for (family, level), curves in runs.curves.items():
        end = float(np.median(curves[:, -1]))
        count = of(int(arrived[family, level].sum()), len(numbers))
        words = f"{end:.1e}; {count} there; × {np.median(factors[family, level]):.3f} a round"
        limit = LIMIT[level]
        rows.append(Row(f"{family}, {level}: median final ‖x̄ - x*‖²", words, f"median ≤ {limit:g}", end <= limit))
    rows.append(straight_row((curve, 1e-24) for curves in runs.curves.values() for curve in curves))
    for family in families:
        medians = [float(np.median(factors[family, level])) for level in levels]
        words = ", ".join(f"{value:.3f}" for value in medians)
        rows.append(Row(f"{family}: median factor a round", words, "rises with δ", bool(np.all(np.diff(medians) > 0))))
    few, many = families
    for level in levels:
        change = float(np.median(factors[many, level]) / np.median(factors[few, level]) - 1)
        rows.append(
            Row(f"{level}: rate at {many} against {few}", f"{change:+.1%}", f"within {ALIKE:.0%}", abs(change) <= ALIKE)
        )
    held = np.logical_and.reduce(list(arrived.values()))
    panels = tuple(distance_panel(f"TOP-k at the server, {family}", runs.of(family)) for family in families)
    findings = [] if setting.stand_in else [_survey(setting)]
    return Outcome(
        (*rows, is_algorithm_1(runs.departures)),
        settings_in_words({"clients": "20", "d": "100"}, ETA_BAR, 100, rounds, len(numbers)),
        held=int(held.sum()),
        draws=len(numbers),
        figures=(Figure("fig2", "Sparse gradients from the server still lead to x*", panels, BAND),),
        findings=(*_exceptions(np.array([factors[few, level] for level in levels]), levels), *findings),
    )


def _exceptions(factors: Array, levels: list[str]) -> list[str]:
    """Draws on which a larger δ is not slower."""
    return [
        f"Draw {n} is an exception to 'slower as δ grows': rounds multiply ‖x̄ - x*‖² by "
        + ", ".join(f"{value:.3f} ({level})" for value, level in zip(factors[:, n], levels, strict=True))
        + f". Dense rounds have {examine(least_squares(int(n)), least_squares_steps(int(n)), ETA_BAR)}."
        for n in np.flatnonzero(np.any(np.diff(factors, axis=0) <= 0, axis=0))
    ]


def _survey(setting: Setting) -> str:
    """The dense round's spectral radius on many more draws, which costs no simulation."""
    count = setting.pick(64, 8)
    instances = [examine(problems.least_squares(seed=n), least_squares_steps(n), ETA_BAR) for n in range(count)]
    wild = sum(instance.reach > 2 for instance in instances)
    fails = sum(instance.radius >= 1 for instance in instances)
    worst = max(range(count), key=lambda n: instances[n].radius)
    return (
        f"η̄ = {ETA_BAR:g} is some 60 times 1/(6L), yet the dense round fails on {of(fails, count)} (0 to {count - 1}). "
        f"On {wild} of them the local steps of some client grow (η_iL_i > 2, which takes τ_i ≤ 5), but the others "
        f"outvote it. Nearest to failing is draw {worst}: {instances[worst]}."
    )
