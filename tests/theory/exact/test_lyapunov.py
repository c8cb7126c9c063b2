"""Rates proved by Lyapunov functions: they hold in the simulator, reduce to known ones, and end where they should."""

import sys
from fractions import Fraction
from typing import Any

import jax
import numpy as np
import pytest

import fedlin
from fedlin import Plan, error_feedback, innovation, simulate, top_k
from fedlin.errors import ArgumentError, FedLinError, PlanError
from fedlin.theory.exact import (
    Dissimilar,
    ProvedRate,
    Smooth,
    UnboundedError,
    contraction,
    lyapunov,
    scaffnew_rate,
    worst_case,
)
from fedlin.theory.exact.scaffnew_rate import scaffnew_step
from fedlin.theory.exact.trace import Group, Trace, TracedStates, play_round, start
from quadratics import CLIENTS, DIM, X0, problem

TEN = Smooth(1.0, 0.1)
DELTA = 2.5  # of TOP-2 in five dimensions
HALF = contraction(DELTA)


def test_without_memories_the_rate_is_that_of_the_worst_case() -> None:
    """To the hundredth of its drop that is given away."""
    plan = Plan(2, 0.5)
    drop = 1 - worst_case(fedlin.fedlin(), plan, TEN).solved
    found = lyapunov(fedlin.fedlin(), plan, TEN)
    assert 0.97 * drop <= 1 - found.rate <= drop
    assert found.constant == pytest.approx(1.01, abs=0.01)


def test_feedback_at_the_server_costs_nothing_while_steps_are_small() -> None:
    plan = Plan(2, 0.02)
    full = 1 - (1 - 0.02 * 0.1) ** 4
    assert 1 - lyapunov(fedlin.fedlin(downlink=HALF), plan, TEN).rate == pytest.approx(full, rel=0.03)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (fedlin.fedlin(downlink=contraction(4.0)), {}),
        (fedlin.fedlin(uplink=contraction(4.0)), {"shared_minimizer": True}),
    ],
    ids=["down", "up"],
)
def test_too_large_a_step_has_no_rate(method: Any, options: dict[str, Any]) -> None:
    with pytest.raises(UnboundedError, match="Lyapunov"):
        lyapunov(method, Plan(2, 1.0), TEN, **options)


def test_feedback_at_the_clients_has_a_rate_only_where_they_share_their_minimizer() -> None:
    method = fedlin.fedlin(uplink=HALF)
    with pytest.raises(UnboundedError):
        lyapunov(method, Plan(2, 0.02), TEN)
    assert lyapunov(method, Plan(2, 0.02), TEN, shared_minimizer=True).rate < 1
    similar = lyapunov(method, Plan(2, 0.02), Dissimilar(1.0, 0.1, 2.0), shared_minimizer=True)
    assert similar.rate <= lyapunov(method, Plan(2, 0.02), TEN, shared_minimizer=True).rate


def test_fedsplit_has_the_rate_of_peaceman_and_rachford() -> None:
    """((√κ - 1)/(√κ + 1))² at s = 1/√(Lμ), exact for their splitting; gradient steps take L and μ of the class."""
    known = ((np.sqrt(10) - 1) / (np.sqrt(10) + 1)) ** 2
    found = lyapunov(fedlin.fedsplit(), Plan(1, np.sqrt(10)), TEN, shared_minimizer=True)
    assert 0.97 * (1 - known) <= 1 - found.rate <= 1 - known
    open_numbers = fedlin.fedsplit(steps=2, start="model")
    given = fedlin.fedsplit(steps=2, start="model", smoothness=1.0, strong_convexity=0.1)
    solved = [worst_case(method, Plan(1, 0.3), TEN, dissimilarity=1.0).solved for method in (open_numbers, given)]
    assert solved[0] == pytest.approx(solved[1], rel=1e-9)


def holds(found: ProvedRate, result: Any, memories: float = 0.0) -> None:
    """The squared distance stays below the proved curve, in which the rounds count from the first model on."""
    rounds = np.arange(len(result.distance))
    assert np.all(result.distance <= found.constant * found.rate**rounds * (result.distance[0] + memories) * (1 + 1e-9))


@pytest.mark.parametrize(
    ("method", "analysed"),
    [
        (fedlin.fedlin(downlink=error_feedback(top_k(2))), fedlin.fedlin(downlink=HALF)),
        (fedlin.fedlin(uplink=innovation(top_k(2))), fedlin.fedlin(uplink=innovation(HALF))),
        (fedlin.scaffold(), fedlin.scaffold()),
        (fedlin.gradient_tracking(), fedlin.gradient_tracking()),
    ],
    ids=["feedback down", "innovation up", "scaffold", "gradient tracking"],
)
def test_runs_stay_below_the_proved_curve(method: Any, analysed: Any) -> None:
    L, mu = problem().smoothness, problem().strong_convexity
    plan = Plan(2, 0.03 / L)
    found = lyapunov(analysed, plan, Smooth(L, mu))
    result = simulate(method, problem(), Plan(np.full(CLIENTS, 2), 0.03 / L), 60, x0=X0)
    stars = problem().data.A @ problem().minimizer - problem().data.b
    at_start = np.einsum("ijk,k->ij", problem().data.A, X0) - problem().data.b
    # Memories start at zero or at the first gradients, and end at those at x*.
    memories = (np.mean(np.sum(stars**2, axis=1)) + np.mean(np.sum((at_start - stars) ** 2, axis=1))) / L**2
    holds(found, result, 3 * memories)
    assert result.distance[-1] < result.distance[0]


