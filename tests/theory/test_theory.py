"""Theory: step sizes, bounds, constants and fixed points, against their formulas and against the simulator."""

from collections.abc import Callable
from itertools import pairwise
from math import sqrt
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedlin
from fedlin import Plan, problems, simulate, theory
from fedlin.errors import UnknownError
from fedlin.problems.quadratic import Quadratic
from fedlin.theory import bounds, lower_bound, splitting, staged, surrogate
from fedlin.theory.method_steps import fedpaq_start

Array = NDArray[np.float64]
M, D = 3, 4
TAU = np.array([1, 4, 7])


def random_quadratic(seed: int = 0) -> Quadratic:
    draw = np.random.default_rng(seed)
    half = draw.standard_normal((M, D, D))
    return problems.quadratic(half @ half.transpose(0, 2, 1) + np.eye(D), draw.standard_normal((M, D)))


PROBLEM = random_quadratic()
L, MU = PROBLEM.smoothness, PROBLEM.strong_convexity
KAPPA = L / MU
SINGULAR = problems.quadratic(np.array([np.diag([4.0, 0.0]), np.diag([2.0, 0.0])]), np.array([[1.0, 0], [2.0, 0]]))


# Step sizes.


@pytest.mark.parametrize(
    ("make", "eta_bar"),
    [
        (theory.strongly_convex, 1 / (6 * L)),
        (theory.convex, 1 / (10 * L)),
        (theory.convex_last, 1 / (6 * L)),
        (theory.nonconvex, 1 / (26 * L)),
        (theory.polyak_lojasiewicz, 1 / (26 * L)),
        (theory.noisy, 1 / (12 * L)),
        (lambda p, tau: theory.noisy(p, tau, 0.9 / (12 * L)), 0.9 / (12 * L)),
        (lambda p, tau: theory.server_sparse(p, tau, 4.0), 1 / (8 * L)),
        (lambda p, tau: theory.server_sparse(p, tau, 2.5), 1 / (2 * (2 + sqrt(2.5)) * L)),
        (lambda p, tau: theory.server_feedback(p, tau, 2.5), 1 / (180 * L)),
        (lambda p, tau: theory.server_feedback(p, tau, 1.0), 1 / (72 * L)),
        (lambda p, tau: theory.client_feedback(p, tau, 2.0, C=3.0), 1 / (432 * L)),
        (lambda p, tau: theory.client_feedback(p, tau, 2.0), 1 / (144 * L * theory.dissimilarity(PROBLEM).C)),
    ],
    ids=[
        "theorem 1", "theorem 2", "theorem 2, last", "theorem 3", "theorem 4", "theorem 5", "theorem 5, given",
        "theorem 7", "theorem 7, other", "theorem 8", "theorem 8, nothing left out", "theorem 9", "theorem 9, own C",
    ],
)  # fmt: skip
def test_step_sizes(make: Callable[[Any, Any], Plan], eta_bar: float) -> None:
    plan = make(PROBLEM, TAU)
    np.testing.assert_array_equal(plan.tau, TAU)
    np.testing.assert_allclose(plan.eta * TAU, eta_bar, rtol=1e-14)


def test_identical_clients_step_by_one_over_l_whatever_tau() -> None:
    plan = theory.homogeneous(PROBLEM, TAU)
    np.testing.assert_allclose(plan.eta, 1 / L, rtol=1e-14)
    np.testing.assert_array_equal(plan.tau, TAU)


def test_fedsplit_steps_by_the_geometric_mean() -> None:
    assert theory.fedsplit(PROBLEM).eta == pytest.approx(1 / sqrt(L * MU), rel=1e-14)


