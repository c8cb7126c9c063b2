"""The rivals beyond the paper: what they reduce to, and what their own papers promise."""

from typing import Any

import numpy as np
import pytest

import fedlin
from fedlin import Plan, simulate, simulate_many, theory
from fedlin.core import Algorithm
from fedlin.errors import FedLinError
from quadratics import X0, assert_close, problem

ROUNDS = 40


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
