"""The proofs of the accelerated methods: what each step of them claims, and the bound over many seeds."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedlin
from fedlin import rand_k
from fedlin.algorithms.compressed_scaffnew import selected
from fedlin.errors import FedLinError
from fedlin.precision import precision
from fedlin.theory import bounds
from quadratics import CLIENTS, DIM, X0, A, Array, B, problem

SEEDS, ROUNDS = 25, 40
BEST = problem().minimizer
SLOPES = np.einsum("ijk,k->ij", A, BEST) - B  # ∇f_i(x*)
SPREAD = float(np.mean(np.sum(SLOPES**2, axis=1)))
START = float(np.sum((X0 - BEST) ** 2))


def mean_distance(algorithm: fedlin.Algorithm[Any, Any], plan: fedlin.Plan, share: float = 1.0) -> Array:
    """‖x_T - x*‖ over all seeds."""
    runs = [
        fedlin.simulate(algorithm, problem(), plan, ROUNDS, seed=seed, x0=X0, participation=share)
        for seed in range(SEEDS)
    ]
    return np.asarray(np.mean([np.sqrt(run.distance) for run in runs], axis=0))


def assert_bounded(measured: Array, bound: Array) -> None:
    """Below the bound, which says something: over the rounds it falls by a factor of two or more."""
    assert np.all(measured <= bound * (1 + 1e-9))
    assert bound[-1] < bound[0] / 2


@pytest.mark.parametrize("cohort", [CLIENTS, 4])
def test_the_pattern_averages_as_its_proof_says(cohort: int) -> None:
    """Over all cohorts and orders: R is unbiased up to b, of mean square b; the mean of s has the variance 1 - χ."""
    s = 3
    rng = np.random.default_rng(0)
    x = rng.standard_normal((CLIENTS, DIM))
    left = x - x.mean(axis=0)
    masks = np.zeros((CLIENTS, DIM))  # those beyond the cohort send nothing
    for column in range(cohort):
        places = np.asarray(selected(jnp.int32(column), DIM, s, cohort))
        masks[column, places[places < DIM]] = 1
    first = second = variance = 0.0
    draws = 4000
    for _ in range(draws):
        q = masks[rng.permutation(CLIENTS)]
        mean = (q * x).sum(axis=0) / s
        R = q * (x - mean)
        first, second = first + R / draws, second + np.sum(R**2) / draws
        variance += CLIENTS * np.sum((mean - x.mean(axis=0)) ** 2) / draws
    b, chi = (s - 1) / (CLIENTS - 1), CLIENTS * (s - 1) / (s * (CLIENTS - 1))
    np.testing.assert_allclose(first, b * left, atol=0.03)
    assert second == pytest.approx(b * np.sum(left**2), rel=0.03)
    assert variance == pytest.approx((1 - chi) * np.sum(left**2), rel=0.05)


def test_differences_to_a_second_model_vary_as_its_proof_says() -> None:
    """Σ‖x_i - y‖² ≤ 2‖A⊥‖², attained; the mean's error is at most (ω/m)‖A⊥‖², and E‖R‖² at most (1 + 2ω)‖A⊥‖²."""
    rng = np.random.default_rng(1)
    compressor, omega = rand_k(2, unbiased=True), DIM / 2 - 1
    with precision(np.float64):
        encode = jax.jit(jax.vmap(jax.vmap(compressor), in_axes=(0, None)))
        for trial in range(3):
            x, y = rng.standard_normal((CLIENTS, DIM)), rng.standard_normal(DIM)
            if trial == 2:
                x = np.tile(x[:1], (CLIENTS, 1))  # all clients alike and the second model elsewhere: the worst
            middle = (x.sum(axis=0) + CLIENTS * y) / (2 * CLIENTS)
            left = np.sum((x - middle) ** 2) + CLIENTS * np.sum((y - middle) ** 2)
            assert np.sum((x - y) ** 2) <= 2 * left * (1 + 1e-12)
            keys = jax.random.split(jax.random.key(trial), (1500, CLIENTS))
            sent = np.asarray(encode(keys, jnp.asarray(x - y)))
            mean = sent.sum(axis=1) / (2 * CLIENTS)
            error = 2 * CLIENTS * np.mean(np.sum((y + mean - middle) ** 2, axis=1))
            square = np.mean(np.sum((sent - mean[:, None]) ** 2, axis=(1, 2)) + CLIENTS * np.sum(mean**2, axis=1))
            assert error <= omega / CLIENTS * left * 1.05
            assert square <= (1 + 2 * omega) * left * 1.02


@pytest.mark.long
@pytest.mark.parametrize("sparsity", [2, 4])
def test_compressed_scaffnew_keeps_its_bound(sparsity: int) -> None:
    plan = fedlin.theory.compressed_scaffnew(problem(), sparsity)
    tau = int(plan.tau)
    bound = bounds.compressed_scaffnew(problem(), ROUNDS, START, SPREAD, tau, sparsity)
    assert_bounded(mean_distance(fedlin.compressed_scaffnew(CLIENTS, sparsity), plan), bound)


