"""The rivals beyond the paper: what they reduce to, and what their own papers promise."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

import fedlin
import reference
from fedlin import Plan, simulate, simulate_many, theory
from fedlin.core import Algorithm
from fedlin.errors import FedLinError
from fedlin.problems.quadratic import Quadratic
from quadratics import CLIENTS, DIM, TAU, X0, assert_close, problem

Array = np.ndarray[Any, Any]
ROUNDS = 40
SEEDS = list(range(32))


def instances(count: int = 3) -> list[Quadratic]:
    """Random strongly convex quadratics whose clients differ."""
    return [fedlin.problems.quadratic(*reference.random_quadratic(seed, CLIENTS, DIM)) for seed in range(count)]


def alike(instance: Quadratic) -> Quadratic:
    """All clients have what the first one has."""
    A, b = (np.repeat(part[:1], CLIENTS, axis=0) for part in (instance.data.A, instance.data.b))
    return fedlin.problems.quadratic(A, b)


def mean_distance(method: Algorithm[Any, Any], instance: Any, plan: Plan, rounds: int) -> np.ndarray[Any, Any]:
    runs = simulate_many(method, instance, plan, rounds, seeds=SEEDS, x0=X0)
    return np.asarray(np.mean([run.distance for run in runs], axis=0))


def iterates(algorithm: Algorithm[Any, Any], plan: Plan, **options: Any) -> np.ndarray[Any, Any]:
    return simulate(algorithm, problem(), plan, ROUNDS, x0=X0, **options).iterates


@pytest.mark.parametrize(
    "algorithm",
    [fedlin.ef21(fedlin.identity()), fedlin.diana(fedlin.identity(), 1.0), fedlin.scaffnew()],
    ids=lambda a: str(a.name),
)
def test_without_compression_and_with_one_step_all_are_gradient_descent(algorithm: Algorithm[Any, Any]) -> None:
    plan = Plan(1, 1 / problem().smoothness)
    assert_close(iterates(algorithm, plan), iterates(fedlin.gradient_descent(), plan), 1e-12)


def test_fedpaq_without_compression_is_fedavg() -> None:
    plan = Plan(4, 0.02)
    assert_close(iterates(fedlin.fedpaq(fedlin.identity()), plan), iterates(fedlin.fedavg(), plan), 1e-12)


def test_compressed_is_fedlin_with_the_documented_links() -> None:
    entries = fedlin.top_k(2)
    feedback = fedlin.error_feedback(entries)
    spelled = fedlin.fedlin(
        uplink=fedlin.innovation(entries), downlink=feedback, model_uplink=feedback, model_downlink=feedback
    )
    plan = Plan.scaled(3, 0.02)
    np.testing.assert_array_equal(iterates(fedlin.compressed(2), plan), iterates(spelled, plan))


@pytest.mark.parametrize(
    ("algorithm", "in_full"),
    [
        (fedlin.ef21(fedlin.top_k(2)), True),
        (fedlin.ef21(fedlin.identity()), False),  # as every round is
        (fedlin.diana(fedlin.rand_k(2, unbiased=True), 0.4), False),  # its shift starts at zero
    ],
    ids=lambda a: str(getattr(a, "name", a)),
)
def test_a_first_round_in_full_is_asked_for_where_it_differs(algorithm: Algorithm[Any, Any], in_full: bool) -> None:
    assert (algorithm.opening is not None) is in_full


def test_ef21_keeps_its_promise() -> None:
    """gap_T ≤ (1 - ημ)^T gap_0 when the first gradients are exact (Theorem 2 with G_0 = 0)."""
    instance = problem()
    plan = theory.ef21(instance, instance.dim / 1)
    result = simulate(fedlin.ef21(fedlin.top_k(1)), instance, plan, 500, x0=X0)
    bound = (1 - float(plan.eta) * instance.strong_convexity) ** np.arange(501) * result.gap[0]
    assert np.all(result.gap <= bound * (1 + 1e-9) + 1e-28)


def test_diana_keeps_its_promise_in_the_mean() -> None:
    """E‖x_T - x*‖² ≤ max(1 - ημ, 1 - α/2)^T V_0, V_0 = ‖x_0 - x*‖² + (4ωη²/(αm²)) Σ ‖∇f_i(x*)‖²."""
    instance = problem()
    omega = instance.dim / 2 - 1
    alpha = 1 / (1 + omega)
    plan = theory.diana(instance, omega)
    eta = float(plan.eta)
    method = fedlin.diana(fedlin.rand_k(2, unbiased=True), alpha)
    runs = simulate_many(method, instance, plan, 200, seeds=list(range(32)), x0=X0)
    mean = np.mean([run.distance for run in runs], axis=0)
    own = np.sum((instance.data.A @ instance.minimizer - instance.data.b) ** 2)
    start = mean[0] + 4 * omega * eta**2 / (alpha * instance.clients**2) * own
    shrink = max(1 - eta * instance.strong_convexity, 1 - alpha / 2)
    assert np.all(mean <= shrink ** np.arange(201) * start)


def test_diana_compresses_a_gradient_with_draws_apart_from_its_noise() -> None:
    """E C(q) = ∇f for an unbiased C of an unbiased q, if they draw apart: 4000 clients show it to 5 standard errors."""
    clients, gradient = 4000, np.array([0.3, 0.5, -0.2])
    exact = fedlin.problems.quadratic(np.tile(np.eye(3), (clients, 1, 1)), np.tile(-gradient, (clients, 1)))
    method = fedlin.diana(fedlin.quantize(1), 0.5)
    run = simulate(method, fedlin.problems.noisy(exact, 1.0), Plan(1, 1.0), 1, x0=np.zeros(3))
    deviation = np.sqrt(1 + np.sqrt(3) * (3 + gradient @ gradient))  # of one client's message, at most, as ω = √d
    np.testing.assert_allclose(-run.x, gradient, atol=5 * deviation / np.sqrt(clients))


@pytest.mark.parametrize("compressor", [fedlin.identity(), fedlin.natural(), fedlin.quantize(9)], ids=repr)
@pytest.mark.parametrize("server_step", [0.5, 1.0, 5.0])
def test_fedcomgate_keeps_its_promise_in_the_mean(compressor: Any, server_step: float) -> None:
    """E gap_T ≤ (1 - aμ/2)^T (gap_0 + (a/4) S_0²), from afar and from beside x*, where the gap itself rises first."""
    for instance in instances():
        omega = compressor.omega(DIM)
        plan = theory.fedcomgate(instance, TAU, omega, server_step)
        method = fedlin.fedcomgate(compressor, server_step)
        for x0 in (X0, instance.minimizer + 1e-6):
            runs = simulate_many(method, instance, plan, 300, seeds=range(16), x0=x0)
            mean = np.mean([run.gap for run in runs], axis=0)
            slopes = instance.data.A @ x0 - instance.data.b
            spread = float(np.mean(np.sum((slopes - slopes.mean(axis=0)) ** 2, axis=1)))
            bound = theory.bounds.fedcomgate(instance, 300, float(mean[0]), spread, omega, server_step)
            assert np.all(mean <= bound + 1e-28)
        assert mean[1:5].max() > 100 * mean[0]  # no bound by the first gap alone could hold


def test_fedcomgate_falls_by_its_measure_every_round() -> None:
    """gap + (a/4)S² falls by 1 - aμ/2 in expectation, from any δ_i that sum to zero and with any server step.

    Played by hand with an unbiased quantiser that errs by just ω‖d‖² in the mean square, the most that is proven for.
    """
    source, omega = np.random.default_rng(0), 0.25
    for instance, gamma in itertools.product(instances(), (0.5, 1.0, 4.0)):
        A, b, x_star, H = instance.data.A, instance.data.b, instance.minimizer, instance.hessian
        eta = theory.fedcomgate(instance, TAU, omega, gamma).eta
        a = gamma * float(eta[0] * TAU[0])

        def measure(
            x: Array, delta: Array, A: Array = A, b: Array = b, x_star: Array = x_star, H: Array = H, a: float = a
        ) -> Array:
            slopes = np.einsum("ijk,...k->...ij", A, x) - b
            apart = slopes - slopes.mean(axis=-2, keepdims=True) - delta
            gap = np.einsum("...j,jk,...k->...", x - x_star, H, x - x_star) / 2
            return np.asarray(gap + a / 4 * np.mean(np.sum(apart**2, axis=-1), axis=-1))  # fmt: skip

        for scale in (0.01, 1.0, 100.0):
            x, delta = source.standard_normal(DIM), scale * source.standard_normal((CLIENTS, DIM))
            delta -= delta.mean(axis=0)
            directions = []
            for i in range(CLIENTS):
                y = x
                for _ in range(TAU[i]):
                    y = y - eta[i] * (A[i] @ y - b[i] - delta[i])
                directions.append((x - y) / (eta[i] * TAU[i]))
            d = np.array(directions)
            error = source.choice((-1.0, 1.0), (4000, CLIENTS, 1)) * np.sqrt(omega)  # z = (1 ± √ω)d
            z = d + error * d
            mean = z.mean(axis=1, keepdims=True)
            after = measure(x - a * mean[:, 0], delta + z - mean)
            doubt = 4 * after.std() / np.sqrt(len(after))
            assert after.mean() - doubt <= (1 - a * instance.strong_convexity / 2) * measure(x, delta)


def test_fedcomgate_as_its_authors_code_has_it_ends_off_x_star() -> None:
    """Moving δ_i by the client's unquantised direction leaves an error in the sum of the δ_i, and so in the limit."""
    instance = next(iter(instances()))
    plan = theory.fedcomgate(instance, TAU, 0.1)
    method = fedlin.fedcomgate(fedlin.quantize(9))
    model, track = method.phases

    def unquantised(state: Any, x: Any, local: Any) -> Any:
        after, upload = model.client(state, x, local)
        direction = (x - local.descend(x, shift=-state.delta)) / (local.eta * local.tau.astype(x.dtype))
        return after._replace(sent=direction), upload

    theirs = dataclasses.replace(
        method, phases=(dataclasses.replace(model, client=unquantised), track), recipe=None, name="as in FedTorch"
    )
    ours, other = (simulate(one, instance, plan, 2000, x0=X0).gap for one in (method, theirs))
    assert ours[-1] < 1e-20 * ours[0]
    assert other[-1] > 1e-8 * other[0]
    np.testing.assert_allclose(other[-1], other[-200], rtol=1e-3)  # at rest


