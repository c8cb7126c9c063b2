"""Methods around methods: the contract, what they reduce to, and whom they refuse."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import optax
import pytest
from numpy.typing import NDArray

import fedlin
import reference
from compilation import compilations
from contract import Check, Row, each_check
from fedlin.core import Algorithm, Requirement
from fedlin.errors import ArgumentError
from fedlin.precision import precision
from method_rows import ROWS
from quadratics import CLIENTS, DIM, ETA, TAU, X0, A, B, assert_close, plan, problem

Array = NDArray[Any]


def fedadam() -> Algorithm[Any, Any]:
    return fedlin.server_optimizer(fedlin.fedavg(), optax.adam(0.05))


def momentum_around_fedlin() -> Algorithm[Any, Any]:
    return fedlin.server_optimizer(fedlin.fedlin(uplink=fedlin.innovation(fedlin.top_k(2))), optax.sgd(0.7, 0.2))


def nesterov_around_fedlin() -> Algorithm[Any, Any]:
    return fedlin.momentum(fedlin.fedlin(uplink=fedlin.innovation(fedlin.top_k(2))), 0.3)


def clipped_fedprox() -> Algorithm[Any, Any]:
    return fedlin.clipped(fedlin.fedprox(0.5), 1.0)


def clipped_twice() -> Algorithm[Any, Any]:
    return fedlin.server_optimizer(fedlin.clipped(fedlin.clipped(fedlin.scaffold(), 50.0), 40.0), optax.sgd(0.9))


def momentum_at_the_clients() -> Algorithm[Any, Any]:
    return fedlin.client_optimizer(fedlin.fedlin(), optax.sgd(0.5, momentum=0.3))


@each_check(
    [
        Row(fedadam, {}, "stalls", rounds=800),
        Row(momentum_around_fedlin, {}, "converges"),
        Row(nesterov_around_fedlin, {}, "converges"),
        Row(clipped_fedprox, {}, "stalls", rounds=800),
        Row(clipped_twice, {}, "converges"),
        Row(momentum_at_the_clients, {}, "converges"),
    ]
)
def test_contract(check: Check, row: Row) -> None:
    check(row)


def run(method: Algorithm[Any, Any], rounds: int = 12, **options: Any) -> Array:
    return fedlin.simulate(method, problem(), plan(), rounds, **{"x0": X0, **options}).iterates


def test_old_names_of_requirements_still_work() -> None:
    with pytest.warns(DeprecationWarning, match=r"Requirement\.EVERY_CLIENT"):
        from fedlin.core import EVERY_CLIENT
    assert EVERY_CLIENT in fedlin.scaffnew().requires
    assert "every client in every round" in fedlin.scaffnew().requires  # as text, as it was


# Momentum.


@pytest.mark.parametrize("seed", [21, 22])
def test_momentum_follows_its_equations(seed: int) -> None:
    """Around FedLin in plain NumPy, with the two sequences as Nesterov writes them, on draws of their own."""
    A, B = reference.random_quadratic(seed, CLIENTS, DIM)
    beta, x = 0.45, np.random.default_rng(seed).standard_normal(X0.shape)
    last, models = x, [x]
    for _ in range(12):
        g = np.mean([A[i] @ x - B[i] for i in range(len(A))], axis=0)
        ends = []
        for i in range(len(A)):
            y = x
            for _ in range(TAU[i]):
                y = y - ETA[i] * (A[i] @ (y - x) + g)
            ends.append(y)
        ended = np.mean(ends, axis=0)
        x, last = ended + beta * (ended - last), ended
        models.append(x)
    drawn = fedlin.problems.quadratic(A, B)
    result = fedlin.simulate(fedlin.momentum(fedlin.fedlin(), beta), drawn, plan(), 12, x0=models[0])
    assert_close(result.iterates, np.array(models), 1e-10)


def test_momentum_is_what_optax_makes_of_it() -> None:
    ours = run(fedlin.momentum(fedlin.fedlin(), 0.4))
    theirs = run(fedlin.server_optimizer(fedlin.fedlin(), optax.sgd(1.0, momentum=0.4, nesterov=True)))
    assert_close(ours, theirs, 1e-12)


@pytest.mark.parametrize("beta", [-0.1, 1.0, np.nan, "fast"])
def test_momentum_refuses_what_would_run_away(beta: Any) -> None:
    with pytest.raises(ArgumentError, match="beta"):
        fedlin.momentum(fedlin.fedlin(), beta)


# An optimiser at the server.


@pytest.mark.parametrize(
    "method",
    [
        fedlin.fedavg(),
        fedlin.scaffold(),
        fedlin.gradient_tracking(),
        fedlin.fedlin(uplink=fedlin.top_k(2), downlink=fedlin.top_k(2)),
    ],
    ids=repr,
)
def test_a_server_step_of_one_is_the_method_itself(method: Algorithm[Any, Any]) -> None:
    """Through an opening round too, and through phases after the one that moves the model."""
    assert_close(run(fedlin.server_optimizer(method, optax.sgd(1.0))), run(method), 1e-13)


def test_a_server_step_of_one_is_the_method_itself_without_some_clients() -> None:
    moved, method = (
        run(method, participation=0.5, seed=3)
        for method in (fedlin.server_optimizer(fedlin.scaffold(), optax.sgd(1.0)), fedlin.scaffold())
    )
    assert_close(moved, method, 1e-13)


@pytest.mark.parametrize(
    "optimizer",
    [optax.adam(0.05), optax.yogi(0.05), optax.sgd(optax.exponential_decay(0.9, 3, 0.5), momentum=0.6)],
    ids=["adam", "yogi", "momentum and a schedule"],
)
def test_a_server_optimiser_is_optax_driven_by_hand(optimizer: optax.GradientTransformation) -> None:
    """Round by round: where FedAvg's next model is from here, and what optax makes of the way there."""
    models = [X0]
    with precision(np.float64):
        memory = optimizer.init(X0)
    for _ in range(12):
        after = run(fedlin.fedavg(), 1, x0=models[-1])[-1]
        with precision(np.float64), jax.numpy_dtype_promotion("standard"):  # optax does not keep to strict types
            move, memory = jax.jit(optimizer.update)(models[-1] - after, memory, models[-1])
            models.append(np.asarray(optax.apply_updates(models[-1], move)))
    assert_close(run(fedlin.server_optimizer(fedlin.fedavg(), optimizer)), np.array(models), 1e-12)


