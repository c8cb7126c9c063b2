"""Steps and bounds against their formulas, on numbers that no wrong formula shares: L, μ and ω of no special value."""

import inspect
from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedlin import theory
from fedlin.errors import ArgumentError, FedLinError, PlanError
from fedlin.problems import quadratic
from fedlin.theory import bounds, certified_steps
from fedlin.theory.accelerated_steps import mask_share
from fedlin.theory.certified_steps import CertifiedStep, certified, certified_factors, proved_steps

Array = NDArray[np.float64]
MU, L = 0.4, 7.0
KAPPA = L / MU
OMEGA = 2.5
# Four clients whose minimisers differ, and with them their gradients at x*.
CURVATURES = np.array([[MU, L], [MU, 0.76], [1.3, L], [MU, 2.0]])
LINEAR = np.array([[1.0, -2.0], [0.5, 3.0], [-1.5, 0.2], [2.0, 1.0]])
PROBLEM = quadratic([np.diag(row) for row in CURVATURES], LINEAR)
SPHERES = quadratic(0.7 * np.stack([np.eye(2)] * 4), LINEAR)  # κ = 1


def takes_a_problem(module: Any) -> list[Any]:
    """The public functions whose first argument is a problem."""
    functions = [getattr(module, name) for name in module.__all__]
    return [f for f in functions if inspect.isfunction(f) and next(iter(inspect.signature(f).parameters)) == "problem"]


EVERY_FUNCTION = [*takes_a_problem(theory), *takes_a_problem(bounds)]


@pytest.mark.parametrize("function", EVERY_FUNCTION, ids=lambda f: f"{f.__module__.rpartition('.')[2]}.{f.__name__}")
def test_what_is_no_problem_is_refused_in_words(function: Callable[..., Any]) -> None:
    others = [p for p in list(inspect.signature(function).parameters.values())[1:] if p.default is p.empty]
    with pytest.raises(FedLinError, match="no problem"):
        function("no problem", *[1.0] * len(others))


def test_every_theorem_keeps_its_name_and_words() -> None:
    assert len(EVERY_FUNCTION) > 50
    for function in EVERY_FUNCTION:
        assert function.__doc__
        assert function.__name__ in (*theory.__all__, *bounds.__all__)


def test_the_pace_and_the_coin_of_locodl() -> None:
    """ρ = 1/(1 + ω/m), and p² = ((1 + 2ω)/ρ)(1 - (1 - μ/(2L))²), at most 1."""
    pace = 1 / (1 + OMEGA / 4)
    assert theory.locodl_pace(PROBLEM, OMEGA) == pytest.approx(pace, rel=1e-14)
    rate = 1 - (1 - 1 / (2 * KAPPA)) ** 2
    assert theory.locodl_probability(PROBLEM, OMEGA) == pytest.approx(sqrt(rate * (1 + 2 * OMEGA) / pace), rel=1e-13)
    assert theory.locodl_probability(PROBLEM, 100.0) == 1.0


def test_the_bound_of_locodl() -> None:
    p, omega, x0 = 0.6, OMEGA, np.array([2.0, -1.0])
    best = LINEAR.mean(axis=0) / CURVATURES.mean(axis=0)
    slopes = CURVATURES * best - LINEAR
    nu, share = MU / 2, p**2 / (1 + omega / 4) / (1 + 2 * omega)
    dual = sum(float((row - nu * best) @ (row - nu * best)) for row in slopes) / 4 + float(nu * best @ (nu * best))
    start = 2 * float((x0 - best) @ (x0 - best)) + dual / (L**2 * share)
    worst = max((1 - nu / L) ** 2, 1 - share)
    round_factor = p * worst / (1 - (1 - p) * worst)
    expected = [sqrt(start * round_factor**t) for t in range(4)]
    np.testing.assert_allclose(bounds.locodl(PROBLEM, 3, x0, p, omega), expected, rtol=1e-12)


def test_the_bound_of_compressed_scaffnew_where_the_steps_decide() -> None:
    """Every client sends every entry, χb = 1: 1 - 1/τ² is below (1 - μ/L)²."""
    worst = (1 - MU / L) ** 2
    round_factor = 0.5 * worst / (1 - 0.5 * worst)
    expected = [sqrt((3.0 + 4 / L**2 * 11.0) * round_factor**t) for t in range(3)]
    np.testing.assert_allclose(bounds.compressed_scaffnew(PROBLEM, 2, 3.0, 11.0, 2, 4), expected, rtol=1e-12)