def test_fedcomgate_needs_quantisers_of_small_variance() -> None:
    """What the δ_i do not know is multiplied by ω in every round: with ω = 1.5 it grows without end."""
    sparse = fedlin.rand_k(2, unbiased=True)
    assert sparse.omega is not None
    result = simulate(fedlin.fedcomgate(sparse), problem(), theory.fedcomgate(problem(), TAU, sparse.omega(DIM)), 200)
    assert result.distance[-1] > 1e3 * result.distance[0]


@pytest.mark.parametrize("server_step", [0.5, 1.0, 3.0])
def test_gradient_tracking_keeps_its_promise(server_step: float) -> None:
    """gap_T ≤ (1 - min{1, η_s}/(4κ))^T gap_0, whatever the τ_i; the constant is our own."""
    for instance in instances():
        plan = theory.gradient_tracking(instance, TAU, server_step)
        result = simulate(fedlin.gradient_tracking(server_step), instance, plan, 600, x0=X0)
        bound = theory.bounds.gradient_tracking(instance, 600, float(result.gap[0]), server_step)
        assert np.all(result.gap <= bound * (1 + 1e-9) + 1e-28)
        assert result.gap[-1] < 1e-6 * result.gap[0]


def test_gradient_tracking_falls_by_its_measure_every_round() -> None:
    """gap + aS²/15 falls by 1 - aμ/2 from any corrections, S² = mean ‖c_i - (∇f(x) - ∇f_i(x))‖² up to its own mean.

    Played by hand from random c_i, which no run begins with: the proof asks for nothing but Σ c_i = 0 and one η̄.
    """
    source = np.random.default_rng(0)
    for instance in instances():
        A, b = instance.data.A, instance.data.b
        eta = theory.gradient_tracking(instance, TAU).eta
        a = 1 / (2 * instance.smoothness)
        for _ in range(100):
            x, c = source.standard_normal(DIM), source.standard_normal((CLIENTS, DIM)) * source.choice([0.01, 1, 100])
            c -= c.mean(axis=0)

            def measure(x: Any, c: Any, A: Any = A, b: Any = b, instance: Any = instance, a: float = a) -> float:
                grads = A @ x - b
                stale = c - (grads.mean(axis=0) - grads)
                return float(instance.gap(x) + a / 15 * np.mean(np.sum(stale**2, axis=1)))

            directions = np.empty_like(c)
            for i in range(CLIENTS):
                y = x.copy()
                for _ in range(TAU[i]):
                    y -= eta[i] * (A[i] @ y - b[i] + c[i])
                directions[i] = (x - y) / a
            after = measure(x - a * directions.mean(axis=0), c - directions + directions.mean(axis=0))
            assert after <= (1 - a * instance.strong_convexity / 2) * measure(x, c) * (1 + 1e-12)


