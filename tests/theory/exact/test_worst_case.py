"""Worst cases: known exact rates, symmetry, proofs that can fail, and functions on which the simulator attains them."""

import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import fedlin
from fedlin import Plan, plain, simulate
from fedlin.errors import ArgumentError, FedLinError, PlanError
from fedlin.theory.exact import (
    Dissimilar,
    PolyakLojasiewicz,
    Quadratics,
    Smooth,
    SolverError,
    UnboundedError,
    contraction,
    semidefinite,
    worst_case,
)
from fedlin.theory.exact.certificate import Certificate, prove_semidefinite

TEN = Smooth(1.0, 0.1)
FEDLIN = fedlin.fedlin()


# Known answers.


@pytest.mark.parametrize("eta", [0.5, 1.0, 1.9])
def test_gradient_descent_has_its_exact_rate(eta: float) -> None:
    case = worst_case(fedlin.gradient_descent(), Plan(1, eta), TEN)
    assert case.factor == pytest.approx(max((1 - 0.1 * eta) ** 2, (1 - eta) ** 2), rel=1e-5)


@pytest.mark.parametrize(
    ("tau", "eta_bar", "expected"),
    [
        (1, 1 / 6, 0.9669), (1, 1, 0.81), (1, 2, 1.0),
        (2, 1 / 6, 0.9671), (2, 1, 0.8145), (2, 2, 0.6561), (2, 3, 0.5220), (2, 5, 5.0625),
        (5, 1 / 6, 0.9672), (5, 1, 0.8171), (5, 2, 0.6648), (5, 3, 0.5386), (5, 5, 0.3487),
        (5, 6, 0.4182), (5, 8, 0.8595),
    ],
)  # fmt: skip
def test_fedlin_at_condition_ten(tau: int, eta_bar: float, expected: float) -> None:
    """Found independently with PEPit, to its solver's default accuracy."""
    assert worst_case(FEDLIN, Plan(tau, eta_bar / tau), TEN).factor == pytest.approx(expected, rel=1e-3)


def test_one_local_step_is_gradient_descent() -> None:
    alone = worst_case(fedlin.gradient_descent(), Plan([1, 1, 1], 1.3), TEN).solved
    assert worst_case(FEDLIN, Plan([1, 1, 1], 1.3), TEN).solved == pytest.approx(alone, rel=1e-7)


@pytest.mark.parametrize("rounds", [1, 3])
def test_the_gap_of_convex_functions_falls_like_that_of_gradient_descent(rounds: int) -> None:
    """L/(2 + 4ηLT), gradient descent's exact rate, holds for two local steps too."""
    eta_bar = 1 / 6
    case = worst_case(FEDLIN, Plan(2, eta_bar / 2), Smooth(1.0), measure="gap", before="distance", rounds=rounds)
    assert case.factor == pytest.approx(1 / (2 + 4 * eta_bar * rounds), rel=1e-5)


@pytest.mark.parametrize("rounds", [1, 2])
def test_the_gradient_of_convex_functions_falls_as_known(rounds: int) -> None:
    """‖∇f(x_T)‖² is at most 2L/(2T + 1) times the first gap and L²/(T + 1)² times ‖x_0 - x*‖², both exact at η = 1/L.

    Nothing about ‖x_0 - x*‖² is in the first, so that products with x_0 must cancel exactly in its proof.
    """
    plan, method, convex = Plan(1, 1.0), fedlin.gradient_descent(), Smooth(1.0)
    by_gap = worst_case(method, plan, convex, measure="gradient", before="gap", rounds=rounds)
    assert by_gap.factor == pytest.approx(2 / (2 * rounds + 1), rel=1e-5)
    by_distance = worst_case(method, plan, convex, measure="gradient", before="distance", rounds=rounds)
    assert by_distance.factor == pytest.approx(1 / (rounds + 1) ** 2, rel=1e-5)
    assert worst_case(FEDLIN, Plan(2, 0.1), convex, measure="gap", rounds=rounds).factor == pytest.approx(1, rel=1e-4)


