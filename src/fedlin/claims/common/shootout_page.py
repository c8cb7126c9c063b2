"""What the shoot-out shows: who wins which column, what every target cost every method, and who is on the frontier."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedlin.claims.common.entrants import ENTRANTS
from fedlin.claims.common.run_costs import LINKS, TARGETS, Array, Spending, bits_unit, seconds_unit
from fedlin.report.figure import Curve, Panel
from fedlin.report.text_table import TextTable

Runs = Mapping[str, Spending]  # by method


class TunedRun(NamedTuple):
    """The variant of a method that ran, its step as a multiple of the unit, and what it spent."""

    variant: str
    multiple: float
    spending: Spending


TO = 1e-10  # the target that decides
CONVENTIONS = {"floats": "papers", "wire": "wire", "coded": "coded"}
BITS = bits_unit("floats", "both")
# Every column by its unit.
HEADS = (
    {"rounds": "rounds"}
    | {bits_unit(way, "up"): f"bits up, {name}" for way, name in CONVENTIONS.items()}
    | {bits_unit(way, "both"): f"bits in all, {name}" for way, name in CONVENTIONS.items()}
    | {"gradients": "gradients"}
    | {seconds_unit(rate): f"s at {rate} Mbit/s" for rate in LINKS}
)


def ranking(runs: Runs, unit: str = BITS, target: float = TO) -> list[tuple[float, str]]:
    """Methods that come to the target by what they spend, the least first."""
    costs = ((run.at(target, unit), name) for name, run in runs.items())
    return sorted(pair for pair in costs if np.isfinite(pair[0]))


def winners_table(problem: str, runs: Runs) -> TextTable:
    """Who needs least of what to each target."""
    rows = [(head, *(_winner(runs, unit, target) for target in TARGETS)) for unit, head in HEADS.items()]
    return TextTable(f"{problem}: who needs least", ("", *(f"to {target:g}" for target in TARGETS)), tuple(rows))


def _winner(runs: Runs, unit: str, target: float) -> str:
    ranked = ranking(runs, unit, target)
    if not ranked:
        return "nobody"
    least = ranked[0][0]
    names = [name for cost, name in ranked if cost == least]
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{others} ({_number(least)})"


def costs_tables(problem: str, played: Mapping[str, TunedRun]) -> Sequence[TextTable]:
    """What each target cost each method, the fewest bits in all first; all but the one that decides folded away."""
    return [_costs_table(problem, played, target) for target in sorted(TARGETS, key=lambda one: (one != TO, -one))]


def _costs_table(problem: str, played: Mapping[str, TunedRun], target: float) -> TextTable:
    runs = {name: one.spending for name, one in played.items()}

    def row(name: str) -> tuple[str, ...]:
        label = f"{name} ({played[name].variant}; step {_fraction(played[name].multiple)})"
        costs = [runs[name].at(target, unit) for unit in HEADS]
        if not np.isfinite(costs[0]):
            ended = f"gap {np.nanmin(runs[name].run.gap):.1e} in {runs[name].run.rounds}"
            return (label, ended, *[""] * (len(HEADS) - 1))
        return (label, *map(_number, costs))

    ordered = sorted(runs, key=lambda name: (runs[name].at(target, BITS), float(np.nanmin(runs[name].run.gap))))
    title = f"{problem}: cost of a gap of {target:g}"
    return TextTable(title, ("method", *HEADS.values()), tuple(map(row, ordered)), folded=target != TO)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _fraction(multiple: float) -> str:
    return f"{multiple:g}" if multiple >= 1 else f"1/{1 / multiple:g}"


def ahead(problem: str, runs: Runs, reference: Runs) -> str:
    """Who needs the fewest bits in all, who comes next, and where the best on the reference problem stands."""
    ranked = ranking(runs)
    if not ranked:
        return f"{problem}: no method comes to {TO:g}."
    (least, winner), *rest = ranked
    sentence = f"{problem}: {winner} takes the fewest bits in all to {TO:g}, {_number(least)} a client as papers count"
    sentence += f" in {_number(runs[winner].at(TO, 'rounds'))} rounds"
    if rest:
        cost, second = rest[0]
        sentence += (
            f"; {second} comes next with × {cost / least:.2f} in {_number(runs[second].at(TO, 'rounds'))} rounds"
        )
    best = ranking(reference)
    places = [name for _, name in ranked]
    if best and best[0][1] != winner and best[0][1] in runs:
        name = best[0][1]
        where = f"is number {places.index(name) + 1} of {len(places)}" if name in places else "does not come there"
        sentence += f". {name}, the best elsewhere, {where}"
    return sentence + "."


def why(problem: str, runs: Runs) -> str:
    """How the fewest bits come about if second derivatives win: few rounds, of which the first may be dear."""
    ranked = ranking(runs)
    plain = [(cost, name) for cost, name in ranked if not ENTRANTS[name].newton]
    if not ranked or not plain or not ENTRANTS[ranked[0][1]].newton:
        return ""
    (least, winner), (cost, rival) = ranked[0], plain[0]
    share = runs[winner].spent[BITS][1] / least
    return (
        f"{problem}: {share:.0%} of what {winner} sends is its first round, and "
        f"{_number(runs[winner].at(TO, 'rounds') - 1)} rounds follow; {rival}, the best method that knows gradients or "
        f"proximal steps alone, takes {_number(runs[rival].at(TO, 'rounds'))} rounds and × {cost / least:.2f} the bits."
    )


def pareto(problem: str, runs: Runs, unit: str, names: Sequence[str]) -> Panel:
    """Bits in all against rounds or gradients, a mark a method; a line joins those that no other beats in both.

    `names` are the methods of all panels, which so have one legend; who did not run has no mark.
    """
    x, y = (np.array([runs[name].at(TO, of) if name in runs else np.inf for name in names]) for of in (BITS, unit))
    marks = [Curve(name, x[i : i + 1], y[i : i + 1], kind="points") for i, name in enumerate(names)]
    ylabel = {"rounds": "rounds", "gradients": "gradients of a client"}[unit]
    return Panel(problem, "bits up and down, a client", ylabel, (*marks, _stairs(x, y)), xscale="log")


def unbeaten(x: Array, y: Array) -> list[int]:
    """The places that no other beats in both x and y, by their x.

    >>> unbeaten(np.array([1.0, 2.0, 3.0, np.inf]), np.array([9.0, 9.0, 2.0, 1.0]))
    [0, 2]
    """
    best: list[int] = []
    for place in np.lexsort((y, x)):
        if np.isfinite(x[place]) and (not best or y[place] < y[best[-1]]):
            best.append(int(place))
    return best


def on_frontier(problem: str, runs: Runs) -> str:
    """The methods that no other beats in both bits and rounds, the fewest bits first."""
    names = list(runs)
    x, y = (np.array([run.at(TO, of) for run in runs.values()]) for of in (BITS, "rounds"))
    best = [f"{names[place]} ({_number(y[place])})" for place in unbeaten(x, y)]
    return (
        f"{problem}: nobody beats these in both bits and rounds (rounds in brackets): {', '.join(best)}."
        if best
        else ""
    )


def _stairs(x: Array, y: Array) -> Curve:
    """From the top of the picture over the methods that no other beats to its right."""
    there = np.isfinite(x)
    corners: list[tuple[float, float]] = []
    level = float(np.max(y[there], initial=0.0))
    for place in unbeaten(x, y):
        corners += [(x[place], level), (x[place], y[place])]
        level = y[place]
    if corners:
        corners.append((float(np.max(x[there])), level))
    line = np.array(corners).reshape(-1, 2)
    return Curve("nobody beats these in both", line[:, 0], line[:, 1], kind="theory")