@pytest.mark.parametrize("tau", [1, 4])
def test_fedac_keeps_its_promise(tau: int) -> None:
    """gap_T ≤ exp(-max{ημ, √(ημ/τ)} τT)(gap_0 + μ‖x_0 - x*‖²/2): all clients alike, or one step a round."""
    for drawn in instances():
        instance = drawn if tau == 1 else alike(drawn)
        plan = theory.fedac(instance, tau)
        result = simulate(fedlin.fedac(), instance, plan, 60, x0=X0)
        pace = float(plan.eta) * instance.strong_convexity
        start = result.gap[0] + instance.strong_convexity / 2 * result.distance[0]
        drop = max(pace, np.sqrt(pace / tau)) * tau
        assert np.all(result.gap <= np.exp(-drop * np.arange(61)) * start * (1 + 1e-9) + 1e-28)


def test_fedac_takes_the_square_root_of_the_condition_number() -> None:
    """A condition number a hundred times larger: about ten times the rounds, where gradient descent takes a hundred."""

    def rounds(method: Algorithm[Any, Any], condition: float) -> int:
        spread = np.geomspace(1, condition, DIM)
        A = np.repeat(np.diag(spread)[None], CLIENTS, axis=0)
        instance = fedlin.problems.quadratic(A, np.repeat(spread[None], CLIENTS, axis=0))
        found = simulate(method, instance, theory.fedac(instance, 1), 30000, stop=fedlin.Stop(gap=1e-8), iterates=False)
        assert found.status == "stopped"
        return len(found.gap) - 1

    growth = {m.name: rounds(m, 2000) / rounds(m, 20) for m in (fedlin.fedac(), fedlin.gradient_descent())}
    assert 7 < growth["fedac"] < 14
    assert growth["gradient_descent"] > 70