@pytest.mark.long
@pytest.mark.parametrize(("cohort", "sparsity"), [(2, 2), (5, 4)])
def test_tamuna_keeps_its_bound(cohort: int, sparsity: int) -> None:
    plan = fedlin.theory.tamuna(problem(), sparsity)
    bound = bounds.tamuna(problem(), ROUNDS, START, SPREAD, int(plan.tau), sparsity)
    assert_bounded(mean_distance(fedlin.tamuna(CLIENTS, cohort, sparsity), plan, cohort / CLIENTS), bound)


@pytest.mark.long
def test_marina_keeps_its_bounds() -> None:
    """Clients that count differently, whose errors are not averaged as well."""
    compressor, omega, p = rand_k(2, unbiased=True), DIM / 2 - 1, 0.3
    weighted = problem().weighted(np.arange(1.0, CLIENTS + 1))
    plan = fedlin.theory.marina(weighted, omega, p)
    runs = fedlin.simulate_many(
        fedlin.marina(compressor, p), weighted, plan, 4 * ROUNDS, seeds=list(range(SEEDS)), x0=X0
    )
    gap = np.mean([run.gap for run in runs], axis=0)
    assert_bounded(gap, bounds.marina(weighted, 4 * ROUNDS, float(gap[0]), omega, p))
    squares = np.mean([run.grad_norm**2 for run in runs], axis=0)
    means = np.cumsum(squares[:-1]) / np.arange(1, 4 * ROUNDS + 1)
    assert np.all(means <= bounds.marina_nonconvex(weighted, 4 * ROUNDS, float(gap[0]), omega, p)[1:])


def test_the_estimate_of_marina_errs_as_its_proof_says() -> None:
    """After the first round in which differences are sent: unbiased, and of the variance that the step pays for."""
    compressor, omega, draws = rand_k(2, unbiased=True), DIM / 2 - 1, 400
    eta = float(fedlin.theory.marina(problem(), omega, 0.01).eta)
    first, second = X0, X0 - eta * problem().grad(X0)
    runs = fedlin.simulate_many(
        fedlin.marina(compressor, 1e-6), problem(), fedlin.Plan(1, eta), 2, seeds=list(range(draws)), x0=X0
    )
    estimates = np.array([(run.iterates[1] - run.iterates[2]) / eta for run in runs])
    errors = estimates - problem().grad(second)
    most = omega * np.sum(problem().smoothness_each ** 2) / CLIENTS**2 * np.sum((second - first) ** 2)
    found = np.mean(np.sum(errors**2, axis=1))
    assert 0 < found <= most
    assert np.sum(errors.mean(axis=0) ** 2) < 10 * found / draws


@pytest.mark.long
def test_locodl_keeps_its_bound() -> None:
    omega = DIM / 3 - 1
    p, pace = fedlin.theory.locodl_probability(problem(), omega), fedlin.theory.locodl_pace(problem(), omega)
    measured = mean_distance(fedlin.locodl(rand_k(3, unbiased=True), p, pace), fedlin.theory.locodl(problem()))
    assert_bounded(measured, bounds.locodl(problem(), ROUNDS, X0, p, omega))


@pytest.mark.long
def test_gradskip_keeps_its_bound_with_fewer_gradients() -> None:
    p, plan = fedlin.theory.gradskip_probability(problem()), fedlin.theory.gradskip(problem())
    assert plan.tau.max() <= np.ceil(1 / p)
    assert_bounded(mean_distance(fedlin.gradskip(p), plan), bounds.gradskip(problem(), ROUNDS, START, SPREAD))


def test_the_shares_of_gradskip_are_those_of_its_proof() -> None:
    """γ = 1/L ≤ p²/(L_i(1 - q_i(1 - p²))) for the q_i that the plan's τ_i stand for."""
    mixed = fedlin.problems.quadratic(A * np.linspace(0.2, 3, CLIENTS)[:, None, None], B)
    plan, p = fedlin.theory.gradskip(mixed), fedlin.theory.gradskip_probability(mixed)
    q = np.minimum((1 - 1 / plan.tau) / (1 - p), 1)
    most = p**2 / (mixed.smoothness_each * (1 - q * (1 - p**2)))
    assert np.all(plan.eta <= most * (1 + 1e-9))
    assert len(set(plan.tau.tolist())) > 1


def test_a_round_of_a_coin_is_worth_its_mean() -> None:
    """E r^T, T geometric, against the sum of its series."""
    p, r = 0.2, 0.9
    series = sum(p * (1 - p) ** (t - 1) * r**t for t in range(1, 400))
    assert bounds.coin_rounds(r, p, 2)[2] == pytest.approx(series, rel=1e-12)


# Numbers worked out by hand, of four clients with L = 100 and μ = 1.

ALIKE = fedlin.problems.quadratic([np.diag([1.0, 100.0])] * 4, np.ones((4, 2)))


