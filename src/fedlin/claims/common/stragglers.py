"""Slow machines: beginning with the fastest clients (FLANP) against everyone from the start, in simulated seconds."""

from dataclasses import dataclass

import numpy as np

from fedlin import problems
from fedlin.claims.common.curves import thin
from fedlin.core import Array, Method
from fedlin.engines.simulation.simulate import simulate
from fedlin.engines.simulation.stop import Stop
from fedlin.engines.timing.clock import Clock, draw_rates
from fedlin.engines.timing.flanp import flanp
from fedlin.plan import Plan
from fedlin.problems.quadratic import Quadratic
from fedlin.report.figure import Curve, Panel
from fedlin.result import Result, first

CLIENTS, ROWS, DIM, NOISE = 32, 50, 12, 1.0
SPEED = 100.0  # gradients a second: seconds a gradient are exponential with mean 1/100
TAU = 5
ACCURACY = DIM * NOISE**2 / ROWS  # V, of one client's data: what least squares over s rows errs by, up to a factor
EXACT = 1e-20  # ‖x̄ - x*‖² to go on to


@dataclass(frozen=True)
class Race:
    """Both runs of one draw."""

    staged: Result
    whole: Result

    @property
    def gains(self) -> tuple[float, float]:
        """Seconds of everyone from the start over FLANP's: to the accuracy of all data, and to x*."""
        within = [_seconds(run, run.gap, ACCURACY / CLIENTS) for run in (self.staged, self.whole)]
        exact = [_seconds(run, run.distance, EXACT) for run in (self.staged, self.whole)]
        return within[1] / within[0], exact[1] / exact[0]

    def panel(self) -> Panel:
        """The gap of both against simulated seconds."""
        named = {"fastest first (FLANP)": self.staged, "everyone from the start": self.whole}
        curves = tuple(thin(Curve(name, run.simulated, run.gap)) for name, run in named.items())
        level = np.full(2, ACCURACY / CLIENTS)
        floor = Curve("accuracy of all data", np.array([0.0, self.whole.simulated[-1]]), level, kind="floor")
        return Panel("Clients alike, exponential speeds, draw 0", "simulated seconds", "f(x̄) - f*", (*curves, floor))


def alike(draw: int) -> Quadratic:
    """Least squares whose clients all draw their rows from one law, as FLANP's theory asks."""
    source = np.random.default_rng(draw)
    X = source.standard_normal((CLIENTS, ROWS, DIM))
    y = X @ source.standard_normal(DIM) + NOISE * source.standard_normal((CLIENTS, ROWS))
    return problems.regression(X, y, reduction="mean")


def race(draw: int, method: Method, rounds: int = 600) -> Race:
    """The method in stages and with everyone from the start, on the same machines, until both are at x*."""
    problem, end = alike(draw), Stop(distance=EXACT)
    plan = Plan(TAU, 1 / (TAU * problem.smoothness))
    clock = Clock(draw_rates(CLIENTS, SPEED, seed=draw))
    staged = flanp(method, problem, plan, clock, rounds, accuracy=ACCURACY, stop=end)
    everyone = np.ones((rounds, CLIENTS))  # as the stages say it, so that both are one program
    whole = simulate(method, problem, plan, rounds, participation=everyone, stop=end)
    return Race(staged, clock.time(whole, method, problem, plan, participation=everyone))


def _seconds(run: Result, curve: Array, goal: float) -> float:
    met = first(curve, goal)
    return np.inf if met is None else float(run.simulated[met])