@pytest.mark.parametrize("renewal", [1.0, 0.3])
def test_s_local_svrg_keeps_its_promise_in_the_mean(renewal: float) -> None:
    """E‖x_T - x*‖² ≤ (1 - min{η̄μ, q}/2)^T (1 + (1 - q)/(100q)) ‖x_0 - x*‖², with batches of two rows and our own steps.

    Each round takes two gradients a step, and a full one in the first round and in a share q of the others.
    """
    tau, batch, rounds = 4, 2, 1000
    for seed in range(3):
        exact = fedlin.problems.least_squares(clients=4, dim=3, samples=20, seed=seed)
        rows = exact.rows().data.X
        row_smoothness = 20 * np.max(np.sum(rows**2, axis=-1))  # of 20 times one row, which a batch is the mean of
        plan = theory.s_local_svrg(exact, tau, row_smoothness)
        noisy = fedlin.problems.minibatch(exact, batch)
        runs = simulate_many(fedlin.s_local_svrg(renewal), noisy, plan, rounds, seeds=SEEDS[:8])
        mean = np.mean([run.distance for run in runs], axis=0)
        eta_bar = tau * float(plan.eta)
        assert np.all(mean <= theory.bounds.s_local_svrg(exact, rounds, float(mean[0]), eta_bar, renewal))
        twice = np.exp(-eta_bar * exact.strong_convexity * rounds)  # the promised rate
        assert mean[-1] < twice * mean[0]
        renewed = np.array([np.diff(run.gradients) for run in runs]) / 4 - 2 * tau
        assert np.all((renewed == 0) | (renewed == 1))
        assert np.all(renewed[:, 0] == 1)
        assert abs(renewed[:, 1:].mean() - renewal) <= 4 * np.sqrt(renewal * (1 - renewal) / (8 * (rounds - 1)))


