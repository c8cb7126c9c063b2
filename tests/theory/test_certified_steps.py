"""Certified steps: below the exact worst case nowhere, proved again here, and kept by runs on problems of all kinds."""

import sys
from fractions import Fraction
from importlib import resources
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedlin
from fedlin import Plan, Stop, problems, simulate, theory
from fedlin.errors import ArgumentError, PlanError, UnknownError
from fedlin.problems.problem import Problem
from fedlin.theory.certified_steps import LAST_STEPS, TABLE, certified_factors, choose, stored_rows, table
from fedlin.theory.exact.build_table import SERIES, Series

Array = NDArray[Any]


def profile(*tau: int) -> Array:
    return np.array(tau)


# The table.


def test_the_table_is_small_and_needs_no_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "clarabel", None)
    assert len(resources.files("fedlin.theory").joinpath(TABLE).read_bytes()) <= 100_000
    assert theory.certified(50.0, [3, 7]).eta.shape == (2,)


@pytest.mark.parametrize("series", SERIES, ids=lambda series: f"from {series.first} steps on, {series.steps[0]}/L")
def test_rows_serve_all_with_so_many_local_steps(series: Series) -> None:
    ranges = list(pairwise(map(float, series.edges)))
    for pair, eta_bar in zip(ranges, series.steps, strict=True):
        (row,) = [row for row in table() if row.kappa == pair and row.eta_bar == float(eta_bar)]
        assert min(row.surplus[series.first - 1 :]) >= 0
        assert 0 < row.loss < 0.15


@pytest.mark.parametrize("first", [1, 2, 4])
def test_every_condition_number_has_a_step_that_serves_all_with_so_many_local_steps(first: int) -> None:
    for kappa in (*np.geomspace(1.5, 1e6, 500), 1.0, *(edge for row in table() for edge in row.kappa)):
        assert choose(kappa, profile(first, 100)).eta_bar > 0.75


def test_rows_say_no_more_than_is_possible() -> None:
    for row in table():
        assert 0 < row.loss < 0.5
        # A client with one local step gains nothing beyond 2/(1 + 1/κ), one with two nothing beyond twice that.
        for count in (1, 2):
            if row.eta_bar > 2 * count / (1 + 1 / row.kappa[0]):
                assert row.surplus[count - 1] < 0


@pytest.mark.parametrize("kappa", [1.6, 3.2, 11.0, 45.0, 300.0, 1e5])
def test_more_steps_than_one_beat_gradient_descent(kappa: float) -> None:
    descent = ((kappa - 1) / (kappa + 1)) ** 2
    assert choose(kappa, profile(1)).factor == pytest.approx(descent)
    assert choose(kappa, profile(2, 2)).factor < descent
    assert choose(kappa, profile(4, 20)).factor < choose(kappa, profile(2, 2)).factor
    # Nothing can be faster than what the flattest functions allow.
    for tau in ((2, 2), (4, 20), (1, 30), (100, 100)):
        found = choose(kappa, profile(*tau))
        full = np.mean([(1 - found.eta_bar / t / kappa) ** t for t in tau]) ** 2
        assert full <= found.factor


@pytest.mark.parametrize("kappa", [2.2, 10.0, 100.0, 1000.0])
def test_steps_are_many_times_those_of_theorem_1(kappa: float) -> None:
    found = choose(kappa, profile(5, 8, 20))
    assert found.eta_bar > (15 if kappa < 5 else 25) / 6
    rounds = np.log(1 - 1 / (6 * kappa)) / np.log(found.factor)  # of Theorem 1's, how many one of these is worth
    assert 1 / rounds > (25 if kappa < 5 else 45)


# Safety.


@pytest.mark.parametrize(
    ("kappa", "tau"),
    [
        (1.2, (3, 3)), (1.9, (4, 5)), (4.4, (2, 2)), (4.4, (3, 6)), (9.0, (5, 5)), (11.0, (2, 4, 6)), (30.0, (1, 4)),
        (30.0, (1, 3, 3, 6, 6, 6)), (77.0, (4, 4)), (300.0, (2, 6)), (2500.0, (1, 5, 5, 5, 5, 5, 5, 5, 5)),
    ],
)  # fmt: skip
def test_what_is_certified_is_never_less_than_the_exact_worst_case(kappa: float, tau: tuple[int, ...]) -> None:
    """Where clients come in many copies, so that none of a kind is alone."""
    pytest.importorskip("clarabel")
    found = choose(kappa, profile(*tau))
    doubled = np.repeat(tau, 2)
    exact = theory.exact.worst_case(
        fedlin.fedlin(), Plan(doubled, found.eta_bar / doubled), theory.exact.Smooth(1.0, 1 / kappa)
    ).solved
    assert exact <= found.factor + 1e-8
    drop, full = 1 - found.factor, 1 - exact
    assert drop >= 0.85 * full, "and little is given away"


