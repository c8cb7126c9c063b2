"""A measured curve beside the bound a theorem puts on it, and what the two come to over the draws."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlin.claims.claim import Outcome
from fedlin.claims.common.draws import stack, summary
from fedlin.core import Algorithm
from fedlin.engines.simulation.simulate import simulate_many
from fedlin.plan import Plan
from fedlin.problems.problem import Problem
from fedlin.report.figure import Curve, Figure, Panel, Scale
from fedlin.report.verdict import Row

Array = NDArray[Any]
RESOLVED = 1e-20  # of the start: what lies below is rounding, and a bound below it cannot be checked
CAPTION = "Lines are medians over the draws, bands their range."
CUT = f"every round from the first while the bound is above {RESOLVED:g} of the start"


def fall(curve: Array) -> float:
    """By how much the logarithm falls a round, fitted to the latter half of what is above rounding.

    >>> round(fall(3 * 0.5 ** np.arange(20)), 4)
    0.6931
    """
    seen = np.flatnonzero(np.isfinite(curve) & (curve > RESOLVED * curve[0]))
    late = seen[len(seen) // 2 :]
    return float(-np.polyfit(late, np.log(curve[late]), 1)[0]) if len(late) > 1 else float("nan")


def thin(curve: Curve, xscale: Scale = "linear", points: int = 160) -> Curve:
    """The same curve drawn through fewer points, evenly spread on its axis."""
    last = len(curve.x) - 1
    spread = np.linspace(0, last, points) if xscale == "linear" else np.geomspace(1, max(last, 1), points)
    keep = np.unique(np.round(spread).astype(int)) if last >= points else np.arange(len(curve.x))
    low, high = (None if edge is None else edge[keep] for edge in (curve.low, curve.high))
    return replace(curve, x=curve.x[keep], y=curve.y[keep], low=low, high=high)


@dataclass(frozen=True)
class Case:
    """One family of instances: what was measured and what the theorem allows, both (draws, rounds + 1)."""

    name: str
    measured: Array
    bound: Array

    @property
    def ratios(self) -> Array:
        """For each draw the largest measured/bound over the rounds that can be checked; the start is left out."""
        decided = np.isfinite(self.bound) & (self.bound >= RESOLVED * self.measured[:, :1])
        decided[:, 0] = False
        return np.asarray(np.max(self.measured / np.where(decided, self.bound, np.inf), axis=1))

    @property
    def held(self) -> NDArray[np.bool_]:
        """Which draws stayed below the bound throughout; a part in 10⁹ is left to rounding."""
        return np.asarray(self.ratios <= 1 + 1e-9)

    @property
    def falls(self) -> tuple[float, float]:
        """The median rate measured, and the bound's."""
        return float(np.median([fall(c) for c in self.measured])), float(np.median([fall(c) for c in self.bound]))

    def below(self) -> Row:
        """The check itself."""
        ratios = self.ratios
        worst = int(np.argmax(np.where(np.isnan(ratios), np.inf, ratios)))
        told = f"{ratios[worst]:.3g} (draw {worst})"
        return Row(f"{self.name}: largest measured/bound", told, "at most 1", ok=bool(self.held.all()))

    def rate(self) -> Row:
        """The slope beside the bound's, of which nothing is asked that `below` does not ask."""
        measured, bound = self.falls
        told = f"{measured:.3g} a round, {measured / bound:.3g} times the bound's"
        return Row(f"{self.name}: the logarithm falls by (median)", told, f"bound: {bound:.3g} a round")

    def panel(self, ylabel: str, *, bound: str, measured: str = "FedLin", xscale: Scale = "linear") -> Panel:
        """Both relative to the start: the median over draws with its range, and the median bound."""
        start = self.measured[:, :1]
        theory = replace(summary(bound, self.bound / start, "theory"), low=None, high=None)
        curves = (_resolved(summary(measured, self.measured / start)), _resolved(theory))
        shown = tuple(thin(curve, xscale) for curve in curves)
        return Panel(self.name, "communication round", ylabel, shown, xscale=xscale)


def _resolved(curve: Curve) -> Curve:
    """The curve where it is above rounding."""
    y = np.where(curve.y > RESOLVED, curve.y, np.nan)
    return replace(curve, y=y, low=None if curve.low is None else np.maximum(curve.low, RESOLVED))


def compare(
    name: str,
    algorithm: Algorithm[Any, Any],
    family: Sequence[Problem],
    plans: Sequence[Plan],
    rounds: int,
    bound: Callable[[Problem, int, float], Array],
    x0: Array | None = None,
) -> Case:
    """Run one instance a draw, and set its gap against `bound(problem, rounds, gap_0)`."""
    gaps = stack(simulate_many(algorithm, family, plans, rounds, x0=x0), "gap", rounds)
    bounds = [bound(problem, rounds, gap[0]) for problem, gap in zip(family, gaps, strict=True)]
    return Case(name, gaps, np.array(bounds))


def judge(
    cases: Sequence[Case],
    figure: Figure,
    setting: dict[str, str],
    *,
    rows: Sequence[Row] = (),
    findings: Sequence[str] = (),
    rates: bool = True,
) -> Outcome:
    """Every case below its bound; a draw counts as held where all of its cases are.

    With `rates` the slopes are told as well, which means something where the bound is geometric.
    """
    held = np.logical_and.reduce([case.held for case in cases])
    told = [row for case in cases for row in ((case.below(), case.rate()) if rates else (case.below(),))]
    missed = [f"{case.name} exceeds its bound on draw {n}." for case in cases for n in np.flatnonzero(~case.held)]
    return Outcome(
        rows=(*told, *rows),
        setting=setting | {"draws": str(len(held)), "compared": CUT},
        held=int(held.sum()),
        draws=len(held),
        figures=(replace(figure, caption=CAPTION),),
        findings=(*missed, *findings),
    )