@pytest.mark.parametrize("delta", [1.2, 2.5])
def test_ef21_steps_by_the_formula_without_theta_and_beta(delta: float) -> None:
    """√(β/θ) = δ(√q + q) for q = 1 - 1/δ; where the clients are alike and round the contraction θ/(2μ) decides."""
    mean_square = sqrt(np.mean(np.linalg.eigvalsh(PROBLEM.data.A)[:, -1] ** 2))
    q = 1 - 1 / delta
    smooth = 1 / (L + sqrt(2) * mean_square * delta * (sqrt(q) + q))
    assert theory.ef21(PROBLEM, delta).tau == 1
    assert theory.ef21(PROBLEM, delta).eta == pytest.approx(min(smooth, (1 - sqrt(q)) / (2 * MU)), rel=1e-13)
    spheres = problems.quadratic(0.7 * np.stack([np.eye(D)] * M), np.ones((M, D)))
    assert theory.ef21(spheres, 10.0).eta == pytest.approx((1 - sqrt(0.9)) / 1.4, rel=1e-13)
    flat = 1 / (4 + sqrt(2) * sqrt(10) * delta * (sqrt(q) + q))  # μ = 0, L_i = 4 and 2
    assert theory.ef21(SINGULAR, delta).eta == pytest.approx(flat, rel=1e-13)


def test_step_sizes_of_other_methods() -> None:
    same = np.ones(M)
    root = int(np.rint(np.sqrt(KAPPA)))
    expected: list[tuple[Plan, Any, Any]] = [
        (theory.diana(PROBLEM, 1.6), 1, 1 / (4.2 * L)),  # 6ω/m = 3.2
        (theory.fedcomgate(PROBLEM, TAU, 1.5, 2.0), TAU, 1 / (20 * L * TAU)),
        (theory.fedcomgate(PROBLEM, TAU, 0.25, 0.5), TAU, 1 / (5 * L * TAU)),
        (theory.gradient_tracking(PROBLEM, TAU, 2.0), TAU, 1 / (4 * L * TAU)),
        (theory.gradient_tracking(PROBLEM, TAU, 0.5), TAU, 1 / (2 * L * TAU)),
        (theory.flanp(PROBLEM, TAU, 2.0), TAU, 1 / (4 * L * TAU)),
        (theory.fedac(PROBLEM, 3), 3, 1 / L),
        (theory.scaffnew(PROBLEM), root, 1 / L),
        (theory.s_local_svrg(PROBLEM, TAU, 9 * L), TAU, 1 / (576 * L * TAU)),  # few steps: τ/(64ℒ)
        (theory.s_local_svrg(PROBLEM, 16 * TAU, 9 * L), 16 * TAU, 1 / (960 * L * TAU)),  # many: 1/(20√(Lℒ)), √(Lℒ) = 3L
    ]
    assert root > 1
    for plan, tau, eta in expected:
        np.testing.assert_array_equal(plan.tau * same, tau * same)
        np.testing.assert_allclose(plan.eta * same, eta * same, rtol=1e-13)


@pytest.mark.parametrize(
    ("scale", "omega"), [(1.0, 0.0), (1.0, 1.5), (0.05, 0.0)], ids=["condition", "quantised", "flat"]
)
@pytest.mark.parametrize("tau", [1, 5, 100])
def test_fedpaq_starts_at_the_least_round_its_theorem_allows(tau: int, scale: float, omega: float) -> None:
    """And steps by 4/(μ(kτ + 1)) from there, the same for all."""
    problem = problems.quadratic(scale * PROBLEM.data.A, PROBLEM.data.b)
    mu, quantised = scale * MU, 2 * L**2 * omega / (M * MU**2)
    limits = 4 * np.array([KAPPA, 4 * (quantised + 1), 1 / tau, 4 * M / (mu**2 * tau)])
    start = fedpaq_start(problem, tau, omega)
    assert np.all(start >= limits)
    assert np.any(start - 1 < limits)
    plan = theory.fedpaq(problem, tau, 4, omega)
    assert plan.eta.shape == (4, M)
    s = 1 + tau * (start + np.arange(4))
    np.testing.assert_allclose(plan.eta * s[:, None] * mu, 4 * np.ones((4, M)), rtol=1e-13)


def test_decaying_steps_follow_their_formula_and_stay_below_the_limit() -> None:
    plan = theory.noisy_decaying(PROBLEM, TAU, 50)
    assert plan.tau.shape == plan.eta.shape == (50, M)
    eta_bar = plan.eta * TAU[None]
    np.testing.assert_allclose(
        eta_bar, (4 / (MU * (np.arange(50) + 48 * KAPPA)))[:, None] * np.ones((1, M)), rtol=1e-13
    )
    assert np.all(eta_bar <= 1 / (12 * L) * (1 + 1e-15))
    assert np.all(np.diff(eta_bar, axis=0) < 0)