def test_what_the_compression_of_clients_leaves() -> None:
    """χb = m(s - 1)²/(s(m - 1)²), of two clients at least and of at least two that send an entry."""
    assert mask_share(2, 2) == 1.0
    assert mask_share(5, 3) == pytest.approx(5 * 4 / (3 * 16), rel=1e-15)
    for clients, sparsity in ((1, 2), (3, 1), (3, 4)):
        with pytest.raises(FedLinError):
            mask_share(clients, sparsity)
    assert int(theory.compressed_scaffnew(SPHERES, 2).tau) == 1  # ⌊1/p⌋, and at least one step


def test_the_local_steps_of_gradskip() -> None:
    """1/(1 - q_i(1 - p)) with q_i = (1 - μ/L_i)/(1 - μ/L), rounded up; one step where all curvatures are the same."""
    p = 1 / sqrt(KAPPA)
    q = (1 - MU / CURVATURES.max(axis=1)) / (1 - 1 / KAPPA)
    expected = np.ceil(1 / (1 - q * (1 - p)) - 1e-9)
    np.testing.assert_array_equal(theory.gradskip(PROBLEM).tau, expected)
    assert expected.tolist() == [5, 2, 5, 3]
    assert theory.gradskip(SPHERES).tau.tolist() == [1, 1, 1, 1]
    double = quadratic([np.diag([1.0, 2.0]), np.eye(2)], np.ones((2, 2)))
    assert theory.gradskip(double).tau.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("clients", "omega", "q", "eta"),
    [
        (4, 0.0, 1.0, 1 / (2 * L)),
        (4, 8.0, 1 / 18, 4 / (64 * 8 * L * 4)),  # 2q(1 + ω) = 1
        (100, 0.1, 1.0, 1 / (2 * L)),  # √(m/(32ω)) - 1 = 4.59 is more than 2(1 + ω)
        (200, 1.0, 0.375, 1 / (2 * L)),
    ],
)
def test_the_steps_of_adiana(clients: int, omega: float, q: float, eta: float) -> None:
    many = quadratic(np.stack([np.diag([MU, L])] * clients), np.ones((clients, 2)))
    assert theory.adiana_probability(many, omega) == pytest.approx(q, rel=1e-13)
    plan = theory.adiana(many, omega)
    assert int(plan.tau) == 1
    assert float(plan.eta) == pytest.approx(eta, rel=1e-13)


def test_the_bound_of_newtons_steps_beyond_twice_the_curvature() -> None:
    """Curvatures 1 and 9: M = (1 + 1/9)/2 · 5 = 25/9."""
    M = 25 / 9
    expected = 3 * ((M - 1) / (M + 1)) ** np.array([0, 2, 4])
    measured = bounds.fedlin_newton(quadratic([[[1.0]], [[9.0]]], [[0.0], [1.0]]), 2, 3.0)
    np.testing.assert_allclose(measured, expected, rtol=1e-12)


def test_the_factor_of_momentum() -> None:
    """q = c/κ, c the least of 1 - (1 - 1/τ_i)^τ_i, which is that of the most local steps."""
    tau = np.array([1, 3, 5, 2])
    q = float(np.min(1 - (1 - 1 / tau) ** tau)) / KAPPA
    assert theory.momentum_factor(PROBLEM, tau) == pytest.approx((1 - sqrt(q)) / (1 + sqrt(q)), rel=1e-13)


def test_the_steps_and_the_bound_of_marina() -> None:
    """η = 1/(L̃ + √(2(1 - p)ω Σ w_i²L_i²/p)), at most p/(2μ); the μ is that of f, which is larger than the least μ_i."""
    omega, p = 1.3, 0.3
    each = CURVATURES.max(axis=1)
    smooth, errs = sqrt(float(np.mean(each**2))), 2 * (1 - p) * omega * float(np.sum(each**2)) / 16 / p
    eta = 1 / (smooth + sqrt(errs))
    assert float(theory.marina(PROBLEM, omega, p).eta) == pytest.approx(eta, rel=1e-13)
    mu = PROBLEM.polyak_lojasiewicz
    assert mu not in (1.0, 0.0)
    np.testing.assert_allclose(bounds.marina(PROBLEM, 2, 3.0, omega, p), 3 * (1 - eta * mu) ** np.arange(3), rtol=1e-12)
    assert float(theory.marina(SPHERES, 0.0, 0.1).eta) == pytest.approx(0.1 / 1.4, rel=1e-13)