# Scaffnew.


@pytest.mark.parametrize("seed", [0, 3, 5])
def test_scaffnew_by_its_steps_is_the_method_that_engines_run(seed: int) -> None:
    """However long the coin makes the round."""
    gamma, tau = Fraction(1, 5), 3
    trace = Trace([Group(tau, gamma, Fraction(1), 2)], Fraction(0), shared_minimizer=True)
    h, method = trace.space.apart(0), fedlin.scaffnew()
    fresh = start(trace, method)
    states = TracedStates(fresh.server, [fresh.clients[0]._replace(h=h)])
    after = play_round(trace, method.phases, states, jax.random.key(seed))
    steps = len(trace.points[0]) - 1  # as many as gradients
    y = trace.x
    for _ in range(steps):
        y, x, later = scaffnew_step(trace, y, h, gamma, Fraction(1, tau))
    assert after.server.x == x
    client = after.clients[0]
    assert client.h + Fraction(1, tau) / gamma * (after.server.x - client.sent) == later


def test_scaffnew_that_always_communicates_is_gradient_descent() -> None:
    found = scaffnew_rate(Plan(1, 1.0), TEN)
    assert 0.98 * 0.19 <= 1 - found.rate <= 0.19


def test_scaffnew_is_faster_a_round_than_any_certified_fedlin() -> None:
    kappa = 1000.0
    drop = 1 - scaffnew_rate(Plan(32, 1.0), Smooth(1.0, 1 / kappa)).rate
    assert drop > 0.8 * 2 / np.sqrt(kappa) * 0.9  # of order 1/√κ; FedLin's is of order 1/κ
    assert drop > 4 * 12 / kappa


@pytest.mark.parametrize("tau", [1, 2, 4])
def test_scaffnew_on_average_stays_below_its_curve(tau: int) -> None:
    L, mu = problem().smoothness, problem().strong_convexity
    found = scaffnew_rate(Plan(tau, 1 / L), Smooth(L, mu))
    runs = fedlin.simulate_many(fedlin.scaffnew(), problem(), Plan(tau, 1 / L), 12, seeds=range(64), x0=X0)
    mean = np.mean([run.distance for run in runs], axis=0)
    stars = problem().data.A @ problem().minimizer - problem().data.b
    start = mean[0] + np.mean(np.sum(stars**2, axis=1)) / L**2
    assert np.all(mean <= found.constant * found.rate ** np.arange(len(mean)) * start)


def test_scaffnew_takes_one_plan_for_all() -> None:
    with pytest.raises(PlanError, match="two numbers"):
        scaffnew_rate(Plan([1, 2], 0.1), TEN)


def test_methods_that_draw_are_refused() -> None:
    with pytest.raises(ArgumentError, match="at random"):
        lyapunov(fedlin.scaffnew(), Plan(2, 0.1), TEN)


assert DIM / 2 == DELTA


@pytest.mark.parametrize("tau", [1, 2])
def test_momentum_around_fedlin_lies_between_quadratics_and_nesterovs_theorem(tau: int) -> None:
    """(1 - √q)² on quadratics alone, which is a limit from below, and 1 - √q of Nesterov's Lyapunov function."""
    beta = 0.5
    root = (1 - beta) / (1 + beta)  # √q
    method = fedlin.momentum(fedlin.fedlin(), beta)
    found = lyapunov(method, Plan(tau, 1 / tau), Smooth(1.0, root**2 / (1 - (1 - 1 / tau) ** tau)))
    assert (1 - root) ** 2 <= found.rate < 1 - root


def test_without_momentum_the_rate_is_fedlins() -> None:
    plain, around = (
        lyapunov(method, Plan(2, 0.5), TEN) for method in (fedlin.fedlin(), fedlin.momentum(fedlin.fedlin(), 0.0))
    )
    assert 1 - around.rate == pytest.approx(1 - plain.rate, rel=0.03)


def test_a_missing_solver_is_told_and_not_taken_for_a_method_that_does_not_converge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "clarabel", None)
    with pytest.raises(FedLinError, match=r"pip install 'fedlin\[exact\]'"):
        lyapunov(fedlin.fedlin(), Plan(2, 0.1), TEN)
