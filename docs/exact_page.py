"""Write docs/exact.md and its pictures from what the exact theory computes: `python docs/exact_page.py`, some minutes.

Needs the extra fedlin[exact]. What was computed is kept in docs/pictures/exact.json.
"""

import json
from math import log, sqrt
from pathlib import Path
from typing import Any

import numpy as np

import fedlin
from fedlin import Plan, plain, theory
from fedlin.report.figure import Curve, Figure, Panel
from fedlin.report.matplotlib_figures import save
from fedlin.theory.certified import choose
from fedlin.theory.exact import (
    Dissimilar,
    PolyakLojasiewicz,
    Smooth,
    UnboundedError,
    contraction,
    lyapunov,
    scaffnew_rate,
    worst_case,
)

HOME = Path(__file__).parent
FEDLIN = fedlin.fedlin()
PAPER = 1 / 6  # η̄L of Theorem 1
TABLE_STEPS = (PAPER, 1.0, 2.0, 3.0, 5.0, 6.0, 8.0)
TABLE_TAU = ((1, 1), (2, 2), (5, 5), (20, 20), (1, 20))
CURVE_TAU = (1, 2, 3, 5, 12)
CURVE_STEPS = (PAPER, *np.arange(0.5, 8.01, 0.5).tolist())
LIMIT_KAPPA, LIMIT_TAU = (3.0, 10.0, 100.0, 1000.0), (1, 2, 3, 4, 8)
KAPPAS = (2.0, 4.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
DELTA, SIMILAR = 4.0, 2.0
SENT = (2.0, 4.0, 8.0)  # δ
SPARSE_STEPS = (0.03, 0.06, 0.09, 0.125, 0.18, 0.25, 0.35, 0.5, 0.7, 1.0)


def factor(tau: tuple[int, ...], eta_bar: float, kappa: float) -> float:
    """The proved factor of ‖x - x*‖² in a round."""
    return worst_case(FEDLIN, Plan(np.array(tau), eta_bar / np.array(tau)), Smooth(1.0, 1 / kappa)).factor


def full_rate_limit(tau: int, kappa: float) -> float:
    """The largest η̄L at which the exact factor is (1 - ημ)^{2τ}, by bisection."""
    low, high = 1.0, 8.0
    while high - low > 2e-3:
        middle = (low + high) / 2
        full = (1 - middle / tau / kappa) ** (2 * tau)
        exact = worst_case(FEDLIN, Plan(tau, middle / tau), Smooth(1.0, 1 / kappa)).solved
        low, high = (middle, high) if exact <= full + 1e-6 * (1 - full) else (low, middle)
    return low


def looseness(kappa: float) -> dict[str, float]:
    """How many times faster than promised each theorem's own step is: drops 1 - factor over those promised."""
    smooth, root = Smooth(1.0, 1 / kappa), sqrt(DELTA)
    half = 1 / 2  # two local steps
    one = worst_case(FEDLIN, Plan(2, half / 6), smooth, measure="gap").factor
    four = worst_case(FEDLIN, Plan(2, half / 26), PolyakLojasiewicz(1.0, 1 / kappa), measure="gap").factor
    sparse = fedlin.fedlin(downlink=plain(contraction(DELTA)))
    seven = worst_case(sparse, Plan(2, half / (2 * (2 + root))), smooth, measure="gap").factor
    eight = lyapunov(fedlin.fedlin(downlink=contraction(DELTA)), Plan(2, half / (72 * DELTA)), smooth)
    nine = lyapunov(
        fedlin.fedlin(uplink=contraction(DELTA)),
        Plan(2, half / (72 * DELTA * SIMILAR)),
        Dissimilar(1.0, 1 / kappa, SIMILAR),
        shared_minimizer=True,
    )
    return {
        "Theorem 1": (1 - one) * 6 * kappa,
        "Theorem 4": (1 - four) * 26 * kappa,
        "Theorem 7": (1 - seven) * 2 * DELTA * (2 + root) * kappa,
        "Theorem 8": (1 - eight.rate) * 96 * DELTA * kappa,
        "Theorem 9": (1 - nine.rate) * 96 * DELTA * SIMILAR * kappa,
    }


def convex(rounds: int) -> dict[str, float]:
    """f - f* over L‖x̄_1 - x*‖² after so many rounds: exact, and what Theorem 2 promises at the most."""
    smooth = Smooth(1.0)
    options: dict[str, Any] = {"measure": "gap", "before": "distance", "rounds": rounds}
    return {
        "mean": worst_case(FEDLIN, Plan(2, 1 / 20), smooth, model="mean", **options).factor,
        "mean promised": 10 / rounds,
        "last": worst_case(FEDLIN, Plan(2, 1 / 12), smooth, **options).factor,
        "last promised": 0.5 / (rounds / 24 + 1),
    }


def sparse_rates(delta: float) -> dict[str, list[float | None]]:
    """Per step η̄L: the factor of the gap without feedback, and the rate with it; κ = 10, two local steps."""
    smooth = Smooth(1.0, 0.1)
    forgets, remembers = fedlin.fedlin(downlink=plain(contraction(delta))), fedlin.fedlin(downlink=contraction(delta))
    found: dict[str, list[float | None]] = {"plain": [], "feedback": []}
    for eta_bar in SPARSE_STEPS:
        found["plain"].append(worst_case(forgets, Plan(2, eta_bar / 2), smooth, measure="gap").factor)
        try:
            found["feedback"].append(lyapunov(remembers, Plan(2, eta_bar / 2), smooth).rate)
        except UnboundedError:
            found["feedback"].append(None)
    return found


def compute() -> dict[str, Any]:
    """Everything the page tells, as numbers."""
    return {
        "table": [[factor(tau, step, 10.0) for step in TABLE_STEPS] for tau in TABLE_TAU],
        "curves": [[factor((tau, tau), step, 10.0) for step in CURVE_STEPS] for tau in CURVE_TAU],
        "limits": [[full_rate_limit(tau, kappa) for tau in LIMIT_TAU] for kappa in LIMIT_KAPPA],
        "looseness": {f"{kappa:g}": looseness(kappa) for kappa in LIMIT_KAPPA},
        "convex": {str(rounds): convex(rounds) for rounds in (1, 2, 4, 8)},
        "scaffnew": [
            scaffnew_rate(Plan(max(1, round(sqrt(kappa))), 1.0), Smooth(1.0, 1 / kappa)).rate for kappa in KAPPAS
        ],
        "sparse": {f"{delta:g}": sparse_rates(delta) for delta in SENT},
    }


def steps_picture(found: dict[str, Any]) -> Figure:
    """The factor against the step, for several numbers of local steps."""
    x = np.array(CURVE_STEPS)
    curves = []
    for tau, factors in zip(CURVE_TAU, found["curves"], strict=True):
        y = np.array(factors)
        curves.append(Curve(f"τ = {tau}", x, np.where(y <= 1.05, y, np.nan)))
    curves.append(Curve("Theorem 1's promise", x[:1], np.array([1 - 1 / 60]), kind="points"))
    panel = Panel(
        "κ = 10, any number of equal clients", "η̄L", "factor of ‖x - x*‖² a round", tuple(curves), yscale="linear"
    )
    return Figure("exact-steps", "What a round of FedLin does at its worst", (panel,))


def kappa_picture(found: dict[str, Any]) -> Figure:
    """Rounds a factor of e of the squared distance takes, against κ."""
    x = np.array(KAPPAS)
    rates = {
        "Theorem 1": -np.log1p(-1 / (6 * x)),
        "gradient descent, best step": -2 * np.log((x - 1) / (x + 1)),
        "FedLin, certified": np.array([-log(choose(kappa, np.array([5, 5])).factor) for kappa in KAPPAS]),
        "Scaffnew, √κ local steps": -np.log(found["scaffnew"]),
    }
    curves = tuple(Curve(name, x, 1 / rate) for name, rate in rates.items())
    panel = Panel("proved, for the worst functions", "condition number κ", "rounds a factor e takes", curves, "log")
    return Figure("exact-kappa", "Guaranteed rounds against the condition number", (panel,))


def table(header: list[str], rows: list[list[str]]) -> str:
    """Markdown."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def tables(found: dict[str, Any]) -> dict[str, str]:
    """What the page's text leaves open."""
    sizes = ["1/(6L)", *(f"{step:g}/L" for step in TABLE_STEPS[1:])]
    exact = [
        [", ".join(map(str, tau)), *(f"{value:.4f}" for value in row)]
        for tau, row in zip(TABLE_TAU, found["table"], strict=True)
    ]
    limits = [
        [f"{kappa:g}", *(f"{value:.2f}" for value in row)]
        for kappa, row in zip(LIMIT_KAPPA, found["limits"], strict=True)
    ]
    loose = found["looseness"]
    names = list(next(iter(loose.values())))
    looseness_rows = [[name, *(f"{loose[kappa][name]:.2f}" for kappa in loose)] for name in names]
    certified = []
    for kappa in (2.0, 10.0, 100.0, 1000.0, 1e5):
        row = [f"{kappa:g}"]
        for tau in ((2, 2), (5, 5), (20, 50), (1, 20)):
            best = choose(kappa, np.array(tau))
            row.append(f"{best.eta_bar:g}/L, {6 * kappa * -log(best.factor):.0f} ×")
        certified.append(row)
    convex_rows = [
        [rounds, *(f"{values[key]:.4f}" for key in ("last", "last promised", "mean", "mean promised"))]
        for rounds, values in found["convex"].items()
    ]
    sparse = []
    for delta, rates in found["sparse"].items():
        drops = {
            kind: [(1 - value, step) for value, step in zip(values, SPARSE_STEPS, strict=True) if value is not None]
            for kind, values in rates.items()
        }
        best = {kind: max(each) for kind, each in drops.items()}
        small = rates["plain"][0]
        assert small is not None
        sparse.append(
            [
                delta,
                f"{(1 - small) / (1 - (1 - 0.1 * SPARSE_STEPS[0] / 2) ** 4):.3f}",
                f"{1 - sqrt(1 - 1 / float(delta)):.3f}",
                f"{best['plain'][0]:.4f} at {best['plain'][1]:g}/L",
                f"{best['feedback'][0]:.4f} at {best['feedback'][1]:g}/L",
            ]
        )
    return {
        "exact": table(["τ of the clients", *sizes], exact),
        "limits": table(["κ", *(f"τ = {tau}" for tau in LIMIT_TAU)], limits),
        "looseness": table(["", *(f"κ = {kappa}" for kappa in loose)], looseness_rows),
        "certified": table(["κ", "τ = 2, 2", "τ = 5, 5", "τ = 20, 50", "τ = 1, 20"], certified),
        "convex": table(["rounds T", "last model", "promised", "mean of the models", "promised"], convex_rows),
        "sparse": table(
            ["δ", "share of the rate left, small steps", "1 - √(1 - 1/δ)", "best drop, forgets", "best drop, feedback"],
            sparse,
        ),
    }


def main() -> None:
    """Compute, draw and write."""
    kept = HOME / "pictures" / "exact.json"
    if not kept.exists():
        kept.write_text(json.dumps(compute()) + "\n", encoding="utf-8")
    found = json.loads(kept.read_text(encoding="utf-8"))
    for figure in (steps_picture(found), kappa_picture(found)):
        png, _ = save(figure, HOME / "pictures")
        png.unlink()
    text = (HOME / "exact_page.txt").read_text(encoding="utf-8")
    for name, content in tables(found).items():
        text = text.replace(f"{{{{{name}}}}}", content)
    (HOME / "exact.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