@pytest.mark.parametrize("server_step", [0.5, 3.0])
def test_the_bound_of_fedcomgate(server_step: float) -> None:
    """a = min{1, γ}/(4L(1 + ω))."""
    a = min(1.0, server_step) / (4 * L * 1.2)
    expected = (1 - a * MU / 2) ** np.arange(3) * (2.0 + a / 4 * 5.0)
    measured = bounds.fedcomgate(PROBLEM, 2, 2.0, 5.0, omega=0.2, server_step=server_step)
    np.testing.assert_allclose(measured, expected, rtol=1e-13)


# Certified steps.


def test_the_certified_curve_begins_at_the_distance() -> None:
    factors = certified_factors(PROBLEM, 5, 3)
    np.testing.assert_allclose(bounds.certified(PROBLEM, 5, 3, 3.0), 3 * np.cumprod([1.0, *factors]), rtol=1e-14)


def test_the_factor_on_quadratics_leaves_a_margin() -> None:
    """Of clients that are alike a round is (I - ηA)^τ; a fiftieth of its drop is left to rounding."""
    alike = quadratic([np.diag([1.0, 4.0])] * 3, np.ones((3, 2)))

    def certain(step: certified_steps.Chosen) -> float:
        norm = max(abs(1 - step.eta_bar / 4 / 2 * curvature) ** 2 for curvature in (1.0, 4.0))
        return min(step.factor, (norm + 0.02 * (1 - norm)) ** 2)

    proved = proved_steps(4.0, np.array([2, 2, 2]))
    assert certified_factors(alike, 2, 1)[0] == pytest.approx(min(map(certain, proved)), rel=1e-12)
    assert min(map(certain, proved)) < min(step.factor for step in proved)


@pytest.mark.parametrize(("most", "measured"), [(48, True), (47, False)])
def test_large_quadratics_are_taken_as_any_functions(
    monkeypatch: pytest.MonkeyPatch, most: int, measured: bool
) -> None:
    """The work is that of a product of matrices for each client and each row of τ: here 2 · 3 · 2³ = 48."""
    monkeypatch.setattr(certified_steps, "_MOST_WORK", most)
    problem = quadratic([np.diag([1.0, 4.0])] * 3, np.ones((3, 2)))
    tau = np.array([[2, 3, 4], [5, 2, 2]])
    on_any = [min(step.factor for step in proved_steps(4.0, row)) for row in tau]
    assert np.all(certified_factors(problem, tau, 2) < on_any) == measured
    if not measured:
        np.testing.assert_allclose(certified_factors(problem, tau, 2), on_any, rtol=1e-14)


def test_rounds_fewer_than_the_rows_of_tau() -> None:
    tau = np.array([[2, 3], [5, 2], [4, 4]])
    np.testing.assert_array_equal(certified_factors(10.0, tau, 2), certified_factors(10.0, tau, 3)[:2])
    with pytest.raises(PlanError, match="3 rows for 4 rounds"):
        certified_factors(10.0, tau, 4)


def test_one_number_in_a_list_is_for_all_clients() -> None:
    assert float(certified(PROBLEM, [5]).eta[0]) == float(certified(PROBLEM, 5).eta)
    with pytest.raises(PlanError):
        certified(PROBLEM, [5, 5])


@pytest.mark.parametrize("kappa", [1.0, 1.5])
def test_any_condition_number_has_steps(kappa: float) -> None:
    assert certified(kappa, 5).eta > 0
    with pytest.raises(ArgumentError):
        certified(kappa - 1, 5)


def test_a_small_surplus_of_every_client_is_enough() -> None:
    row = CertifiedStep((1.0, 10.0), 1.0, 0.1, (1e-13,) * 9)
    assert row.serves(np.array([2, 3]), np.array([0.5, 0.5]))
