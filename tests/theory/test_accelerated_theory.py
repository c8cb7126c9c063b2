"""The proofs of the accelerated methods: what each step of them claims, and the bound over many seeds."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedlin
from fedlin import rand_k
from fedlin.algorithms.compressed_scaffnew import selected
from fedlin.precision import precision
from fedlin.theory import bounds
from quadratics import CLIENTS, DIM, X0, A, Array, B, problem

SEEDS, ROUNDS = 25, 40
BEST = problem().minimizer
SLOPES = np.einsum("ijk,k->ij", A, BEST) - B  # ∇f_i(x*)
SPREAD = float(np.mean(np.sum(SLOPES**2, axis=1)))
START = float(np.sum((X0 - BEST) ** 2))


def mean_distance(algorithm: fedlin.Algorithm[Any, Any], plan: fedlin.Plan) -> Array:
    """‖x_T - x*‖ over all seeds."""
    runs = [fedlin.simulate(algorithm, problem(), plan, ROUNDS, seed=seed, x0=X0) for seed in range(SEEDS)]
    return np.asarray(np.mean([np.sqrt(run.distance) for run in runs], axis=0))


def assert_bounded(measured: Array, bound: Array) -> None:
    """Below the bound, which says something: over the rounds it falls by a factor of two or more."""
    assert np.all(measured <= bound * (1 + 1e-9))
    assert bound[-1] < bound[0] / 2


def test_the_pattern_averages_as_its_proof_says() -> None:
    """Over all orders: R is unbiased up to b, of mean square b, and the mean of s clients has the variance 1 - χ."""
    s = 3
    rng = np.random.default_rng(0)
    x = rng.standard_normal((CLIENTS, DIM))
    left = x - x.mean(axis=0)
    masks = np.zeros((CLIENTS, DIM))
    for column in range(CLIENTS):
        places = np.asarray(selected(jnp.int32(column), DIM, s, CLIENTS))
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


def test_the_steps_of_adiana_by_hand() -> None:
    whole = fedlin.theory.adiana(ALIKE, 0.0)
    assert (int(whole.tau), float(whole.eta)) == (1, 1 / 200)
    many = fedlin.problems.quadratic(np.ones((1000, 1, 1)), np.ones((1000, 1)))
    assert fedlin.theory.adiana_probability(many, 2.0) == pytest.approx((np.sqrt(1000 / 64) - 1) / 6, rel=1e-12)