# Bounds.


def recursion(first: float, factor: float, rounds: int, added: float = 0.0) -> Array:
    """a_0 = first, a_{t+1} = factor a_t + added."""
    values = [first]
    for _ in range(rounds):
        values.append(factor * values[-1] + added)
    return np.array(values)


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        (bounds.strongly_convex(PROBLEM, 20, 3.0), recursion(3, 1 - 1 / (6 * KAPPA), 20)),
        (bounds.polyak_lojasiewicz(SINGULAR, 20, 3.0), recursion(3, 1 - 3 / (26 * 4), 20)),
        (bounds.server_sparse(PROBLEM, 20, 3.0, 9.0), recursion(3, 1 - 1 / (90 * KAPPA), 20)),
        (bounds.server_feedback(PROBLEM, 20, 3.0, 5.0), 2 * KAPPA * recursion(3, 1 - 1 / (480 * KAPPA), 20)),
        (bounds.homogeneous(PROBLEM, 20, 3.0, 4), recursion(3, (1 - 1 / KAPPA) ** 4, 20)),
        (bounds.noisy(PROBLEM, 20, 3.0, 0.01, 0.7), recursion(3, 1 - 0.005 * MU, 20, 25e-4 * 0.7)),
        (bounds.noisy(PROBLEM, 20, 3.0, 1.2 / MU, 0.7), recursion(3, 0.4, 20, 36 * 0.7 / MU**2)),
        (
            bounds.client_feedback(PROBLEM, 20, 3.0, 0.01, 2.0, 5.0, 0.3),
            2 * recursion(3, 1 - 0.0075 * MU, 20) + 16 / 3 * 0.01 * (0.6 + 2) * 0.3 / MU,
        ),
        (
            bounds.client_feedback_gap(PROBLEM, 20, 3.0, 0.01, 2.0, 5.0, 0.3),
            2 * KAPPA * recursion(3, 1 - 0.0075 * MU, 20) + 8 * L / 3 * 0.01 * (0.6 + 2) * 0.3 / MU,
        ),
        (bounds.gradient_tracking(PROBLEM, 20, 3.0, 0.5), recursion(3, 1 - 1 / (8 * KAPPA), 20)),
        (bounds.gradient_tracking(PROBLEM, 20, 3.0, 1.7), recursion(3, 1 - 1 / (4 * KAPPA), 20)),
        (bounds.s_local_svrg(PROBLEM, 20, 3.0, 0.1 / MU, 0.2), 1.04 * recursion(3, 0.95, 20)),
        (bounds.s_local_svrg(PROBLEM, 20, 3.0, 0.4 / MU, 0.2), 1.04 * recursion(3, 0.9, 20)),
    ],
    ids=[
        "theorem 1",
        "theorem 4",
        "theorem 7",
        "theorem 8",
        "proposition 3",
        "theorem 5",
        "theorem 5, large step",
        "theorem 9",
        "theorem 9, gap",
        "gradient tracking, small step",
        "gradient tracking, large step",
        "s-local-svrg, small step",
        "s-local-svrg, large step",
    ],
)
def test_bounds_follow_their_recursions(curve: Array, expected: Array) -> None:
    assert curve.shape == (21,)
    np.testing.assert_allclose(curve, expected, rtol=1e-11)


def test_sublinear_bounds() -> None:
    distances, losses = np.array([9.0, 5.0, 4.0, 1.0]), np.array([7.0, 3.0, 2.5, 1.0])
    np.testing.assert_allclose(bounds.convex(PROBLEM, distances), [np.inf, 40 * L, 25 * L, 80 * L / 3], rtol=1e-14)
    np.testing.assert_allclose(bounds.nonconvex(PROBLEM, losses), [np.inf, 208 * L, 117 * L, 104 * L], rtol=1e-14)
    last = bounds.convex_last(PROBLEM, 3, gap0=2.0, distance0=5.0)
    np.testing.assert_allclose(last, [2 / (2 * t / (60 * L) + 1) for t in range(4)], rtol=1e-14)


