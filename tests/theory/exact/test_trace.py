"""A round on symbolic vectors is the round the simulator runs, for every method whose rounds add and scale vectors."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedlin
from fedlin import Plan, innovation, plain
from fedlin.errors import ArgumentError
from fedlin.theory.exact.memories import any_states, ignores_linear_terms, remembers
from fedlin.theory.exact.symbols import SymbolicVector, exact
from fedlin.theory.exact.trace import Group, Trace, contraction, play_round, start
from quadratics import CLIENTS, ETA, TAU, X0, problem

Array = NDArray[np.float64]
ROUNDS = 2
ONE = np.full(CLIENTS, 0.01)
METHODS = {
    "gradient descent": (fedlin.gradient_descent(), ETA),
    "fedlin": (fedlin.fedlin(), ETA),
    "fedlin, links that track": (fedlin.fedlin(uplink=innovation(fedlin.identity())), ETA),
    "fedavg": (fedlin.fedavg(), ETA),
    "fedprox": (fedlin.fedprox(0.5), ETA),
    "fednova": (fedlin.fednova(), ONE),
    "scaffold": (fedlin.scaffold(), ETA),
    "scaffold, option 1": (fedlin.scaffold(option=1, server_step=0.5), ETA),
    "fedsplit, steps": (fedlin.fedsplit(steps=2, smoothness=3.0, strong_convexity=1.0), ETA),
    "gradient tracking": (fedlin.gradient_tracking(), ETA),
}


class Evaluation:
    """Numbers for the symbolic vectors of a trace: the gradients are those of a problem's clients."""

    def __init__(self, trace: Trace, x0: Array) -> None:
        self.star = problem().minimizer
        self.source = {
            place: (group, point)
            for group, points in enumerate(trace.points)
            for point in points[1:]
            for place in point.gradient.coefficients
        }
        # All but the last group have a basis vector for the gradient at x*.
        self.known = {next(iter(trace.x.coefficients)): x0 - self.star}
        for group, points in enumerate(trace.points[:-1]):
            self.known[next(iter(points[0].gradient.coefficients))] = self.gradient(group, self.star)

    def gradient(self, client: int, x: Array) -> Array:
        return np.asarray(problem().data.A[client] @ x - problem().data.b[client])

    def __call__(self, vector: SymbolicVector) -> Array:
        total = np.zeros_like(self.star)
        for place, value in vector.coefficients.items():
            if place not in self.known:
                group, point = self.source[place]
                self.known[place] = self.gradient(group, self.star + self(point.x))
            total = total + float(value) * self.known[place]
        return total


@pytest.mark.parametrize("name", METHODS)
def test_symbolic_rounds_are_those_of_the_simulator(name: str) -> None:
    method, eta = METHODS[name]
    result = fedlin.simulate(method, problem(), Plan(TAU, eta), ROUNDS, x0=X0)
    groups = [Group(int(tau), exact(size), Fraction(1, CLIENTS), 1) for tau, size in zip(TAU, eta, strict=True)]
    trace = Trace(groups, Fraction(0))
    states = start(trace, method)
    models = []
    for number in range(ROUNDS):
        states = play_round(trace, method.phases_in(number == 0), states)
        models.append(states.server.x)
    evaluate = Evaluation(trace, X0)
    for model, expected in zip(models, result.iterates[1:], strict=True):
        np.testing.assert_allclose(problem().minimizer + evaluate(model), expected, rtol=1e-9, atol=1e-11)


def test_a_proximal_point_is_where_its_gradient_leads() -> None:
    trace = Trace([Group(1, Fraction(1), Fraction(1), 2)], Fraction(0))
    y = trace.proximal(0, trace.x, Fraction(1, 3))
    assert y + trace.gradient(0, y) / 3 == trace.x


def test_a_gradient_is_asked_for_once_at_a_point() -> None:
    trace = Trace([Group(4, Fraction(1, 8), Fraction(1), 2)], Fraction(0))
    play_round(trace, fedlin.fedlin().phases, start(trace, fedlin.fedlin()))
    assert len(trace.points[0]) == 1 + 4  # x*, and x̄ with the three points after it


@pytest.mark.parametrize(
    ("method", "memory", "ignores"),
    [
        (fedlin.fedlin(), False, True),
        (fedlin.gradient_descent(), False, True),
        (fedlin.fedavg(), False, False),
        (fedlin.fedprox(0.5), False, False),
        (fedlin.scaffold(), True, True),
        (fedlin.gradient_tracking(), True, True),
        (fedlin.fedsplit(), True, False),
        (fedlin.fedlin(downlink=plain(contraction(4.0))), False, True),
        (fedlin.fedlin(downlink=contraction(4.0)), True, True),
        (fedlin.fedlin(uplink=contraction(4.0)), True, False),
        (fedlin.fedlin(uplink=innovation(contraction(4.0))), True, True),
        (fedlin.ef21(contraction(4.0)), True, True),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_what_a_method_remembers_is_read_off_its_phases(method: Any, memory: bool, ignores: bool) -> None:
    assert remembers(method) is memory
    assert ignores_linear_terms(method) is ignores


def test_memories_keep_what_stays_true_of_them() -> None:
    groups = [Group(2, Fraction(1, 8), Fraction(1, 3), 1), Group(3, Fraction(1, 9), Fraction(2, 3), 2)]
    trace = Trace(groups, Fraction(0))
    scaffold = any_states(trace, fedlin.scaffold())
    assert scaffold.server.c == trace.space.mean([state.c for state in scaffold.clients])
    tracking = any_states(trace, fedlin.gradient_tracking())
    assert trace.space.mean([state.delta for state in tracking.clients]) == trace.space.origin
    both = any_states(trace, fedlin.fedlin(uplink=contraction(2.0), downlink=contraction(2.0)))
    assert both.server.e != trace.space.mean([state.rho for state in both.clients])


def test_a_contraction_cannot_be_run() -> None:
    with pytest.raises(ArgumentError, match="cannot be run"):
        fedlin.simulate(fedlin.fedlin(downlink=contraction(2.0)), problem(), Plan(1, 0.1), 1)


@pytest.mark.parametrize("delta", [0.5, float("nan"), "4"])
def test_a_contraction_needs_a_delta(delta: Any) -> None:
    with pytest.raises(ArgumentError, match="delta"):
        contraction(delta)