@pytest.mark.parametrize("method", [fedlin.fedavg(), fedlin.fedlin()], ids=repr)
def test_momentum_at_the_server_by_its_formula(method: Algorithm[Any, Any]) -> None:
    """FedAvgM: v ← βv + (x - x'), x ← x - ηv (Hsu et al., 2019): once a round, however many phases it has."""
    x, v, models = X0, np.zeros_like(X0), [X0]
    for _ in range(12):
        v = 0.6 * v + (x - run(method, 1, x0=x)[-1])
        x = x - 0.9 * v
        models.append(x)
    assert_close(run(fedlin.server_optimizer(method, optax.sgd(0.9, 0.6))), np.array(models), 1e-12)


# An optimiser at the clients.


@pytest.mark.parametrize(
    "method",
    [fedlin.fedavg(), fedlin.fedprox(0.5), fedlin.scaffold(option=1), fedlin.fedlin(uplink=fedlin.top_k(2))],
    ids=repr,
)
def test_a_client_step_of_one_is_the_method_itself(method: Algorithm[Any, Any]) -> None:
    assert_close(run(fedlin.client_optimizer(method, optax.sgd(1.0))), run(method), 1e-13)


@pytest.mark.parametrize(
    "optimizer",
    [
        optax.adam(0.5),
        optax.chain(optax.clip_by_global_norm(1.0), optax.add_decayed_weights(0.2), optax.sgd(1.0, momentum=0.6)),
        optax.sgd(optax.exponential_decay(1.0, 2, 0.5)),
    ],
    ids=["adam", "clipping, decay and momentum", "a schedule by step"],
)
def test_a_client_optimiser_is_optax_driven_by_hand(optimizer: optax.GradientTransformation) -> None:
    """FedProx: optax makes a move of ∇f_i(y) + β(y - x), anew in every round, and η_i scales it."""
    beta, x = 0.5, X0
    models = [x]
    with precision(np.float64), jax.numpy_dtype_promotion("standard"):
        update = jax.jit(optimizer.update)
        for _ in range(4):
            ends = []
            for i, (steps, eta) in enumerate(zip(TAU, ETA, strict=True)):
                y, memory = x, optimizer.init(x)
                for _ in range(steps):
                    move, memory = update(A[i] @ y - B[i] + beta * (y - x), memory, y)
                    y = y + eta * np.asarray(move)
                ends.append(y)
            x = np.mean(ends, axis=0)
            models.append(x)
    assert_close(run(fedlin.client_optimizer(fedlin.fedprox(beta), optimizer), 4), np.array(models), 1e-12)


