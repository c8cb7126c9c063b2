"""Methods that become one another, runs that must not differ, and draws that are a function of their names."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedlin
import reference
from fedlin import error_feedback, identity, innovation, top_k
from fedlin.algorithms.model_only import ModelOnly, take_mean
from fedlin.core import Algorithm, Local, Phase
from fedlin.engines.keys import cohort_key, phase_keys
from fedlin.precision import precision
from fedlin.problems.problem import Problem
from quadratics import CLIENTS, DIM, ROUNDS, TAU, X0, A, Array, B, assert_close, plan, problem

ONE_ETA = 0.012


def iterates(
    algorithm: Algorithm[Any, Any],
    instance: Problem | None = None,
    steps: fedlin.Plan | None = None,
    **options: Any,
) -> Array:
    chosen = problem() if instance is None else instance
    return fedlin.simulate(algorithm, chosen, steps or plan(), ROUNDS, x0=X0, **options).iterates


# One method inside another.


def test_fedprox_without_pull_is_fedavg() -> None:
    assert_close(iterates(fedlin.fedprox(0.0)), iterates(fedlin.fedavg()), 1e-13)
    assert np.max(np.abs(iterates(fedlin.fedprox(0.5)) - iterates(fedlin.fedavg()))) > 1e-3


def test_fedlin_with_one_step_is_gradient_descent() -> None:
    steps = fedlin.Plan(1, 0.1)
    assert_close(iterates(fedlin.fedlin(), steps=steps), iterates(fedlin.gradient_descent(), steps=steps), 1e-13)


@pytest.mark.parametrize("option", [1, 2])
def test_scaffold_with_one_step_is_gradient_descent(option: int) -> None:
    """The control variates cancel in the mean."""
    steps = fedlin.Plan(1, 0.1)
    scaffold, descent = (iterates(a, steps=steps) for a in (fedlin.scaffold(option), fedlin.gradient_descent()))
    assert_close(scaffold, descent, 1e-13)


def test_fedlin_on_identical_clients_is_gradient_descent_with_more_steps() -> None:
    """Nothing to correct: a round is τ steps of gradient descent."""
    tau = 4
    same = fedlin.problems.quadratic(np.repeat(A[:1], CLIENTS, axis=0), np.repeat(B[:1], CLIENTS, axis=0))
    rounds = iterates(fedlin.fedlin(), same, fedlin.Plan(tau, 0.01))
    steps = fedlin.simulate(fedlin.gradient_descent(), same, fedlin.Plan(1, 0.01), tau * ROUNDS, x0=X0)
    assert_close(rounds, steps.iterates[::tau], 1e-12)


def test_fednova_with_equal_steps_is_fedavg() -> None:
    equal, unequal = fedlin.Plan(5, ONE_ETA), fedlin.Plan(TAU, ONE_ETA)
    assert_close(iterates(fedlin.fednova(), steps=equal), iterates(fedlin.fedavg(), steps=equal), 1e-12)
    apart = iterates(fedlin.fednova(), steps=unequal) - iterates(fedlin.fedavg(), steps=unequal)
    assert np.max(np.abs(apart)) > 1e-3


@pytest.mark.parametrize("option", [1, 2])
def test_scaffold_begins_as_fedavg(option: int) -> None:
    """All control variates are zero in the first round, and in no later one."""
    scaffold, fedavg = iterates(fedlin.scaffold(option)), iterates(fedlin.fedavg())
    assert_close(scaffold[1], fedavg[1], 1e-13)
    assert np.max(np.abs(scaffold[2] - fedavg[2])) > 1e-3


def test_fedsplit_with_a_tiny_prox_step_is_gradient_descent() -> None:
    """prox_{sf}(u) = u - s∇f(u) + O(s²): two gradient steps of size s a round, to first order."""
    s = 1e-5
    split = fedlin.simulate(fedlin.fedsplit(), problem(), fedlin.Plan(1, s), 1, x0=X0)
    assert_close((X0 - split.x) / s, 2 * problem().grad(X0), 1e-3)


SAME_PROGRESS = fedlin.Plan.scaled(TAU, 0.04)


@pytest.mark.parametrize("options", [{}, {"server_step": 0.6}], ids=["as it is", "server step"])
def test_fedcomgate_without_compression_is_scaffold(options: dict[str, Any]) -> None:
    """Tracking from δ_i = 0 is option II when all take η_i τ_i alike, with half the bytes up and one number more."""
    tracked, scaffold = (
        fedlin.simulate(method, problem(), SAME_PROGRESS, ROUNDS, x0=X0)
        for method in (fedlin.fedcomgate(identity(), **options), fedlin.scaffold(**options))
    )
    assert_close(tracked.iterates, scaffold.iterates, 1e-12)
    np.testing.assert_array_equal(tracked.bytes_down, scaffold.bytes_down)
    np.testing.assert_array_equal(2 * (tracked.bytes_up - 8 * CLIENTS * np.arange(ROUNDS + 1)), scaffold.bytes_up)


def test_gradient_tracking_begins_as_fedlin_and_goes_on_as_scaffold() -> None:
    """Its first corrections are exact; from its second model on they are those of option II begun with exact ones."""
    tracking, exact = (
        iterates(fedlin.gradient_tracking(), steps=SAME_PROGRESS),
        iterates(fedlin.fedlin(), steps=SAME_PROGRESS),
    )
    assert_close(tracking[1], exact[1], 1e-12)
    assert np.max(np.abs(tracking[2] - exact[2])) > 1e-5
    from_zero = iterates(fedlin.scaffold(), steps=SAME_PROGRESS)
    assert np.max(np.abs(tracking[1] - from_zero[1])) > 1e-3


def test_gradient_tracking_with_one_step_is_gradient_descent() -> None:
    steps = fedlin.Plan(1, 0.1)
    tracking, descent = (iterates(a, steps=steps) for a in (fedlin.gradient_tracking(), fedlin.gradient_descent()))
    assert_close(tracking, descent, 1e-12)


def test_fedac_with_one_step_is_nesterovs_method() -> None:
    eta, mu = 1 / problem().smoothness, problem().strong_convexity
    accelerated = iterates(fedlin.fedac(), steps=fedlin.Plan(1, eta))
    assert_close(accelerated, reference.nesterov(A, B, eta, mu, X0, ROUNDS), 1e-12)


def test_s_local_svrg_that_always_renews_is_same_batch_fedlin() -> None:
    """Draw for draw and gradient for gradient."""
    noisy = fedlin.problems.minibatch(regression("mean")[2], 2)
    steps = fedlin.Plan([1, 2, 3], 0.02)
    always, same = (
        fedlin.simulate(method, noisy, steps, ROUNDS, x0=X0)
        for method in (fedlin.s_local_svrg(1.0), fedlin.fedlin(same_batch=True))
    )
    assert_close(always.iterates, same.iterates, 1e-12)
    np.testing.assert_array_equal(always.gradients, same.gradients)


# Local work written out.


def by_hand(client: Any) -> Algorithm[ModelOnly, None]:
    return fedlin.Algorithm(
        "by_hand", ModelOnly, lambda x: None, (Phase("model", lambda state: state.x, client, take_mean),)
    )


def test_repeated_steps_draw_and_count_as_descend_does() -> None:
    """FedAvg with its loop written out: the same noise in every step, the same number of gradients."""

    def walk(state: None, x: Any, local: Local) -> Any:
        return None, local.repeat(lambda y, key: y - local.eta * local.oracle.grad(y, key), x)

    noisy = fedlin.problems.noisy(problem(), 0.1)
    written, given = (
        fedlin.simulate(method, noisy, plan(), ROUNDS, x0=X0, seed=4) for method in (by_hand(walk), fedlin.fedavg())
    )
    assert_close(written.iterates, given.iterates, 1e-12)
    np.testing.assert_array_equal(written.gradients, given.gradients)


def test_repeated_steps_count_whatever_they_hold() -> None:
    """A gradient, a full one and a loop of two in each of τ_i steps, after one more: 1 + τ_i (1 + 1 + 2)."""

    def walk(state: None, x: Any, local: Local) -> Any:
        def step(y: Any, key: Any) -> Any:
            slope = local.oracle.grad(y, key) + local.oracle.full(y)
            return local.descend(y - local.eta * slope, steps=2)

        return None, local.repeat(step, x - local.eta * local.oracle.full(x))

    result = fedlin.simulate(by_hand(walk), problem(), plan(), 3)
    np.testing.assert_array_equal(np.diff(result.gradients), np.sum(1 + 4 * TAU))


# Links that lose nothing.


@pytest.mark.parametrize("link", [error_feedback(identity()), innovation(identity())], ids=str)
def test_a_link_of_the_identity_changes_nothing(link: fedlin.links.Link) -> None:
    everywhere = fedlin.fedlin(uplink=link, downlink=link, model_uplink=link, model_downlink=link)
    assert_close(iterates(everywhere), iterates(fedlin.fedlin()), 1e-12)


def test_keeping_every_entry_changes_nothing() -> None:
    """With feedback and with innovations, on every way."""
    kept, moved = top_k(DIM), innovation(top_k(DIM))
    everywhere = fedlin.fedlin(uplink=kept, downlink=moved, model_uplink=moved, model_downlink=kept)
    assert_close(iterates(everywhere), iterates(fedlin.fedlin()), 1e-12)


def test_a_link_for_models_sends_all_but_the_first_as_moves() -> None:
    """A round sends the model and the mean gradient down, both in full without links, to each client."""
    run = fedlin.simulate(fedlin.fedlin(model_downlink=top_k(1)), problem(), plan(), ROUNDS, x0=X0)
    dense, entry = CLIENTS * 8 * DIM, CLIENTS * (8 + 1)  # a value, and one byte for where it belongs
    np.testing.assert_array_equal(np.diff(run.bytes_down), [2 * dense] + [entry + dense] * (ROUNDS - 1))


# Many runs as one.


@pytest.mark.parametrize(
    ("algorithms", "steps", "seeds"),
    [
        (fedlin.fedlin(uplink=fedlin.quantize(4)), plan(), [0, 1, 2]),
        (fedlin.scaffold(), [fedlin.Plan(TAU, eta) for eta in (0.002, 0.005, 0.01)], 0),
        ([fedlin.fedprox(beta) for beta in (0.0, 0.5, 2.0)], plan(), 0),
        ([fedlin.fedavg(), fedlin.fedprox(0.5), fedlin.fedavg()], [plan(), plan(), fedlin.Plan(TAU, 0.003)], [3, 4, 5]),
    ],
    ids=["seeds", "steps", "beta", "methods"],
)
def test_members_of_a_batch_are_single_runs(algorithms: Any, steps: Any, seeds: Any) -> None:
    def of(value: Any, number: int) -> Any:
        return value[number] if isinstance(value, list) else value

    together = fedlin.simulate_many(algorithms, problem(), steps, ROUNDS, seeds=seeds, x0=X0)
    alone = [iterates(of(algorithms, i), steps=of(steps, i), seed=of(seeds, i)) for i in range(3)]
    for member, single in zip(together, alone, strict=True):
        assert_close(member.iterates, single, 1e-12)
    assert np.max(np.abs(alone[0] - alone[1])) > 1e-6


def test_members_of_a_batch_may_differ_in_data() -> None:
    instances = [problem(), fedlin.problems.quadratic(A, 2 * B), fedlin.problems.quadratic(A[::-1], B)]
    together = fedlin.simulate_many(fedlin.fedlin(), instances, plan(), ROUNDS, x0=X0)
    for member, instance in zip(together, instances, strict=True):
        assert_close(member.iterates, iterates(fedlin.fedlin(), instance), 1e-12)
        assert_close(member.distance, fedlin.simulate(fedlin.fedlin(), instance, plan(), ROUNDS, x0=X0).distance, 1e-12)


# Weights.

WEIGHED = [fedlin.fedlin(), fedlin.scaffold()]


@pytest.mark.parametrize("algorithm", WEIGHED, ids=lambda a: a.name)
def test_equal_weights_are_no_weights(algorithm: Algorithm[Any, Any]) -> None:
    assert_close(iterates(algorithm, weights=np.full(CLIENTS, 3.0)), iterates(algorithm), 1e-12)


@pytest.mark.parametrize("algorithm", [*WEIGHED, fedlin.fednova()], ids=lambda a: a.name)
def test_a_weight_of_two_is_the_client_twice(algorithm: Algorithm[Any, Any]) -> None:
    """Iterates, minimiser and measures alike."""
    twice = np.array([0, 1, 2, 2, 3, 4, 5, 6, 6])
    weights = np.bincount(twice).astype(np.float64)
    eta = np.full(CLIENTS, ONE_ETA)
    whole = fedlin.problems.quadratic(A[twice], B[twice])
    weighed = fedlin.simulate(algorithm, problem(), fedlin.Plan(TAU, eta), ROUNDS, x0=X0, weights=weights)
    doubled = fedlin.simulate(algorithm, whole, fedlin.Plan(TAU[twice], eta[twice]), ROUNDS, x0=X0)
    assert_close(weighed.iterates, doubled.iterates, 1e-12)
    assert_close(weighed.distance, doubled.distance, 1e-12)
    assert_close(weighed.loss, doubled.loss, 1e-12)
    assert np.max(np.abs(weighed.iterates - iterates(algorithm, steps=fedlin.Plan(TAU, eta)))) > 1e-3


# Noise.


@pytest.mark.parametrize("algorithm", [fedlin.fedlin(), fedlin.scaffold(1)], ids=lambda a: a.name)
def test_noise_of_no_variance_is_the_exact_gradient(algorithm: Algorithm[Any, Any]) -> None:
    assert_close(iterates(algorithm, fedlin.problems.noisy(problem(), 0.0)), iterates(algorithm), 1e-12)


ROWS = [9, 4, 6]  # clients of unequal length, so that padding would be noticed


def regression(reduction: str) -> tuple[list[Array], list[Array], fedlin.problems.Problem]:
    rng = np.random.default_rng(21)
    X = [rng.standard_normal((n, DIM)) for n in ROWS]
    y = [rng.standard_normal(n) for n in ROWS]
    return X, y, fedlin.problems.regression(X, y, l2=0.3, reduction=reduction)


def estimates(instance: Problem, client: int, x: Array, draws: int) -> Array:
    """Gradient estimates of one client at x, one for each of `draws` keys."""
    with precision(np.float64):
        assert instance.sampling is not None
        data, noise = jax.tree.map(lambda leaf: jnp.asarray(leaf[client]), (instance.data, instance.noise))
        sampling, objective = instance.sampling, instance.objective
        keys = jax.random.split(jax.random.key(7), draws)
        draw = jax.jit(jax.vmap(lambda key: sampling.slope(objective, data, noise, jnp.asarray(x), key).grad))
        return np.asarray(draw(keys))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("client", range(len(ROWS)))
def test_a_minibatch_of_one_is_a_row_at_random(reduction: str, client: int) -> None:
    """Each estimate is one row's gradient, each row comes equally often, and their mean is ∇f_i."""
    X, y, instance = regression(reduction)
    x, n, draws = X0, ROWS[client], 4000
    residual = X[client] @ x - y[client]
    scale = n if reduction == "sum" else 1
    rows = scale * X[client] * residual[:, None] + 0.3 * x
    exact = X[client].T @ residual * (1 if reduction == "sum" else 1 / n) + 0.3 * x
    assert_close(rows.mean(axis=0), exact, 1e-12)
    drawn = estimates(fedlin.problems.minibatch(instance, 1), client, x, draws)
    apart = np.max(np.abs(drawn[:, None, :] - rows[None]), axis=2)
    assert np.max(np.min(apart, axis=1)) < 1e-12 * np.max(np.abs(rows))
    counts = np.bincount(np.argmin(apart, axis=1), minlength=n)
    assert np.max(np.abs(counts - draws / n)) < 5 * np.sqrt(draws / n)