def test_factors_do_not_depend_on_units() -> None:
    scaled = worst_case(FEDLIN, Plan(3, 1.9 / 50), Smooth(50.0, 5.0))
    assert scaled.solved == pytest.approx(worst_case(FEDLIN, Plan(3, 1.9), TEN).solved, rel=1e-6)


@pytest.mark.parametrize("kappa", [100.0, 1000.0])
@pytest.mark.parametrize("eta_bar", [1 / 6, 1.0, 3.0, 5.0])
def test_large_condition_numbers_are_solved_and_proved(kappa: float, eta_bar: float) -> None:
    tau = 4
    full = (1 - eta_bar / tau / kappa) ** (2 * tau)
    assert full - 1e-9 <= worst_case(FEDLIN, Plan(tau, eta_bar / tau), Smooth(1.0, 1 / kappa)).factor <= full + 2e-6


# Symmetry.


@pytest.mark.parametrize("clients", [2, 3, 4])
def test_the_reduction_by_symmetry_is_exact_for_every_number_of_clients(clients: int) -> None:
    """Weights that differ a little make every client a group of its own, which is the program without reduction."""
    eta = 5.5 / 3
    apart = [1 + 1e-9 * number for number in range(clients)]
    reduced = worst_case(FEDLIN, Plan([3] * clients, eta), TEN)
    whole = worst_case(FEDLIN, Plan([3] * clients, eta), TEN, weights=apart)
    assert len(reduced._trace.groups) == 1
    assert len(whole._trace.groups) == clients
    assert reduced.solved == pytest.approx(whole.solved, rel=1e-6)
    assert reduced.solved == pytest.approx(worst_case(FEDLIN, Plan(3, eta), TEN).solved, rel=1e-7)


def test_unequal_clients_reduce_too() -> None:
    plan = Plan([1, 3, 3], np.array([2.4, 0.8, 0.8]))
    whole = worst_case(FEDLIN, plan, TEN, weights=[1, 1 + 1e-9, 1 - 1e-9])
    assert worst_case(FEDLIN, plan, TEN).solved == pytest.approx(whole.solved, rel=1e-6)


def test_linear_terms_cost_fedlin_nothing() -> None:
    """Clients that share x* are as bad as any for FedLin; for FedAvg no factor holds where they do not."""
    free = worst_case(FEDLIN, Plan(3, 1.8), TEN, dissimilarity=1e-9)
    assert free.solved == pytest.approx(worst_case(FEDLIN, Plan(3, 1.8), TEN).solved, rel=1e-4)
    with pytest.raises(UnboundedError, match="shared_minimizer"):
        worst_case(fedlin.fedavg(), Plan(3, 0.5), TEN).factor  # noqa: B018
    assert worst_case(fedlin.fedavg(), Plan(3, 0.5), TEN, shared_minimizer=True).factor < 1
    assert worst_case(fedlin.fedprox(1.0), Plan(3, 0.5), TEN, dissimilarity=10.0).factor < 2


# Proofs.


def case_beyond_the_full_rate() -> Any:
    return worst_case(FEDLIN, Plan(3, 5.5 / 3), TEN)


def test_a_stored_proof_is_checked_without_a_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_beyond_the_full_rate()
    stored = case.certificate.rounded
    factor = case.factor
    monkeypatch.setattr(semidefinite, "load_solver", lambda: pytest.fail("a solver was asked for"))
    case_beyond_the_full_rate().prove(factor, stored)