@pytest.mark.parametrize("same_batch", [False, True])
def test_a_client_optimiser_goes_through_the_same_rows(same_batch: bool) -> None:
    """Passes over rows stay passes, in JAX and in torch, where steps are then asked for one by one."""
    torch = pytest.importorskip("torch")
    import fedlin.torch

    draw = np.random.default_rng(0)
    rows = [(draw.standard_normal((n, 3)), draw.standard_normal((n, 1))) for n in (7, 5)]
    model = torch.nn.Linear(3, 1).double()

    def loss(params: Any, batch: Any) -> Any:
        return ((batch[0] @ params[0].T + params[1][None] - batch[1]) ** 2).mean()

    start = [parameter.detach().numpy() for parameter in model.parameters()]
    for stochastic in (
        fedlin.problems.minibatch(fedlin.problems.from_loss(loss, start, rows), 2, replace=False),
        fedlin.torch.problem(model, torch.nn.functional.mse_loss, rows, 2, replace=False),
    ):
        method = fedlin.fedlin(same_batch=same_batch)
        plain, wrapped = (
            fedlin.simulate(one, stochastic, fedlin.Plan([9, 4], 0.1), 3, seed=2).iterates
            for one in (method, fedlin.client_optimizer(method, optax.sgd(1.0)))
        )
        assert_close(wrapped, plain, 1e-12)


def test_who_reads_gradients_off_the_way_refuses_other_steps() -> None:
    refused = [fedlin.scaffold(), fedlin.fednova(), fedlin.fedcomgate(fedlin.quantize(4)), fedlin.scaffnew()]
    for method in [*refused, fedlin.fedsplit(), fedlin.fedsplit(steps=3), fedlin.gradient_tracking()]:
        with pytest.raises(ArgumentError, match=r"client_optimizer takes other steps.*scaffold\(option=1\)"):
            fedlin.client_optimizer(method, optax.sgd(1.0))
    with pytest.raises(ArgumentError, match="give an optax transformation"):
        fedlin.client_optimizer(fedlin.fedavg(), 0.1)


@pytest.mark.parametrize("part", ["init", "update"])
def test_half_of_an_optimizer_is_refused(part: str) -> None:
    half = SimpleNamespace(**{part: getattr(optax.sgd(1.0), part)})
    for wrap in (fedlin.client_optimizer, fedlin.server_optimizer):
        with pytest.raises(ArgumentError, match="give an optax transformation"):
            wrap(fedlin.fedavg(), half)


def freed(method: Algorithm[Any, Any]) -> Algorithm[Any, Any]:
    """The method, its numbers in place, as if it did not need its own model."""
    recipe = method.recipe
    assert recipe is not None
    numbers = {name: getattr(problem(), name) if value is None else value for name, value in recipe.numbers}
    complete = recipe.with_numbers(numbers)
    return replace(complete, requires=complete.requires - {Requirement.OWN_MODEL}, recipe=None)


NEED_THEIR_OWN = [row for row in ROWS if Requirement.OWN_MODEL in row.algorithm().requires]


def test_who_needs_its_own_model() -> None:
    accelerated = {"adiana", "compressed_scaffnew", "fedac", "gradskip", "locodl", "scaffnew", "tamuna"}
    assert {row.method for row in NEED_THEIR_OWN} == {
        "compressed",
        "fedlin",
        "fedlin_newton",
        "fednl_pp",
        "fedsplit",
    } | accelerated


@pytest.mark.parametrize("row", NEED_THEIR_OWN, ids=str)
def test_a_method_that_needs_its_own_model_is_refused(row: Row) -> None:
    with pytest.raises(ArgumentError, match=r"needs to begin each round with the model.*server_optimizer"):
        fedlin.server_optimizer(row.algorithm(), optax.sgd(0.7))


@pytest.mark.parametrize("method", ["fedsplit", "scaffnew", "compressed"])
def test_the_refusal_is_deserved(method: str) -> None:
    """One step shorter than the method's own loses it x*, where it does no harm to those that are not refused."""
    row = next(row for row in NEED_THEIR_OWN if row.method == method and row.ends == "converges")
    steps, rounds = row.plan(problem()), 2 * row.rounds
    moved = fedlin.server_optimizer(freed(row.algorithm()), optax.sgd(0.7))
    lost = fedlin.simulate(moved, problem(), steps, rounds)
    assert lost.status == "done"
    assert lost.distance[-1] > 1e-6 * lost.distance[0]
    assert fedlin.simulate(row.algorithm(), problem(), steps, rounds).distance[-1] < 1e-24 * lost.distance[0]


def test_equal_optimisers_are_one_method_and_others_are_not() -> None:
    """Told by all that their functions hold, the same way in every process."""

    def made(step: float) -> Algorithm[Any, Any]:
        return fedlin.server_optimizer(fedlin.fedavg(), optax.adam(step))

    assert made(0.1) is made(0.1)
    assert made(0.1) is not made(0.2)
    assert "0x" not in repr(made(0.1).recipe)
    scaled = [optax.scale_by_schedule(lambda count, step=step: step) for step in (0.1, 0.2)]
    assert len({fedlin.server_optimizer(fedlin.fedavg(), one) for one in scaled}) == 2