def test_larger_minibatches_are_unbiased_with_less_variance() -> None:
    """The mean over keys is ∇f_i within five standard errors; a batch of four has a quarter of the variance."""
    X, y, instance = regression("mean")
    exact = X[0].T @ (X[0] @ X0 - y[0]) / ROWS[0] + 0.3 * X0
    variances = []
    for size in (1, 4):
        drawn = estimates(fedlin.problems.minibatch(instance, size), 0, X0, 4000)
        error = drawn.std(axis=0) / np.sqrt(len(drawn))
        assert np.all(np.abs(drawn.mean(axis=0) - exact) < 5 * error)
        variances.append(drawn.var(axis=0).sum())
    assert variances[0] / variances[1] == pytest.approx(4, rel=0.15)


# Draws.


def test_a_draw_is_a_function_of_seed_round_phase_and_client() -> None:
    """Noisy gradient descent by hand: the noise is what each client's own key gives."""
    variance, eta, rounds, seed = 0.5, 0.05, 4, 9
    with precision(np.float64):
        noise = np.array(
            [
                [
                    jax.random.normal(phase_keys(jax.random.key(seed), t, 0).client(i), (DIM,), jnp.float64)  # type: ignore[arg-type]
                    for i in range(CLIENTS)
                ]
                for t in range(rounds)
            ]
        )
    x = X0
    expected = [x]
    for t in range(rounds):
        x = x - eta * np.mean([A[i] @ x - B[i] + np.sqrt(variance) * noise[t, i] for i in range(CLIENTS)], axis=0)
        expected.append(x)
    noisy = fedlin.problems.noisy(problem(), variance)
    result = fedlin.simulate(fedlin.gradient_descent(), noisy, fedlin.Plan(1, eta), rounds, seed=seed, x0=X0)
    assert_close(result.iterates, np.array(expected), 1e-12)


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        (fedlin.fedlin(uplink=fedlin.quantize(4)), {}),
        (fedlin.scaffold(), {"participation": 0.5}),
    ],
    ids=["compressor", "cohort"],
)
def test_the_seed_decides_everything(algorithm: Algorithm[Any, Any], options: dict[str, Any]) -> None:
    first, again, other = (iterates(algorithm, seed=seed, **options) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.max(np.abs(first - other)) > 1e-3


@pytest.mark.parametrize("algorithm", [fedlin.scaffold(), fedlin.fedavg()], ids=lambda a: a.name)
def test_a_drawn_cohort_is_the_same_cohort_on_schedule(algorithm: Algorithm[Any, Any]) -> None:
    """A share of the clients, drawn with the round's key, against who they are written out."""
    with precision(np.float64):
        drawn = [jax.random.permutation(cohort_key(jax.random.key(6), t), CLIENTS)[:4] for t in range(ROUNDS)]  # type: ignore[arg-type]
    schedule = np.zeros((ROUNDS, CLIENTS))
    for t, cohort in enumerate(drawn):
        schedule[t, np.asarray(cohort)] = 1
    assert np.all(schedule.sum(axis=1) == 4)
    assert_close(
        iterates(algorithm, seed=6, participation=0.5), iterates(algorithm, seed=6, participation=schedule), 1e-12
    )


def test_a_schedule_of_everyone_is_full_participation() -> None:
    """So that methods which need every client take it."""
    everyone = np.ones((ROUNDS, CLIENTS))
    scheduled, full = (
        fedlin.simulate(fedlin.scaffnew(), problem(), fedlin.Plan(3, 0.1), ROUNDS, x0=X0, participation=p)
        for p in (everyone, 1.0)
    )
    np.testing.assert_array_equal(scheduled.iterates, full.iterates)


def test_layouts_draw_the_same() -> None:
    """A client's draws do not depend on who is computed beside it."""
    noisy = fedlin.problems.noisy(problem(), 0.1)
    by_step, by_client = (iterates(fedlin.fedavg(), noisy, layout=layout) for layout in ("step", "client"))
    assert_close(by_step, by_client, 1e-12)


def test_a_run_does_not_depend_on_how_many_rounds_follow() -> None:
    """Round t draws the same in a run of any length."""
    algorithm = fedlin.fedlin(uplink=fedlin.quantize(4))
    short = fedlin.simulate(algorithm, problem(), plan(), 7, x0=X0, seed=1)
    np.testing.assert_array_equal(short.iterates, iterates(algorithm, seed=1)[:8])