@pytest.mark.parametrize("sigma_squared", [0.0, 0.01, 100.0])
def test_decaying_bound_is_an_induction(sigma_squared: float) -> None:
    rounds, distance0 = 400, 3.0
    curve = bounds.noisy_decaying(PROBLEM, rounds, distance0, sigma_squared)
    eta_bar = theory.noisy_decaying(PROBLEM, 1, rounds).eta[:, 0]
    assert curve[0] >= distance0
    one_more = (1 - eta_bar * MU / 2) * curve[:-1] + 25 * eta_bar**2 * sigma_squared
    assert np.all(one_more <= curve[1:])
    t0 = 48 * KAPPA
    assert curve[0] * t0 == pytest.approx(max(400 * sigma_squared / MU**2, t0 * distance0), rel=1e-12)
    np.testing.assert_allclose(curve * (np.arange(rounds + 1) + t0), curve[0] * t0, rtol=1e-12)  # O(1/T)


@pytest.mark.parametrize("tau", [1, 4])
def test_fedpaq_bound_is_the_sum_of_its_terms(tau: int) -> None:
    """What is left of the start, what one round adds, and what drift adds, with the constants as published."""
    rounds, distance0, omega, sigma_squared = 5, 3.0, 1.5, 0.7
    curve = bounds.fedpaq(PROBLEM, rounds, distance0, tau, omega, sigma_squared)
    first = fedpaq_start(PROBLEM, tau, omega)
    c1 = 16 * sigma_squared / MU**2 * (1 / M + 2 * omega / M)
    c2 = 16 * np.e * L**2 * sigma_squared / (MU**2 * M)
    c3 = 256 * np.e * L**2 * sigma_squared / MU**4 * (1 + 2 * omega / M)
    for k, value in enumerate(curve):
        s0, s = first * tau + 1, (first + k) * tau + 1
        start, drift = distance0 * s0**2 / s**2, c2 * (tau - 1) ** 2 / s + c3 * (tau - 1) / s**2
        assert value == pytest.approx(start + c1 * tau / s + drift, rel=1e-12)
    assert curve.shape == (rounds + 1,)


def test_bounds_of_fedcomgate_with_a_quantiser_by_hand() -> None:
    """a = 1/(4L(1 + ω)) = 1/20 with L = 4, μ = 1, ω = 1/4: the rate is 1 - a/2, the start gap0 + a/4 spread0."""
    problem = fedlin.problems.quadratic([np.diag([1.0, 4.0])] * 2, np.ones((2, 2)))
    bound = bounds.fedcomgate(problem, 2, 1.0, 16.0, omega=1 / 4)
    np.testing.assert_allclose(bound, 1.2 * (1 - 1 / 40) ** np.arange(3), rtol=1e-12)


def test_bounds_of_fedcomgate_end_where_its_proof_does() -> None:
    assert np.all(np.isfinite(bounds.fedcomgate(PROBLEM, 3, 1.0, 1.0, omega=1 / 4)))
    with pytest.raises(UnknownError, match=r"omega = 0\.26"):
        bounds.fedcomgate(PROBLEM, 3, 1.0, 1.0, omega=0.26)


@pytest.mark.parametrize("tau", [1, 9])
def test_theorem_1_bounds_a_run(tau: int) -> None:
    result = simulate(fedlin.fedlin(), PROBLEM, theory.strongly_convex(PROBLEM, [tau] * M), 60, x0=np.ones(D))
    assert np.all(result.gap <= bounds.strongly_convex(PROBLEM, 60, result.gap[0]) * (1 + 1e-9))


# FLANP's stages.


@pytest.mark.parametrize(("clients", "first"), [(1, 1), (8, 1), (7, 2), (20, 3), (9, 9)])
def test_stages_double_until_they_have_everyone(clients: int, first: int) -> None:
    counts = staged.stages(clients, first)
    assert (counts[0], counts[-1]) == (first, clients)
    assert all(later == min(2 * earlier, clients) > earlier for earlier, later in pairwise(counts))