# Clipping.


def test_a_bound_beyond_every_gradient_changes_nothing() -> None:
    """Where the problem has a faster way, two gradients are of one draw, or batches go through all rows."""
    assert_close(run(fedlin.clipped(fedlin.fedprox(0.5), 1e9)), run(fedlin.fedprox(0.5)), 1e-12)
    rows = fedlin.problems.least_squares(clients=3, dim=4, samples=20)
    for batches, steps in (
        (fedlin.problems.minibatch(rows, 2), fedlin.Plan([2, 3, 4], 0.01)),
        (fedlin.problems.minibatch(rows, 6, replace=False), fedlin.Plan([5, 8, 9], 0.01)),
        (rows, fedlin.Plan([2, 3, 4], 0.01)),
    ):
        method = fedlin.fedlin(same_batch=True)
        clipped, bare = (fedlin.simulate(m, batches, steps, 6) for m in (fedlin.clipped(method, 1e9), method))
        assert_close(clipped.iterates, bare.iterates, 1e-12)
        np.testing.assert_array_equal(clipped.gradients, bare.gradients)


def test_a_gradient_of_zero_stays() -> None:
    rest = fedlin.problems.quadratic(A, np.zeros_like(B))
    assert np.all(fedlin.simulate(fedlin.clipped(fedlin.fedavg(), 0.8), rest, plan(), 3).x == 0)


def test_clipped_steps_by_hand() -> None:
    x, bound = X0, 0.8
    for _ in range(5):
        ends = []
        for a, b, steps, eta in zip(A, B, TAU, ETA, strict=True):
            y = x
            for _ in range(steps):
                grad = a @ y - b
                y = y - eta * grad * min(1.0, bound / np.linalg.norm(grad))
            ends.append(y)
        x = np.mean(ends, axis=0)
    assert_close(run(fedlin.clipped(fedlin.fedavg(), bound), 5)[-1], x, 1e-12)


def test_a_tighter_bound_inside_or_outside_is_the_tighter_bound() -> None:
    bare = run(fedlin.clipped(fedlin.fedavg(), 0.8))
    for first, second in ((0.8, 2.0), (2.0, 0.8)):
        assert_close(run(fedlin.clipped(fedlin.clipped(fedlin.fedavg(), first), second)), bare, 1e-13)


def test_a_method_without_gradients_is_refused() -> None:
    with pytest.raises(ArgumentError, match="fedsplit takes proximal steps"):
        fedlin.clipped(fedlin.fedsplit(), 1.0)
    with pytest.raises(ArgumentError, match=r"norm = -1\.0"):
        fedlin.clipped(fedlin.fedavg(), -1.0)
    with pytest.raises(ArgumentError, match="method = 'fedavg'"):
        fedlin.clipped("fedavg", 1.0)  # type: ignore[arg-type]
    half = SimpleNamespace(init=lambda x: x)  # an optimiser has an update too
    for optimizer in (0.1, half):
        with pytest.raises(ArgumentError, match="optimizer = "):
            fedlin.server_optimizer(fedlin.fedavg(), optimizer)


# Numbers stay numbers.


def test_numbers_of_a_wrapped_method_compile_nothing_and_share_a_batch() -> None:
    def made(norm: float, beta: float) -> Algorithm[Any, Any]:
        return fedlin.clipped(fedlin.fedprox(beta), norm)

    pairs = [(0.5, 0.1), (2.0, 0.5), (9.0, 1.5)]
    alone = [run(made(*pairs[0]))]
    with compilations() as compiled:
        alone += [run(made(*pair)) for pair in pairs[1:]]
    assert compiled == []
    assert np.max(np.abs(alone[0] - alone[1])) > 1e-3
    together = fedlin.simulate_many([made(*pair) for pair in pairs], problem(), plan(), 12, x0=X0)
    for one, result in zip(alone, together, strict=True):
        assert_close(result.iterates, one, 1e-12)


def test_a_number_left_to_the_problem_is_found_through_wrappers() -> None:
    """FedSplit's L and μ, three deep; a federation asks for them by name."""
    method = fedlin.clipped(fedlin.clipped(fedlin.fedsplit(steps=3), 1e9), 1e9)
    steps = fedlin.theory.fedsplit(problem())
    clipped, bare = (
        fedlin.simulate(one, problem(), steps, 9, x0=X0).iterates for one in (method, fedlin.fedsplit(steps=3))
    )
    assert_close(clipped, bare, 1e-12)
    with pytest.raises(ArgumentError, match="give smoothness="):
        fedlin.Client(method, problem().client(0))
