"""Section 4: FedLin's rate beside SCAFFOLD's, FedSplit's and that of a centralised baseline, as local steps grow."""

from functools import cache
from typing import NamedTuple

import numpy as np

from fedlin import algorithms, theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common import instances
from fedlin.claims.common.algorithm1 import departure
from fedlin.claims.common.bound_check import CAPTION, Departure, is_algorithm_1
from fedlin.claims.common.curves import fall, floors, stack, summary, thin
from fedlin.claims.common.wrong_methods import BY_STEPS, DELAYED, FORGETS, STALE, must_notice
from fedlin.core import Array, Method
from fedlin.engines.simulation.simulate import simulate_many
from fedlin.plan import Plan
from fedlin.report.figure import Curve, Figure, Panel
from fedlin.report.verdict import Row

KAPPA = 10.0
STEPS = (1, 5, 25)  # H
INNER = (12, 18)  # e, FedSplit's gradient steps in place of its proximal operator
ROUNDS = 1500
EVEN = 0.05  # by how much rates may differ and still count as the same, relative
EXACT = 1e-20  # of the first squared distance


@claim(
    "rivals",
    order=118,
    title="Rates beside SCAFFOLD, FedSplit and a centralised baseline",
    section="Rates without compression",
    statement="On strongly convex clients with their own minimisers FedLin's rate is that of SCAFFOLD at the same "
    "steps. The number of local steps H is in neither's rate, nor in that of FedSplit, which with inexact proximal "
    "steps stops at a floor where FedLin does not. A centralised baseline that takes H synchronised steps a round is "
    "faster by a factor of H in the exponent.",
    wrong=must_notice(
        {STALE: DELAYED},
        without=(BY_STEPS, FORGETS),  # all clients take H steps
    ),
)
def check(setting: Setting) -> Outcome:
    """Rates by the fall of log ‖x̄ - x*‖² a round; FedLin and SCAFFOLD with η = 1/(6LH), the baseline with 1/L."""
    numbers, rounds = instances.draws(setting), setting.rounds or ROUNDS
    family = [instances.even_quadratics(n, KAPPA, pull=300) for n in numbers]

    plans = {H: [theory.strongly_convex(p, np.full(instances.CLIENTS, H)) for p in family] for H in STEPS}
    runs = {H: simulate_many(setting.fedlin(), family, plans[H], rounds) for H in STEPS}
    mine = np.array([stack(runs[H], "distance", rounds) for H in STEPS])  # (H, draws, rounds + 1)
    theirs, central, splits = others(numbers, rounds)
    linear, scaffold = (np.array([[fall(c) for c in curves] for curves in both]) for both in (mine, theirs))
    baseline = np.array([[H * fall(c) for c in central] for H in STEPS])  # H of its steps make a round
    ratio = scaffold / linear
    price = _slope(baseline / linear)
    reached = np.max(mine[:, :, -1] / mine[:, :, 0], axis=0)
    floor = {e: floors(curves) / curves[:, 0] for e, curves in splits.items()}
    split = np.array([[fall(c, 1e3 * f) for c, f in zip(splits[e], floor[e], strict=True)] for e in INNER])
    checks = {
        f"FedLin, H = {_list(STEPS)}: fall a round (median)": (_medians(linear), *_even(linear)),
        f"SCAFFOLD, H = {_list(STEPS)}: fall a round (median)": (_medians(scaffold), *_even(scaffold)),
        f"FedSplit, e = {_list(INNER)}: fall a round until near its floor (median)": (_medians(split), *_even(split)),
        "SCAFFOLD's rate over FedLin's": (
            f"{ratio.min():.3f} to {ratio.max():.3f}",
            f"1 ± {EVEN:g}",
            np.all(np.abs(ratio - 1) <= EVEN, axis=0),
        ),
        "centralised over FedLin's rate goes with H to the power": (
            f"{price.min():.3f} to {price.max():.3f}",
            f"1 ± {EVEN:g}",
            np.abs(price - 1) <= EVEN,
        ),
        "FedLin: last squared distance over the first (largest)": (
            f"{reached.max():.1e}",
            f"at most {EXACT:g}",
            reached <= EXACT,
        ),
        f"FedSplit, e = {_list(INNER)}: floor over the first (median)": (
            ", ".join(f"{np.median(floor[e]):.1e}" for e in INNER),
            "1000 times FedLin's end",
            np.all([floor[e] > 1e3 * reached for e in INNER], axis=0),
        ),
    }
    rows = [Row(what, words, expected, bool(np.all(ok))) for what, (words, expected, ok) in checks.items()]
    departures = [Departure(*departure(family[0], plans[H][0], runs[H][0].iterates), 0) for H in STEPS]
    shown = {f"FedLin, H = {H}": mine[k] for k, H in enumerate(STEPS)}
    shown |= {f"SCAFFOLD, H = {STEPS[-1]}": theirs[-1], **{f"FedSplit, e = {e}": splits[e] for e in INNER}}
    panel = Panel(
        f"Quadratics, κ = {KAPPA:g}",
        "communication round",
        "‖x̄ - x*‖² / the first",
        tuple(_curve(label, curves) for label, curves in shown.items()),
    )
    return Outcome(
        (*rows, is_algorithm_1(departures)),
        {"clients": f"10 quadratics, d = 12, κ = {KAPPA:g}", "η": "1/(6LH)", "FedSplit": "s = 1/√(Lμ)"}
        | {"baseline": "η = 1/L", "rounds": str(rounds), "draws": str(len(numbers))},
        held=int(np.logical_and.reduce([ok for _, _, ok in checks.values()]).sum()),
        draws=len(numbers),
        figures=(Figure("rivals", "FedLin beside SCAFFOLD and FedSplit", (panel,), CAPTION),),
    )