def test_a_proof_fails_where_anything_is_wrong() -> None:
    case = case_beyond_the_full_rate()
    stored, factor = case.certificate.rounded, case.factor
    with pytest.raises(SolverError):
        case.prove(0.999 * factor, stored)
    for number in np.flatnonzero(np.array(stored) > 1e-2)[:4]:
        changed = list(stored)
        changed[number] *= 1.5
        with pytest.raises(SolverError):
            case.prove(factor, changed)
    with pytest.raises(SolverError, match="numbers were given"):
        case.prove(factor, stored[:-1])
    with pytest.raises(SolverError):  # another method, another plan, another class
        worst_case(FEDLIN, Plan(3, 5.6 / 3), TEN).prove(factor, stored)
    with pytest.raises(SolverError):
        worst_case(FEDLIN, Plan(3, 5.5 / 3), Smooth(1.0, 0.09)).prove(factor, stored)


def test_a_negative_multiplier_proves_nothing() -> None:
    certificate = case_beyond_the_full_rate().certificate
    numbers = list(certificate.numbers)
    numbers[certificate.program.nonnegative[0]] = Fraction(-1, 10**9)
    with pytest.raises(SolverError, match="negative"):
        Certificate(certificate.program, tuple(numbers)).check()


def test_semidefinite_is_decided_beyond_rounding() -> None:
    tiny = Fraction(1, 10**12)
    prove_semidefinite([[Fraction(1), 1 - tiny], [1 - tiny, Fraction(1)]])
    with pytest.raises(SolverError):
        prove_semidefinite([[Fraction(1), 1 + tiny], [1 + tiny, Fraction(1)]])
    # Rank one: a combination of rows is zero, exactly.
    prove_semidefinite([[Fraction(1), Fraction(2, 3)], [Fraction(2, 3), Fraction(4, 9)]])


@pytest.mark.parametrize(
    ("method", "plan", "functions", "options"),
    [
        (FEDLIN, Plan(4, 5.6 / 4), TEN, {"measure": "gradient"}),
        (FEDLIN, Plan(4, 5.6 / 4), TEN, {"measure": "gap"}),
        (FEDLIN, Plan(3, 1.8), Quadratics(1.0, 0.1), {}),
        (fedlin.fedlin(downlink=plain(contraction(4.0))), Plan(2, 1 / 16), TEN, {"measure": "gap"}),
        (fedlin.scaffold(), Plan(2, 0.1), TEN, {"rounds": 2, "dissimilarity": 1.0}),
        (FEDLIN, Plan(2, 1 / 52), PolyakLojasiewicz(1.0, 0.1), {"measure": "gap"}),
        (FEDLIN, Plan(2, 0.05), Smooth(1.0), {"measure": "gap", "before": "distance", "rounds": 3, "model": "mean"}),
        (FEDLIN, Plan(2, 0.5), Dissimilar(1.0, 0.1, 2.0), {}),
    ],
)
def test_whatever_is_bounded_is_proved(method: Any, plan: Plan, functions: Any, options: dict[str, Any]) -> None:
    case = worst_case(method, plan, functions, **options)
    assert case.solved <= case.factor * (1 + 1e-7)
    assert case.factor == pytest.approx(case.solved, rel=1e-4)


# The worst functions, in the simulator.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "functions"),
    [
        (Plan(3, 5.5 / 3), TEN),
        (Plan(5, 6 / 5), TEN),
        (Plan(2, 2.5), Smooth(3.0, 0.1)),
        (Plan([1, 4], [3.0, 0.75]), TEN),
        (Plan([3, 3, 3], 1.8), Smooth(1.0, 0.01)),
        (Plan(5, 6 / 5), Quadratics(1.0, 0.1)),
    ],
    ids=["three steps", "five steps", "unstable", "unequal", "three clients", "quadratics"],
)
def test_the_simulator_attains_the_factor_on_the_worst_functions(plan: Plan, functions: Any) -> None:
    case = worst_case(FEDLIN, plan, functions)
    worst = case.worst_functions
    assert worst.problem.dim <= 10
    assert worst.problem.smoothness == pytest.approx(functions.smoothness, rel=1e-6)
    assert worst.problem.strong_convexity >= functions.strong_convexity * (1 - 1e-6)
    assert np.linalg.norm(worst.problem.grad(np.zeros(worst.problem.dim))) < 1e-5
    distance = simulate(FEDLIN, worst.problem, worst.plan, 1, x0=worst.x0).distance
    measured = distance[1] / distance[0]
    assert measured <= case.factor
    assert measured >= case.factor * (1 - 1e-4)