def falling(worst: float, p: float) -> Array:
    """(E worst^T)^{t/2} for t = 0, 1, 2, with T the first success of a coin of probability p."""
    return np.asarray((p * worst / (1 - (1 - p) * worst)) ** (np.arange(3) / 2))


@pytest.mark.parametrize(("tau", "worst"), [(3, 0.99**2), (5, 1 - 2 / 225)])
def test_the_bound_of_compressed_scaffnew_by_hand(tau: int, worst: float) -> None:
    """χb = 2/9 with s = 2; the slower of the steps and of the coin decides."""
    bound = bounds.compressed_scaffnew(ALIKE, 2, 1.0, 1e4, tau, 2)
    np.testing.assert_allclose(bound, np.sqrt(1 + 4.5 * tau**2) * falling(worst, 1 / tau), rtol=1e-12)


def test_the_bound_of_gradskip_by_hand() -> None:
    np.testing.assert_allclose(bounds.gradskip(ALIKE, 2, 1.0, 1e4), np.sqrt(1 + 100) * falling(0.99, 0.1), rtol=1e-12)


@pytest.mark.parametrize("p", [0.1, 0.9])
def test_the_bound_of_locodl_by_hand(p: float) -> None:
    """x* = (1, 1), ∇f_i(x*) = ±(1, -100), ν = 1/2: the mean of ‖∇f_i(x*) - νx*‖² is 10,001.5, and ‖νx*‖² is 0.5."""
    pair = fedlin.problems.quadratic([np.diag([1.0, 100.0])] * 2, np.array([[2.0, 0.0], [0.0, 200.0]]))
    share = p**2 * fedlin.theory.locodl_pace(pair, 1.0) / 3
    start = 2 * 5 + 1e-4 / share * 10_002
    worst = max((1 - 0.005) ** 2, 1 - share)
    assert (worst == 1 - share) == (p == 0.1)
    bound = bounds.locodl(pair, 2, np.array([2.0, 3.0]), p, 1.0)
    np.testing.assert_allclose(bound, np.sqrt(start) * falling(worst, p), rtol=1e-12)


@pytest.mark.parametrize(("p", "omega", "eta"), [(0.5, 2.0, 1 / 200), (1.0, 2.0, 1 / 100), (0.9, 0.0, 1 / 100)])
def test_the_steps_and_bounds_of_marina_by_hand(p: float, omega: float, eta: float) -> None:
    """2(1 - p)ω/(pm) is 1 with p = 1/2 and ω = 2, and 0 where nothing is compressed."""
    plan = fedlin.theory.marina(ALIKE, omega, p)
    assert int(plan.tau) == 1
    assert float(plan.eta) == pytest.approx(eta, rel=1e-12)
    np.testing.assert_allclose(bounds.marina(ALIKE, 2, 3.0, omega, p), 3 * (1 - eta) ** np.arange(3), rtol=1e-12)
    falling = bounds.marina_nonconvex(ALIKE, 2, 3.0, omega, p)
    np.testing.assert_allclose(falling, [np.inf, 6 / eta, 3 / eta], rtol=1e-12)


def test_the_steps_of_marina_where_no_convexity_is_known_or_renewals_are_rare() -> None:
    """Without a μ (1 - p)ω/(pm) counts once; and a step of p/(2μ) is the longest that the renewals allow."""
    flat = fedlin.problems.from_loss(lambda x, c: jnp.sum(jnp.cos(x) * c), np.zeros(2), np.ones(4), smoothness=1.0)
    assert float(fedlin.theory.marina(flat, 4.0, 0.5).eta) == pytest.approx(1 / 2, rel=1e-12)
    with pytest.raises(FedLinError):
        bounds.marina(flat, 2, 1.0, 4.0, 0.5)
    round_ones = fedlin.problems.quadratic([np.eye(2)] * 4, np.ones((4, 2)))
    assert float(fedlin.theory.marina(round_ones, 0.0, 0.1).eta) == pytest.approx(0.05, rel=1e-12)


def test_the_bound_of_tamuna_is_that_of_compressed_scaffnew() -> None:
    given = (ALIKE, 2, 1.0, 1e4, 3, 2)
    np.testing.assert_array_equal(bounds.tamuna(*given), bounds.compressed_scaffnew(*given))
    plans = fedlin.theory.tamuna(ALIKE, 2), fedlin.theory.compressed_scaffnew(ALIKE, 2)
    assert (int(plans[0].tau), float(plans[0].eta)) == (int(plans[1].tau), float(plans[1].eta))


def test_the_steps_of_adiana_by_hand() -> None:
    whole = fedlin.theory.adiana(ALIKE, 0.0)
    assert (int(whole.tau), float(whole.eta)) == (1, 1 / 200)
    many = fedlin.problems.quadratic(np.ones((1000, 1, 1)), np.ones((1000, 1)))
    assert fedlin.theory.adiana_probability(many, 2.0) == pytest.approx((np.sqrt(1000 / 64) - 1) / 6, rel=1e-12)