@pytest.mark.parametrize("gap0", [1e-6, 0.1, 50.0])
def test_stages_take_the_least_rounds_to_their_accuracy(gap0: float) -> None:
    """The least T with (1 - 1/(4κ))^T (gap at the start) ≤ V/(nκ), in a later stage from 6V/n; 0 if already there."""
    accuracy, shrink = 0.3, 1 - 1 / (4 * KAPPA)
    for first in (1, 2, 3):
        counts = staged.stages(M, first)
        allowed = staged.rounds(PROBLEM, accuracy, gap0, first)
        starts = [gap0, *(6 * accuracy / n for n in counts[1:])]
        for n, T, start in zip(counts, allowed, starts, strict=True):
            needed = accuracy / (n * KAPPA)
            assert start * shrink**T <= needed
            assert T == 0 or start * shrink ** (T - 1) > needed
    assert len(staged.rounds(PROBLEM, accuracy, gap0)) == len(staged.stages(M)) == 3


# How much clients differ.


def excess(problem: Quadratic, points: Array, C: float) -> Array:
    """Σ w_i ‖∇f_i(x)‖² - C ‖∇f(x)‖² at every point: D must be at least this."""
    each = np.einsum("ijk,nk->nij", problem.data.A, points) - problem.data.b
    mean = np.einsum("i,nij->nj", problem.weights, each)
    return np.asarray(np.einsum("i,nij,nij->n", problem.weights, each, each) - C * np.sum(mean**2, axis=1))


def weighted() -> Quadratic:
    other = random_quadratic(1).weighted([1.0, 2.0, 5.0])
    assert isinstance(other, Quadratic)
    return other


@pytest.mark.parametrize("factor", [None, 1.01, 30.0])
@pytest.mark.parametrize("problem", [PROBLEM, weighted()], ids=["equal weights", "weights"])
def test_dissimilarity_holds_everywhere_and_is_attained(problem: Quadratic, factor: float | None) -> None:
    least = theory.dissimilarity(problem).C / 2
    C, found = theory.dissimilarity(problem, None if factor is None else factor * least)
    assert C / least == pytest.approx(factor or 2.0, rel=1e-12)
    # The maximiser, from its own first-order condition.
    A, w, x = problem.data.A, problem.weights, problem.minimizer
    H = np.einsum("i,ijk->jk", w, A)
    own = A @ x - problem.data.b
    s = np.einsum("i,ijk,ik->j", w, A, own)
    S = np.einsum("i,ijk,ikl->jl", w, A, A)
    top = x + np.linalg.solve(C * H @ H - S, s)
    draw = np.random.default_rng(2)
    spread = 10.0 ** draw.uniform(-3, 3, (10_000, 1)) * draw.standard_normal((10_000, D))
    everywhere = np.concatenate([x + spread[:5000], top + spread[5000:]])
    values = excess(problem, everywhere, C)
    scale = found + C * np.sum((everywhere - x) ** 2, axis=1) * problem.smoothness**2
    assert np.all(values <= found + 1e-12 * scale)
    attained = float(excess(problem, top[None], C)[0])
    assert attained == pytest.approx(found, rel=1e-9)
    assert attained > found * (1 - 1e-6)  # so a slightly smaller D fails here
    inverse = np.linalg.inv(H)
    direction = inverse @ np.linalg.eigh(inverse @ S @ inverse)[1][:, -1]
    slightly_less = excess(problem, (x + 1e6 * direction)[None], 0.99 * least)
    assert slightly_less.max() > 1e6  # and below the least C no D holds at all


@pytest.mark.parametrize(("smallest", "known"), [(1.1, True), (0.9, False)], ids=["full rank", "singular"])
def test_dissimilarity_needs_a_hessian_of_full_rank(smallest: float, known: bool) -> None:
    """Singular is what NumPy's `matrix_rank` takes for it: an eigenvalue of at most λ_max d eps."""
    H = np.diag([smallest * 7 * 3 * np.finfo(np.float64).eps, 1.0, 7.0])
    problem = problems.quadratic(np.stack([H, H]), np.zeros((2, 3)))
    assert (np.linalg.matrix_rank(H) == 3) == known
    if known:
        assert theory.dissimilarity(problem) == pytest.approx((2.0, 0.0))
    else:
        with pytest.raises(UnknownError, match="singular"):
            theory.dissimilarity(problem)


def test_dissimilarity_of_identical_clients() -> None:
    A = np.array([np.diag([1.0, 3.0])] * 2)
    found = theory.dissimilarity(problems.quadratic(A, np.ones((2, 2))), 1.5)
    assert found == pytest.approx((1.5, 0.0))
    with pytest.raises(UnknownError, match="singular"):
        theory.dissimilarity(SINGULAR)