def test_worst_functions_are_smooth_and_strongly_convex() -> None:
    problem = worst_case(FEDLIN, Plan(5, 6 / 5), TEN).worst_functions.problem
    draw = np.random.default_rng(0)
    for _ in range(20):
        x, y = draw.standard_normal((2, problem.dim)) * 10 ** draw.uniform(-2, 0)
        move, change = x - y, problem.grad(x) - problem.grad(y)
        product = move @ change
        # (∇f(x) - ∇f(y) - μ(x - y)) and (L(x - y) - ∇f(x) + ∇f(y)) never point against each other.
        assert (change - 0.1 * move) @ (move - change) >= -1e-9 * product


def test_worst_functions_are_not_built_for_compressors() -> None:
    case = worst_case(fedlin.fedlin(downlink=plain(contraction(2.0))), Plan(1, 0.1), TEN)
    with pytest.raises(ArgumentError, match="without compressors"):
        case.worst_functions  # noqa: B018


# What has no answer.


@pytest.mark.parametrize(
    ("method", "match"),
    [
        (fedlin.fedlin(uplink=fedlin.top_k(2)), "contraction"),
        (fedlin.diana(fedlin.natural(), 0.5), "contraction"),
        (fedlin.scaffnew(), "at random"),
        (fedlin.compressed(3), "contraction"),
        (fedlin.fedac(), "add and scale"),
        (fedlin.s_local_svrg(0.5), "add and scale"),
    ],
)
def test_methods_without_an_exact_answer_are_refused(method: Any, match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        worst_case(method, Plan(2, 0.1), TEN)


@pytest.mark.parametrize(
    "arguments",
    [
        (0.5, 1.0), (1.0, 1.0), (1.0, -0.1), (-1.0, 0.0), (float("nan"), 0.1), (1.0, float("inf")), ("1", 0.1),
    ],
)  # fmt: skip
def test_classes_need_a_smoothness_above_the_strong_convexity(arguments: Any) -> None:
    with pytest.raises(ArgumentError, match=r"smoothness|strong_convexity"):
        Smooth(*arguments)


def test_bad_requests_are_refused_before_any_work() -> None:
    with pytest.raises(PlanError, match="above 0"):
        worst_case(FEDLIN, Plan(2, -0.1), TEN)
    with pytest.raises(PlanError, match="every round"):
        worst_case(FEDLIN, Plan(2, np.full((3, 2), 0.1)), TEN)
    with pytest.raises(ArgumentError, match="at most"):
        worst_case(FEDLIN, Plan(50, 0.1), TEN)
    with pytest.raises(ArgumentError, match="measure"):
        worst_case(FEDLIN, Plan(2, 0.1), TEN, measure="loss")
    with pytest.raises(ArgumentError, match="rounds"):
        worst_case(FEDLIN, Plan(2, 0.1), TEN, rounds=0)
    with pytest.raises(ArgumentError, match="weights"):
        worst_case(FEDLIN, Plan([2, 2], 0.1), TEN, weights=[1.0, 0.0])
    with pytest.raises(ArgumentError, match="weights"):
        worst_case(FEDLIN, Plan(2, 0.1), TEN, weights=[1.0, 2.0])
    with pytest.raises(ArgumentError, match="dissimilarity"):
        Dissimilar(1.0, 0.1, 0.5)


def test_a_missing_solver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "clarabel", None)
    with pytest.raises(FedLinError, match=r"pip install 'fedlin\[exact\]'"):
        worst_case(FEDLIN, Plan(2, 0.1), TEN).factor  # noqa: B018