@pytest.mark.parametrize("kappa", [1.1, 2.0, 10.0, 200.0])
@pytest.mark.parametrize("tau", [(1, 1), (2, 2), (6, 6), (1, 6), (1, 2, 4)])
def test_the_step_for_every_kappa_and_tau_holds(kappa: float, tau: tuple[int, ...]) -> None:
    """η̄ = 3/(4L), proved by hand."""
    pytest.importorskip("clarabel")
    doubled = np.repeat(tau, 2)
    exact = theory.exact.worst_case(
        fedlin.fedlin(), Plan(doubled, 0.75 / doubled), theory.exact.Smooth(1.0, 1 / kappa)
    ).solved
    assert exact <= 1 - 0.75 / kappa * (1 - 0.75 / kappa)
    beyond = choose(2e6, profile(5, 5))
    assert beyond.eta_bar == 0.75
    assert choose(kappa, profile(101, 5)).eta_bar == 0.75


def test_rows_of_the_table_are_proved_again() -> None:
    """A few clients of every fifth row, in exact arithmetic."""
    pytest.importorskip("clarabel")
    from fedlin.theory.exact.build_table import spans
    from fedlin.theory.exact.client_bound import CommonStep, prove_client

    for number, row in enumerate(stored_rows()[::5]):
        low, high = (1 / Fraction(edge) for edge in reversed(row["kappa"]))
        step = CommonStep((low, high), Fraction(row["eta_bar"]))
        slopes = [(Fraction(a), Fraction(b), Fraction(c)) for a, b, c in row["slopes"]]
        for (first, last), surplus in list(zip(spans(), row["surplus"], strict=True))[number % 3 :: 3]:
            if surplus is not None:
                prove_client(step, Fraction(row["loss"]), slopes, min(last, first + 3), Fraction(surplus))


def test_what_the_table_does_not_say_is_not_proved() -> None:
    pytest.importorskip("clarabel")
    from fedlin.theory.exact import SolverError
    from fedlin.theory.exact.client_bound import CommonStep, prove_client

    row = max((row for row in stored_rows() if row["kappa"][0] == "10"), key=lambda row: float(row["eta_bar"]))
    low, high = (1 / Fraction(edge) for edge in reversed(row["kappa"]))
    slopes = [(Fraction(a), Fraction(b), Fraction(c)) for a, b, c in row["slopes"]]
    loss, surplus = Fraction(row["loss"]), Fraction(row["surplus"][3])
    for step, given in (
        (CommonStep((low, high), Fraction(row["eta_bar"]) * Fraction(11, 10)), surplus),
        (CommonStep((low / 2, high), Fraction(row["eta_bar"])), surplus),
        (CommonStep((low, high), Fraction(row["eta_bar"])), surplus + Fraction(3, 10)),
    ):
        with pytest.raises(SolverError):
            prove_client(step, loss, slopes, 4, given)


# Runs.


