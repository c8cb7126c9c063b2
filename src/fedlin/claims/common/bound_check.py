"""A run of FedLin beside the bound a theorem puts on it: below it in every round, and Algorithm 1 in every round."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedlin.claims.claim import Outcome, Setting
from fedlin.claims.common.algorithm1 import AGREE, Gradients, TopK, departure
from fedlin.claims.common.curves import RESOLVED, exponent, fall, stack, summary, thin
from fedlin.compressors import top_k
from fedlin.core import Array, Method
from fedlin.engines.simulation.simulate import simulate_many
from fedlin.links import error_feedback, plain
from fedlin.plan import Plan
from fedlin.problems.problem import Problem
from fedlin.report.figure import Curve, Figure, Panel, Scale
from fedlin.report.verdict import Row
from fedlin.result import Result

CAPTION = "Lines are medians over the draws, bands their range."


class Departure(NamedTuple):
    """By how much a round was not Algorithm 1's, relative to its length."""

    size: float
    round: int
    draw: int


def sparse_fedlin(setting: Setting, up: TopK | None = None, down: TopK | None = None) -> Method:
    """The method under test, with gradients sparsified at the clients, at the server, at both or nowhere."""
    links = {
        name: (error_feedback if sparsity.feedback else plain)(top_k(sparsity.k))
        for name, sparsity in (("uplink", up), ("downlink", down))
        if sparsity is not None
    }
    return setting.fedlin(**links)


@dataclass(frozen=True)
class PlayedRuns:
    """One run a draw of the method under test."""

    family: Sequence[Problem]
    runs: list[Result]
    rounds: int
    departures: list[Departure]

    def curves(self, name: str) -> Array:
        """A measure of every draw, (draws, rounds + 1), infinite after a run has diverged."""
        return stack(self.runs, name, self.rounds)

    def bounds(self, bound: Callable[..., Array], *names: str) -> Array:
        """`bound(problem, rounds, first)` for every draw, `first` being the start of each measure named."""
        starts = zip(*(self.curves(name)[:, 0] for name in names), strict=True)
        return np.array([bound(p, self.rounds, *first) for p, first in zip(self.family, starts, strict=True)])


def play(
    setting: Setting,
    family: Sequence[Problem],
    plans: Sequence[Plan],
    rounds: int,
    *,
    up: TopK | None = None,
    down: TopK | None = None,
    x0: Array | None = None,
    gradients: Callable[[Problem], Gradients] | None = None,
    replayed: int = 2,
) -> PlayedRuns:
    """Run the method under test, one instance a draw, and play the first draws' rounds again by Algorithm 1.

    Args:
        setting: Says which method is tested.
        family: The instances.
        plans: A plan for each.
        rounds: How many rounds.
        up: The clients' sparsification.
        down: The server's.
        x0: Where all begin, zero unless given.
        gradients: ∇f_i of an instance in NumPy, where it is neither quadratic nor logistic.
        replayed: How many draws are played again.

    Returns:
        The runs, and by how much they depart from Algorithm 1.
    """
    runs = simulate_many(sparse_fedlin(setting, up, down), family, plans, rounds, x0=x0)
    departures = [
        Departure(*departure(family[n], plans[n], runs[n].iterates, up, down, gradients and gradients(family[n])), n)
        for n in range(min(replayed, len(runs)))
    ]
    return PlayedRuns(family, runs, rounds, departures)