# What other methods converge to.

TWO = problems.quadratic(np.array([[[1.0]], [[2.0]]]), np.array([[3.0], [100.0]]))  # ½(x-3)² and (x-50)²


@pytest.mark.parametrize("beta", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("eta", [0.01, 0.2])
def test_fedprox_misses_the_minimiser_by_the_papers_formula(eta: float, beta: float) -> None:
    missed = 94 * eta / (3 * (6 - eta * (5 + 3 * beta)))
    surrogate_point = surrogate.fedprox(TWO, 2, eta, beta).minimizer
    assert TWO.minimizer[0] - surrogate_point[0] == pytest.approx(missed, rel=1e-10)
    result = simulate(fedlin.fedprox(beta), TWO, Plan(2, eta), 3000)
    assert TWO.minimizer[0] - result.x[0] == pytest.approx(missed, rel=1e-9)


@pytest.mark.parametrize("eta", [0.01, 0.3])
def test_fednova_misses_the_minimiser_by_the_papers_formula(eta: float) -> None:
    missed = 94 * eta**2 / (3 * (9 - 9 * eta + eta**2))
    surrogate_point = surrogate.fednova(TWO, [3, 2], eta).minimizer
    assert TWO.minimizer[0] - surrogate_point[0] == pytest.approx(missed, rel=1e-8)
    result = simulate(fedlin.fednova(), TWO, Plan([3, 2], eta), 3000)
    assert TWO.minimizer[0] - result.x[0] == pytest.approx(missed, rel=1e-7)


def test_surrogates_are_where_runs_end() -> None:
    eta = 0.1 / L
    for algorithm, other in (
        (fedlin.fedavg(), surrogate.fedprox(PROBLEM, TAU, eta)),
        (fedlin.fedprox(0.7), surrogate.fedprox(PROBLEM, TAU, eta, 0.7)),
        (fedlin.fednova(), surrogate.fednova(PROBLEM, TAU, eta)),
    ):
        result = simulate(algorithm, PROBLEM, Plan(TAU, eta), 2000)
        np.testing.assert_allclose(result.x, other.minimizer, rtol=1e-9)
        assert np.linalg.norm(result.x - PROBLEM.minimizer) > 1e-3
        # One round is one step η of gradient descent on the surrogate.
        start = np.ones(D)
        one = simulate(algorithm, PROBLEM, Plan(TAU, eta), 1, x0=start)
        np.testing.assert_allclose(one.x, start - eta * other.grad(start), rtol=1e-12)


def test_one_local_step_has_no_bias() -> None:
    np.testing.assert_allclose(surrogate.fedprox(PROBLEM, 1, 0.01).minimizer, PROBLEM.minimizer, rtol=1e-11)
    np.testing.assert_allclose(surrogate.fednova(PROBLEM, 1, 0.01).minimizer, PROBLEM.minimizer, rtol=1e-11)


# The lower bound.


@pytest.mark.parametrize("steps", [1, 2, 3, 8])
@pytest.mark.parametrize("large", [14.0, 100.0])
def test_lower_bound_eigenvalues_are_those_of_a_simulated_round(steps: int, large: float) -> None:
    problem = lower_bound.instance(large)
    for eta in (0.3 / large, 1 / large, 1.7 / large):
        first, second = lower_bound.eigenvalues(eta, steps, large)
        columns = [simulate(fedlin.fedlin(), problem, Plan(steps, eta), 1, x0=e).x for e in np.eye(2)]
        np.testing.assert_allclose(np.array(columns).T, np.diag([first, second]), rtol=1e-10, atol=1e-12)


def test_lower_bound_instance() -> None:
    problem = lower_bound.instance(20.0, b=(1.0, 2.0))
    np.testing.assert_array_equal(problem.data.b, [[-1, -2], [1, 2]])
    assert (problem.smoothness, problem.strong_convexity) == (20, 1)
    np.testing.assert_allclose(problem.minimizer, 0, atol=1e-15)
    np.testing.assert_array_equal(lower_bound.instance(20.0).data.b, np.zeros((2, 2)))  # one minimiser for both
    first, second = lower_bound.repaired(20.0).data.A  # the same clients, with an entry in which both have L
    np.testing.assert_array_equal(first, np.diag([1, 1, 20]))
    np.testing.assert_array_equal(second, np.diag([20, 1, 20]))


# FedSplit.

SPLIT = problems.quadratic(
    np.array([np.diag([1000.0, 1.0]), np.eye(2)]), np.array([[1.0, 1.0], [-1.0, 2.0]])
)  # L = 1000, μ = 1
S = 1 / sqrt(1000.0)


def round_by_hand(problem: Quadratic, z: Array, s: float, steps: int, start: str) -> Array:
    """One round of FedSplit on z (m, d), inner steps one by one."""
    x = z.mean(axis=0)
    step = 2 / (problem.smoothness + problem.strong_convexity + 2 / s)
    after = []
    for A, b, own in zip(problem.data.A, problem.data.b, z, strict=True):
        u = 2 * x - own
        y = u if start == "u" else x
        for _ in range(steps):
            y = y - step * (A @ y - b + (y - u) / s)
        after.append(own + 2 * (y - x))
    return np.array(after)


@pytest.mark.parametrize("start", ["u", "model"])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_fedsplit_round_map_is_the_round(steps: int, start: str) -> None:
    matrix = splitting.round_map(PROBLEM, 0.3, steps, start)
    origin = round_by_hand(PROBLEM, np.zeros((M, D)), 0.3, steps, start).ravel()
    basis = np.eye(M * D).reshape(-1, M, D)
    columns = [round_by_hand(PROBLEM, e, 0.3, steps, start).ravel() - origin for e in basis]
    np.testing.assert_allclose(matrix, np.array(columns).T, atol=1e-12)


@pytest.mark.parametrize("weights", [np.full(M, 1 / M), np.arange(1, M + 1) / np.arange(1, M + 1).sum()])
@pytest.mark.parametrize("start", ["u", "model"])
def test_fedsplit_round_map_predicts_the_simulator(start: str, weights: Any) -> None:
    centred: Any = problems.quadratic(PROBLEM.data.A, np.zeros((M, D))).weighted(weights)
    result = simulate(fedlin.fedsplit(steps=3, start=start), centred, Plan(1, 0.3), 6, x0=np.ones(D))
    matrix = splitting.round_map(centred, 0.3, 3, start)
    z = np.ones(M * D)
    for t in range(7):
        np.testing.assert_allclose(result.iterates[t], weights @ z.reshape(M, D), rtol=1e-10, atol=1e-13)
        z = matrix @ z


@pytest.mark.parametrize("start", ["u", "model"])
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 10])
def test_fedsplit_with_an_odd_number_of_inner_steps_from_u_diverges(steps: int, start: str) -> None:
    radius = splitting.spectral_radius(splitting.round_map(SPLIT, S, steps, start))
    explodes = start == "u" and steps % 2 == 1
    assert (radius > 1.4) if explodes else (radius < 0.997)
    result = simulate(fedlin.fedsplit(steps=steps, start=start), SPLIT, Plan(1, S), 6000, x0=np.ones(2))
    assert result.status == ("diverged" if explodes else "done")
    # The last rounds grow or shrink at the rate of the radius.
    if explodes:
        growth = np.linalg.norm(result.iterates[-1]) / np.linalg.norm(result.iterates[-41])
        assert growth ** (1 / 40) == pytest.approx(radius, rel=1e-3)
    else:
        z = np.ones((2, 2))
        for _ in range(6000):
            z = round_by_hand(SPLIT, z, S, steps, start)
        np.testing.assert_allclose(result.x, z.mean(axis=0), rtol=1e-8, atol=1e-12)


def test_exact_fedsplit_converges_to_the_minimiser() -> None:
    result = simulate(fedlin.fedsplit(), SPLIT, theory.fedsplit(SPLIT), 1000)
    np.testing.assert_allclose(result.x, SPLIT.minimizer, rtol=1e-9, atol=1e-12)
    exact = splitting.spectral_radius(splitting.round_map(SPLIT, S, 2000, "u"))
    assert exact == pytest.approx((sqrt(1000) - 1) / (sqrt(1000) + 1), rel=1e-9)  # Pathak and Wainwright's rate