def held_out() -> list[tuple[str, Problem]]:
    """Twenty problems that no other test has: quadratics, logistic regression, least squares."""
    found: list[tuple[str, Problem]] = []
    for number in range(8):
        draw = np.random.default_rng(900 + number)
        kappa, dim, clients = draw.uniform(3, 60), int(draw.integers(3, 12)), int(draw.integers(2, 12))
        bases = np.linalg.qr(draw.standard_normal((clients, dim, dim)))[0]
        spectra = np.exp(draw.uniform(0, np.log(kappa), (clients, dim)))
        spectra[:, 0], spectra[:, -1] = 1.0, kappa
        A = np.einsum("cij,cj,ckj->cik", bases, spectra, bases)
        found.append(("quadratic", problems.quadratic(A, 5 * draw.standard_normal((clients, dim)))))
    for number in range(6):
        draw = np.random.default_rng(1900 + number)
        X = draw.standard_normal((6, 40, 5)) * draw.uniform(0.5, 2, 5)
        y = np.sign(X @ draw.standard_normal(5) + draw.standard_normal((6, 40)))
        found.append(("logistic", problems.logistic(X, y, l2=float(draw.uniform(0.02, 0.2)))))
    for number in range(6):
        draw = np.random.default_rng(2900 + number)
        X = draw.standard_normal((8, 30, 6)) * draw.uniform(0.6, 1.6, (8, 1, 1))
        y = np.einsum("cij,cj->ci", X, draw.standard_normal((8, 6)) * 3) + draw.standard_normal((8, 30))
        found.append(("least squares", problems.regression(X, y)))
    return found


@pytest.mark.slow
def test_runs_keep_the_certified_curve_and_take_a_tenth_of_the_rounds() -> None:
    ratios = []
    for number, (kind, problem) in enumerate(held_out()):
        tau = fedlin.draw_steps(problem.clients, *((2, 10), (4, 100), (1, 30))[number % 3], seed=number)
        goal = Stop(distance=1e-10 * float(problem.measure(problem.start)["distance"]))
        counts = []
        for plan in (theory.certified(problem, tau), theory.strongly_convex(problem, tau)):
            run = simulate(fedlin.fedlin(), problem, plan, 20_000, stop=goal, iterates=False)
            assert run.distance[-1] <= 1e-10 * run.distance[0], (number, kind)
            counts.append(run.rounds)
            if len(counts) == 1:
                bound = theory.bounds.certified(problem, tau, run.rounds, float(run.distance[0]))
                assert np.all(run.distance <= bound * (1 + 1e-9)), (number, kind)
        ratios.append(counts[1] / counts[0])
    assert min(ratios) >= 10, np.round(ratios, 1)


def test_steps_that_change_every_round_are_certified_round_by_round() -> None:
    problem = held_out()[0][1]
    tau = fedlin.draw_steps(problem.clients, 1, 12, seed=3, rounds=40)
    plan = theory.certified(problem, tau)
    run = simulate(fedlin.fedlin(), problem, plan, 40)
    bound = theory.bounds.certified(problem, tau, 40, float(run.distance[0]))
    assert len(set(np.round(certified_factors(problem, tau, 40), 12))) > 1
    rounding = 1e-28 * run.distance[0]
    assert bound[-1] < rounding  # so that much of the curve is tested
    assert np.all(run.distance <= np.maximum(bound * (1 + 1e-9), rounding))


def test_weights_count() -> None:
    problem = held_out()[0][1]
    tau = np.where(np.arange(problem.clients) == 0, 1, 20)
    light, heavy = (problem.weighted([share] + [1.0] * (problem.clients - 1)) for share in (1e-4, 30.0))
    assert theory.certified(light, tau).eta[1] > 1.2 * theory.certified(heavy, tau).eta[1]


# What is refused.


@pytest.mark.parametrize("kappa", [0.5, 0.0, -3.0, float("nan"), float("inf"), "10", None])
def test_a_condition_number_below_one_is_refused(kappa: Any) -> None:
    with pytest.raises(ArgumentError, match="κ"):
        theory.certified(kappa, 5)


def test_problems_that_have_no_certified_step_say_so() -> None:
    convex = problems.quadratic(np.array([np.diag([1.0, 0.0])] * 2), np.zeros((2, 2)))
    with pytest.raises(UnknownError, match="strongly convex"):
        theory.certified(convex, 3)
    rows = problems.least_squares(clients=2, dim=3, samples=20)
    with pytest.raises(UnknownError, match="noisy gradients"):
        theory.certified(problems.minibatch(rows, 4), 3)
    with pytest.raises(PlanError, match="tau"):
        theory.certified(rows, 0)
    with pytest.raises(PlanError, match="2 rows for 3 rounds"):
        theory.bounds.certified(rows, [[1, 2], [2, 2]], rounds=3, distance0=1.0)
    with pytest.raises(PlanError, match="clients"):
        simulate(fedlin.fedlin(), rows, theory.certified(rows, [1, 2, 3]), 1)


assert LAST_STEPS[-1] == 100
