"""Figure 2: least squares with TOP-k at the server and no error feedback."""

import numpy as np

from fedlin import algorithms, problems
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common.draws import (
    BAND,
    Array,
    distance_panel,
    draws,
    extremes,
    least_squares,
    least_squares_steps,
    of,
    rate,
    sweep,
)
from fedlin.claims.common.stability import examine
from fedlin.compressors import top_k
from fedlin.links import plain
from fedlin.plan import Plan
from fedlin.report.figure import Figure
from fedlin.report.verdict import Row

ETA_BAR = 1e-2
ALPHA = (10.0, 50.0)
METHODS = {
    "δ = 1 (dense)": algorithms.fedlin(),
    "δ = 2 (TOP-50)": algorithms.fedlin(downlink=plain(top_k(50))),
    "δ = 4 (TOP-25)": algorithms.fedlin(downlink=plain(top_k(25))),
}
LIMIT = dict(zip(METHODS, (1e-20, 1e-20, 1e-15), strict=True))
ALIKE = 0.1  # by how much the median rates of two values of α may differ, relative


@claim(
    "fig2",
    order=420,
    title="TOP-k at the server, least squares",
    section="Figures",
    statement="η̄ = 10⁻², server TOP-k without feedback: linear to the exact minimiser, slower as δ grows, "
    "unaffected by how much the clients differ (α).",
)
def check(setting: Setting) -> Outcome:
    """Final distances and rates over the draws, and how near many other draws come to failing."""
    numbers, rounds, methods = draws(setting), setting.rounds or 60, extremes(setting, METHODS)
    families = {f"α = {alpha:g}": [least_squares(n, alpha) for n in numbers] for alpha in ALPHA}
    plans = [Plan.scaled(least_squares_steps(n), ETA_BAR) for n in numbers]
    found = sweep(methods, families, plans, rounds)
    arrived = {key: curves[:, -1] <= LIMIT[key[1]] for key, curves in found.items()}
    rates = {key: np.array([rate(curve) for curve in curves]) for key, curves in found.items()}
    rows = []
    for (family, method), curves in found.items():
        end = float(np.median(curves[:, -1]))
        count = of(int(arrived[family, method].sum()), len(numbers))
        told = f"{end:.1e}; {count} there; × {np.median(rates[family, method]):.3f} a round"
        limit = LIMIT[method]
        rows.append(Row(f"{family}, {method}: median final ‖x̄ - x*‖²", told, f"median ≤ {limit:g}", end <= limit))
    for family in families:
        medians = [float(np.median(rates[family, method])) for method in methods]
        told = ", ".join(f"{value:.3f}" for value in medians)
        rows.append(Row(f"{family}: median factor a round", told, "rises with δ", bool(np.all(np.diff(medians) > 0))))
    few, many = families
    for method in methods:
        change = float(np.median(rates[many, method]) / np.median(rates[few, method]) - 1)
        told = f"{change:+.1%}"
        rows.append(Row(f"{method}: rate at {many} against {few}", told, f"within {ALIKE:.0%}", abs(change) <= ALIKE))
    held = np.logical_and.reduce(list(arrived.values()))
    panels = tuple(
        distance_panel(f"TOP-k at the server, {family}", {method: found[family, method] for method in methods})
        for family in families
    )
    return Outcome(
        tuple(rows),
        {"clients": "20", "d": "100", "η̄": f"{ETA_BAR:g}", "τ": "uniform on {2, ..., 100}"}
        | {"rounds": str(rounds), "draws": str(len(numbers))},
        held=int(held.sum()),
        draws=len(numbers),
        figures=(Figure("fig2", "Sparse gradients from the server still lead to x*", panels, BAND),),
        findings=(*_exceptions(np.array([rates[few, method] for method in methods]), list(methods)), _survey(setting)),
    )


def _exceptions(rates: Array, methods: list[str]) -> list[str]:
    """Draws on which a larger δ is not slower."""
    return [
        f"Draw {n} is an exception to 'slower as δ grows': rounds multiply ‖x̄ - x*‖² by "
        + ", ".join(f"{value:.3f} ({method})" for value, method in zip(rates[:, n], methods, strict=True))
        + f". Dense rounds have {examine(least_squares(int(n)), least_squares_steps(int(n)), ETA_BAR)}."
        for n in np.flatnonzero(np.any(np.diff(rates, axis=0) <= 0, axis=0))
    ]


def _survey(setting: Setting) -> str:
    """The dense round's spectral radius on many more draws, which costs no simulation."""
    count = setting.pick(64, 8)
    seen = [examine(problems.least_squares(seed=n), least_squares_steps(n), ETA_BAR) for n in range(count)]
    wild = sum(one.reach > 2 for one in seen)
    fails = sum(one.radius >= 1 for one in seen)
    worst = max(range(count), key=lambda n: seen[n].radius)
    return (
        f"η̄ = {ETA_BAR:g} is some 60 times 1/(6L), yet the dense round fails on {of(fails, count)} (0 to {count - 1}). "
        f"On {wild} of them the local steps of some client grow (η_iL_i > 2, which takes τ_i ≤ 5), but the others "
        f"outvote it. Nearest to failing is draw {worst}: {seen[worst]}."
    )