@dataclass(frozen=True)
class Case:
    """One family of instances: what was measured and what the theorem allows, both (draws, rounds + 1).

    `power` says that the bound falls like 1/T; else it is geometric, or has a floor of its own.
    """

    name: str
    measured: Array
    bound: Array
    departures: Sequence[Departure] = ()
    power: bool = False

    @property
    def ratios(self) -> Array:
        """Measured over bound, (draws, rounds), the start left out; a bound below rounding counts as rounding."""
        measured = np.where(np.isnan(self.measured), np.inf, self.measured)[:, 1:]
        return np.asarray(measured / np.maximum(self.bound[:, 1:], RESOLVED * self.measured[:, :1]))

    @property
    def held(self) -> NDArray[np.bool_]:
        """Which draws stayed below the bound throughout; a part in 10⁹ is left to rounding."""
        return np.asarray(np.max(self.ratios, axis=1) <= 1 + 1e-9)

    @property
    def falls(self) -> tuple[float, float]:
        """The median rate measured, and the bound's: by how much the logarithm falls a round, or p of T^-p."""
        fit = exponent if self.power else fall
        return float(np.median([fit(c) for c in self.measured])), float(np.median([fit(c) for c in self.bound[:, 1:]]))

    def below(self) -> Row:
        """The check itself, with where the bound is nearest and the margin at the end."""
        ratios = self.ratios
        draw, place = np.unravel_index(np.argmax(ratios), ratios.shape)
        measured = (
            f"{ratios[draw, place]:.3g} in round {place + 1} (draw {draw}); {np.max(ratios[:, -1]):.2g} at the end, "
            f"where the bound is {np.median(self.bound[:, -1] / self.measured[:, 0]):.1e} of the start"
        )
        return Row(f"{self.name}: largest measured/bound", measured, "at most 1", ok=bool(self.held.all()))

    def rate(self) -> Row:
        """The rate beside the promised one, of which nothing is asked that `below` does not ask."""
        measured, bound = self.falls
        if self.power:
            return Row(f"{self.name}: falls like (median)", f"T^-{measured:.2f}", f"T^-{bound:.2f}, the bound's")
        words = f"{measured:.3g} a round, {measured / bound:.3g} times the promised"
        return Row(f"{self.name}: the logarithm falls by (median)", words, f"{bound:.3g} a round promised")

    def panel(self, ylabel: str, *, bound: str, measured: str = "FedLin") -> Panel:
        """Both relative to the start: the median over draws with its range, and the median bound."""
        xscale: Scale = "log" if self.power else "linear"
        start = self.measured[:, :1]
        theory = replace(summary(bound, self.bound / start, "theory"), low=None, high=None)
        curves = (_resolved(summary(measured, self.measured / start)), _resolved(theory))
        lines = tuple(thin(curve, xscale) for curve in curves)
        return Panel(self.name, "communication round", ylabel, lines, xscale=xscale)


def _resolved(curve: Curve) -> Curve:
    """The curve where it is above rounding."""
    y = np.where(curve.y > RESOLVED, curve.y, np.nan)
    return replace(curve, y=y, low=None if curve.low is None else np.maximum(curve.low, RESOLVED))


def case_figure(name: str, title: str, cases: Sequence[Case], ylabel: str = "gap / first gap", **labels: str) -> Figure:
    """A panel for every case; `labels` are those of `Case.panel`."""
    return Figure(name, title, tuple(case.panel(ylabel, **labels) for case in cases))


def lengths(cases: list[Case]) -> str:
    """The rounds of each case, in words."""
    return ", ".join(str(case.measured.shape[1] - 1) for case in cases)


def is_algorithm_1(departures: Sequence[Departure]) -> Row:
    """The premise of a statement about FedLin: that what was run is FedLin."""
    worst = max(departures, key=lambda replayed: replayed.size)
    measured = f"{worst.size:.1e} of its length (round {worst.round}, draw {worst.draw})"
    if worst.size <= AGREE / 10:  # rounding, which is another one on another machine
        measured = f"below {AGREE / 10:g} of its length"
    what = f"a round played again by Algorithm 1 in NumPy, {len(departures)} runs: largest difference"
    return Row(what, measured, f"at most {AGREE:g}", ok=worst.size <= AGREE, premise=True)


def judge(
    cases: Sequence[Case],
    figure: Figure,
    setting: dict[str, str],
    *,
    rows: Sequence[Row] = (),
    findings: Sequence[str] = (),
) -> Outcome:
    """Every case below its bound, and every replayed round Algorithm 1's; a draw is held where all its cases are."""
    held = np.logical_and.reduce([case.held for case in cases])
    premise = is_algorithm_1([replayed for case in cases for replayed in case.departures])
    checked = [row for case in cases for row in (case.below(), case.rate())]
    missed = [f"{case.name} exceeds its bound on draw {n}." for case in cases for n in np.flatnonzero(~case.held)]
    return Outcome(
        rows=(*checked, *rows, premise),
        setting=setting | {"draws": str(len(held)), "compared": "every round"},
        held=int(held.sum()),
        draws=len(held),
        figures=(replace(figure, caption=CAPTION),),
        findings=(*missed, *findings),
    )
