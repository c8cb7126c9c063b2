"""From settings to a picture: the runs, FedLin's bound beside them, and what both come to in words."""

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedlin import algorithms
from fedlin.compressors import identity, top_k
from fedlin.core import Method
from fedlin.engines.simulation.simulate import simulate
from fedlin.plan import Plan, draw_steps
from fedlin.playground.sliders import AXES, DIM, FEDAVG, FEDLIN, MEASURES, MEMORIES, METHODS, Sliders
from fedlin.playground.theorem import NearestTheorem, nearest
from fedlin.problems.quadratic import Quadratic
from fedlin.problems.regression import least_squares
from fedlin.report.figure import Array, Curve, Figure, Panel
from fedlin.result import Result, first

if TYPE_CHECKING:
    import plotly.graph_objects as go

SAMPLES, ROUNDS = 200, 300
TARGET = "1e-8"  # as the page writes it
FAR = 1e3  # a curve this many times above its start is cut, so that the others can still be seen
GREY, FAINT = "#808080", "rgba(128,128,128,0.25)"  # of text and lines that light and dark pages both show


@dataclass(frozen=True)
class Study:
    """The chosen method's run comes first; `bound` belongs to the one called FedLin, or is None."""

    settings: Sliders
    theorem: NearestTheorem
    theorem_1: float  # η̄ of Theorem 1
    eta_bar: float  # η̄
    runs: dict[str, Result]
    bound: Array | None

    @property
    def summary(self) -> str:
        """What the chosen method came to, in one line."""
        name, run = next(iter(self.runs.items()))
        if run.status == "diverged" or run.gap[-1] > run.gap[0]:
            return f"{name} diverged: after {run.rounds} rounds it is farther away than it began. Take a smaller step."
        reached = first(run.gap, float(TARGET))
        target = f"{TARGET} not reached" if reached is None else f"{TARGET} reached in round {reached}"
        sent = f"{run.bytes[-1] / 1e6:.3g} MB sent"
        return f"{name}: f(x) - f* = {run.gap[-1]:.2g} after {run.rounds} rounds; {target}; {sent}."

    @property
    def explanation(self) -> str:
        """The step, in what unit, and whether there is a bound."""
        step = f"Step sizes η_i = {self.eta_bar:.3g}/τ_i, {self.settings.step:g} × those of {self.theorem.name}"
        if self.settings.certified:
            times = self.eta_bar / self.theorem_1
            step = f"Step sizes η_i = {self.eta_bar:.3g}/τ_i, the certified ones, {times:.3g} × those of Theorem 1"
        if self.bound is None:
            return f"{step}. No bound is drawn: {self.theorem.why_not}."
        return f"{step}. The dashed line is what {self.theorem.name} guarantees for FedLin."


def study(settings: Sliders) -> Study:
    """Run the chosen method, FedLin with whole messages and FedAvg, all at the same η̄, on the paper's least squares.

    >>> list(study(Sliders(method="SCAFFOLD", clients=2)).runs)
    ['SCAFFOLD', 'FedLin', 'FedAvg']
    """
    problem = _problem(settings.clients, settings.alpha)
    tau = draw_steps(settings.clients, 1, settings.local_steps)
    theorem = nearest(problem, settings, tau)
    eta_bar = theorem.eta_bar if settings.certified else settings.step * theorem.eta_bar
    runs = {
        label: simulate(method, problem, _plan(method.name, tau, eta_bar), ROUNDS, iterates=False)
        for label, method in _methods(settings).items()
    }
    bound = None
    if not theorem.why_not:
        start = float(getattr(runs[FEDLIN], settings.measure)[0])
        bound = theorem.promises[settings.measure](runs[FEDLIN].rounds, start)
    return Study(settings, theorem, 1 / (6 * problem.smoothness), eta_bar, runs, bound)


@lru_cache(maxsize=8)
def _problem(clients: int, alpha: float) -> Quadratic:
    return least_squares(clients=clients, dim=DIM, samples=SAMPLES, alpha=alpha)


def _plan(name: str, tau: NDArray[np.integer], eta_bar: float) -> Plan:
    """η_i = η̄/τ_i; FedNova takes one η for all, and gradient descent one step."""
    if name == "fednova":
        return Plan(tau, eta_bar / tau.mean())
    return Plan(1, eta_bar) if name == "gradient_descent" else Plan.scaled(tau, eta_bar)


def _methods(settings: Sliders) -> dict[str, Method]:
    if not settings.compressed:
        return {name: METHODS[name] for name in (settings.method, FEDLIN, FEDAVG)}
    link = MEMORIES[settings.memory]
    up, down = (link(top_k(k)) if k < DIM else identity() for k in settings.sent)
    model_up, model_down = (identity(), identity()) if settings.messages == "gradients" else (up, down)
    chosen = algorithms.fedlin(uplink=up, downlink=down, model_uplink=model_up, model_downlink=model_down)
    return {FEDLIN: chosen, "FedLin, whole messages": METHODS[FEDLIN], FEDAVG: METHODS[FEDAVG]}


def figure(result: Study) -> Figure:
    """The chosen measure of every run along the chosen axis, and the bound.

    >>> [curve.kind for curve in figure(study(Sliders(clients=2))).panels[0].curves]
    ['measured', 'measured', 'theory']
    """
    settings = result.settings
    curves = [
        Curve(label, _along(run, settings.axis), _near(getattr(run, settings.measure)))
        for label, run in result.runs.items()
    ]
    if result.bound is not None:
        along = _along(result.runs[FEDLIN], settings.axis)
        curves.append(Curve(f"bound of {result.theorem.name}", along, result.bound, kind="theory"))
    panel = Panel("", AXES[settings.axis], MEASURES[settings.measure], tuple(curves))
    return Figure("playground", "The playground", (panel,))


def plot(result: Study) -> "go.Figure":
    """The figure for the browser, for a page that is light or dark, as marimo is set.

    >>> plot(study(Sliders(clients=2))).data[-1].line.color == GREY
    True
    """
    from fedlin.report.plotly_figures import plots

    (drawn,) = plots(figure(result))
    drawn.update_traces(line={"color": GREY}, selector={"meta": "theory"})
    drawn.update_xaxes(gridcolor=FAINT, linecolor=FAINT)
    drawn.update_yaxes(gridcolor=FAINT, linecolor=FAINT)
    return drawn.update_layout(font={"color": GREY})


def _along(run: Result, axis: str) -> Array:
    return np.arange(run.rounds + 1, dtype=float) if axis == "rounds" else run.bytes / 1e6


def _near(values: Array) -> Array:
    return np.where(values <= FAR * values[0], values, np.nan)
