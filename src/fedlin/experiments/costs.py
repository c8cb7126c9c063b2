"""What it costs a method to reach a target, and which method is the cheapest."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedlin.report.comparison import ComparisonTable
from fedlin.result import AXES, Result, first

UNITS = ("rounds", "bytes", "gradients", "seconds")


@dataclass(frozen=True)
class Cost:
    """The median over seeds of what one method spent until its measure came to `target`; NaN where it did not.

    `best` is the smallest measure seen, the median over seeds.
    """

    method: str
    target: float
    spent: dict[str, float]
    best: float
    reached: int
    seeds: int

    @property
    def known(self) -> bool:
        """Whether more than half of the seeds reached the target."""
        return 2 * self.reached > self.seeds

    def as_dict(self) -> dict[str, Any]:
        """One flat row."""
        return {
            "method": self.method,
            "target": self.target,
            **{unit: value if np.isfinite(value) else None for unit, value in self.spent.items()},
            "best": self.best,
            "reached": self.reached,
            "seeds": self.seeds,
        }


def cost(method: str, results: Sequence[Result], measure: str, target: float) -> Cost:
    """What the seeds of one method spent on one target."""
    places = [first(getattr(result, measure), target) for result in results]
    spent = {
        unit: float(np.median([_spent(result, unit, place) for result, place in zip(results, places, strict=True)]))
        for unit in UNITS
    }
    best = float(np.median([np.nanmin(getattr(result, measure)) for result in results]))
    return Cost(method, target, spent, best, sum(place is not None for place in places), len(results))


def _spent(result: Result, unit: str, place: int | None) -> float:
    if place is None:
        return float("inf")
    return float(place if unit == "rounds" else getattr(result, unit)[place])


def table(costs: Sequence[Cost], measure: str) -> ComparisonTable:
    """A row for every target and method, the cheapest in rounds first."""
    ordered = sorted(costs, key=lambda one: (-one.target, one.spent["rounds"], one.best))
    several = any(one.seeds > 1 for one in ordered)
    heads = ("method", f"{measure} at most", *(AXES[unit] for unit in UNITS), f"best {measure}")
    rows = tuple(
        (
            one.method,
            f"{one.target:g}",
            *(shown(unit, one.spent[unit]) for unit in UNITS),
            f"{one.best:.2e}",
            *([f"{one.reached} of {one.seeds}"] if several else []),
        )
        for one in ordered
    )
    return ComparisonTable("Cost to reach each target", (*heads, *(["seeds that did"] if several else [])), rows)


def winners(costs: Sequence[Cost], measure: str) -> tuple[str, ...]:
    """For every target a sentence on who needs least of what."""
    found = []
    for target in sorted({one.target for one in costs}, reverse=True):
        rivals = [one for one in costs if one.target == target and one.known]
        if not rivals:
            closest = min((one for one in costs if one.target == target), key=lambda one: one.best)
            found.append(f"No method reaches {measure} {target:g}; {closest.method} comes closest, {closest.best:.2e}.")
            continue
        least = [(unit, min(one.spent[unit] for one in rivals)) for unit in UNITS]
        told = "; ".join(
            f"fewest {AXES[unit]}: "
            + " and ".join(one.method for one in rivals if one.spent[unit] == value)
            + f" ({shown(unit, value)})"
            for unit, value in least
        )
        count = f"{len(rivals)} of {len({one.method for one in costs})} methods reach {measure} {target:g}"
        found.append(f"{count}. {told[0].upper()}{told[1:]}.")
    return tuple(found)


def shown(unit: str, value: float) -> str:
    """A cost for a reader.

    >>> shown("bytes", 1234567.0), shown("rounds", float("inf"))
    ('1.23 MB', '–')
    """
    if not np.isfinite(value):
        return "–"
    if unit == "bytes":
        for name, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
            if value >= size:
                return f"{value / size:.3g} {name}"
        return f"{value:.0f} B"
    return f"{value:.3g}" if unit == "seconds" else f"{value:,.0f}"