class Others(NamedTuple):
    """‖x̄ - x*‖² of the methods beside FedLin, each (draws, rounds + 1)."""

    scaffold: Array  # with an axis for H before the others
    centralised: Array
    fedsplit: dict[int, Array]  # by e


@cache
def others(numbers: range, rounds: int) -> Others:
    """Their runs, once for whatever is tested in FedLin's place."""
    family = [instances.even_quadratics(n, KAPPA, pull=300) for n in numbers]

    def curves_of(method: Method, plans: list[Plan]) -> Array:
        return stack(simulate_many(method, family, plans, rounds), "distance", rounds)

    steps = [np.full(instances.CLIENTS, H) for H in STEPS]
    return Others(
        np.array([curves_of(algorithms.scaffold(), [theory.strongly_convex(p, H) for p in family]) for H in steps]),
        curves_of(algorithms.gradient_descent(), [Plan(1, 1 / p.smoothness) for p in family]),
        {e: curves_of(algorithms.fedsplit(steps=e), [theory.fedsplit(p) for p in family]) for e in INNER},
    )


def _even(rates: Array) -> tuple[str, Array]:
    """What is expected of rates (values of H, draws), and which draws have them equal."""
    return f"equal to {EVEN:.0%}", np.ptp(rates, axis=0) <= EVEN * np.abs(rates[0])


def _slope(ratios: Array) -> Array:
    """The exponent of H in each draw's ratio; NaN where a rate is not positive."""
    good = np.all(ratios > 0, axis=0)
    return np.where(good, np.polyfit(np.log(STEPS), np.log(np.where(good, ratios, 1)), 1)[0], np.nan)


def _list(values: tuple[int, ...]) -> str:
    return ", ".join(map(str, values))


def _medians(rates: Array) -> str:
    return ", ".join(f"{value:.4f}" for value in np.median(rates, axis=1))


def _curve(label: str, curves: Array) -> Curve:
    return thin(summary(label, np.maximum(curves / curves[:, :1], 1e-32)))