def test_s_local_svrg_scales_with_the_steepest_row_and_the_fewest_steps() -> None:
    """η̄ = min{τ/(64ℒ), 1/(20√(Lℒ))}: many local steps come up against the second, few against the first."""
    instance = problem()
    L = instance.smoothness
    np.testing.assert_allclose(theory.s_local_svrg(instance, TAU, L).eta * TAU, TAU.min() / 64 / L)
    assert float(theory.s_local_svrg(instance, 100, 4 * L).eta) * 100 == pytest.approx(1 / 40 / L)
    assert theory.s_local_svrg(instance, 3, L / 9).eta == theory.s_local_svrg(instance, 3, L).eta  # no draw is below L


@pytest.mark.parametrize("tau", [1, 5])
@pytest.mark.parametrize("variance", [0.0, 1.0])
def test_fedpaq_keeps_its_promise_in_the_mean(tau: int, variance: float) -> None:
    """Theorem 1 of its paper, clients alike and noise of variance σ² = d · variance: E‖x_k - x*‖² = O(τ/T)."""
    compressor, rounds = fedlin.quantize(4), 400
    assert compressor.omega is not None
    omega = compressor.omega(DIM)
    for drawn in instances(2):
        instance = alike(drawn)
        plan = theory.fedpaq(instance, tau, rounds, omega)
        noisy = fedlin.problems.noisy(instance, variance)
        mean = mean_distance(fedlin.fedpaq(compressor), noisy, plan, rounds)
        bound = theory.bounds.fedpaq(instance, rounds, float(mean[0]), tau, omega, DIM * variance)
        assert np.all(mean <= bound)
        assert mean[-50:].mean() < 0.05 * mean[0]


def test_scaffnew_takes_the_steps_its_coin_says() -> None:
    """The number of local steps is geometric with mean τ, the same for all clients."""
    instance = problem()
    result = simulate(fedlin.scaffnew(), instance, Plan(5, 0.5 / instance.smoothness), 2000, x0=X0, iterates=False)
    steps = np.diff(result.gradients) / instance.clients
    assert np.all(steps == np.round(steps))
    assert steps.min() >= 1
    assert abs(steps.mean() - 5) < 3 * np.sqrt(5 * 4 / 2000)  # three standard errors of a geometric mean
    assert abs(np.mean(steps == 1) - 1 / 5) < 0.03


def test_scaffnew_needs_equal_plans() -> None:
    with pytest.raises(FedLinError, match="one number of local steps for all clients"):
        simulate(fedlin.scaffnew(), problem(), Plan(np.arange(1, 8), 0.01), 5)


def test_diana_refuses_a_biased_compressor() -> None:
    with pytest.raises(FedLinError, match=r"top_k\(2\) is biased"):
        fedlin.diana(fedlin.top_k(2), 0.5)


def test_remembered_gradients_survive_absences() -> None:
    """Innovation on the gradient uplink ends at x* though 30 % of the clients miss each round."""
    plan = Plan.scaled(3, 0.05)
    options: dict[str, Any] = {"participation": 0.7, "iterates": False}
    remembers = simulate(fedlin.fedlin(uplink=fedlin.innovation(fedlin.identity())), problem(), plan, 1500, **options)
    forgets = simulate(fedlin.fedlin(), problem(), plan, 1500, **options)
    assert remembers.distance[-1] < 1e-20
    assert forgets.distance[-200:].min() > 1e-6


def test_one_batch_at_both_points_ends_at_the_minimiser() -> None:
    exact = fedlin.problems.least_squares(clients=4, dim=5, samples=30, seed=0)
    noisy = fedlin.problems.minibatch(exact, 10)
    plan = Plan.scaled([1, 2, 3, 4], 2e-3)
    same, fresh = (simulate(fedlin.fedlin(same_batch=flag), noisy, plan, 800) for flag in (True, False))
    assert same.gap[-1] < 1e-12
    assert fresh.gap[-200:].min() > 1e-6
    np.testing.assert_allclose(
        simulate(fedlin.fedlin(same_batch=True), exact, plan, 20).iterates,
        simulate(fedlin.fedlin(), exact, plan, 20).iterates,
        rtol=1e-10,
        atol=1e-12,
    )
    # Two gradients a step, and the full one.
    assert same.gradients[1] == sum(2 * tau + 1 for tau in (1, 2, 3, 4))
