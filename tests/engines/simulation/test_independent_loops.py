"""Five rounds of a small network against loops written without this package, in plain JAX and in plain torch.

Clients go through their rows in passes, the last batch short. The loops draw the orders of the rows by themselves, from
what the docs say they follow from.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import fedlin
from fedlin import problems

torch = pytest.importorskip("torch")
import fedlin.torch  # noqa: E402

Array = NDArray[Any]
Gradient = Callable[[Array, Array, Array], Array]  # of the flat model, over these images and labels
LENGTHS = (8, 5, 7, 8)
CLIENTS, ROUNDS, SIZE, PASSES, ETA, BETA, SEED = len(LENGTHS), 5, 3, 2, 0.1, 0.5, 3
APART = 2**31 - 1  # what the local steps' keys and the orders' keys are folded with
DRAW = np.random.default_rng(0)
IMAGES = [DRAW.standard_normal((n, 1, 8, 8)) for n in LENGTHS]
LABELS = [DRAW.integers(0, 3, n) for n in LENGTHS]
STEPS = [PASSES * -(-n // SIZE) for n in LENGTHS]


def network() -> Any:
    torch.manual_seed(0)
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 3)
    ).double()


PARAMS = {name: value.detach().numpy() for name, value in network().named_parameters()}
NAMES, SHAPES = tuple(PARAMS), [value.shape for value in PARAMS.values()]
START = np.concatenate([value.ravel() for value in PARAMS.values()])


def loss(params: Any, batch: Any) -> Any:
    """The network above in JAX; `params` is a list, since the leaves of a dict would be sorted."""
    images, labels = batch
    first, first_bias, second, second_bias, weight, bias = params
    images = jax.lax.conv_general_dilated(images, first, (1, 1), "SAME") + first_bias[None, :, None, None]
    images = jax.lax.reduce_window(jax.nn.relu(images), -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    images = jax.lax.conv_general_dilated(images, second, (1, 1), "VALID") + second_bias[None, :, None, None]
    scores = images.reshape(len(labels), -1) @ weight.T + bias[None]
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], axis=1))


def split(x: Any) -> list[Any]:
    ends = np.cumsum([int(np.prod(shape)) for shape in SHAPES])
    return [part.reshape(shape) for part, shape in zip(np.split(x, ends[:-1]), SHAPES, strict=True)]


def by_jax(x: Array, images: Array, labels: Array) -> Array:
    with jax.enable_x64(True):
        slopes = _jax_slopes()(split(x), (images, labels))
        return np.concatenate([np.ravel(part) for part in slopes])


@cache
def _jax_slopes() -> Any:
    return jax.jit(jax.grad(loss))


def by_torch(x: Array, images: Array, labels: Array) -> Array:
    model = network()
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), split(x), strict=True):
            parameter.copy_(torch.tensor(value))
    torch.nn.functional.cross_entropy(model(torch.tensor(images)), torch.tensor(labels)).backward()
    return np.concatenate([parameter.grad.numpy().ravel() for parameter in model.parameters()])


# What each step of a client takes, by its key.


def descent_key(round_index: int, phase: int, client: int) -> Any:
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(SEED), round_index), phase)
    base = jax.random.split(key, 3)[2]
    return jax.random.fold_in(jax.random.fold_in(base, client), APART)


def parts_of(order: Array) -> Iterator[Array]:
    for first in range(0, len(order), SIZE):
        yield order[first : first + SIZE]


def jax_batches(round_index: int, phase: int, client: int) -> list[Array]:
    """Rows in the order of lots, one for each row's number."""
    orders = jax.random.fold_in(descent_key(round_index, phase, client), APART)
    batches: list[Array] = []
    for number in range(PASSES):
        key = jax.random.fold_in(orders, number)
        lots = [int(jax.random.bits(jax.random.fold_in(key, row), dtype=jnp.uint32)) for row in range(LENGTHS[client])]
        batches += parts_of(np.argsort(lots))
    return batches


def torch_batches(round_index: int, phase: int, client: int) -> list[Array]:
    """Rows as NumPy's generator shuffles them, seeded with the key's two words."""
    words = np.asarray(jax.random.key_data(descent_key(round_index, phase, client)))
    generator = np.random.default_rng([int(word) for word in words])
    return [part for _ in range(PASSES) for part in parts_of(generator.permutation(LENGTHS[client]))]


class Loop(NamedTuple):
    """A gradient and the batches, in one library."""

    gradient: Gradient
    batches: Callable[[int, int, int], list[Array]]

    def full(self, client: int, x: Array) -> Array:
        return self.gradient(x, IMAGES[client], LABELS[client])

    def over(self, client: int, x: Array, rows: Array) -> Array:
        return self.gradient(x, IMAGES[client][rows], LABELS[client][rows])

    def walk(self, t: int, phase: int, x: Array, more: Callable[[int, Array, Array], Any]) -> list[Array]:
        """Where every client ends: steps along its batches' gradients and what `more` adds (client, y, rows)."""
        ends = []
        for client in range(CLIENTS):
            y = x
            for rows in self.batches(t, phase, client):
                y = y - ETA * (self.over(client, y, rows) + more(client, y, rows))
            ends.append(y)
        return ends


class State(NamedTuple):
    """A model, and SCAFFOLD's control variates."""

    x: Array
    c: Array
    own: list[Array]


def fedavg(loop: Loop, t: int, state: State) -> State:
    return state._replace(x=np.mean(loop.walk(t, 0, state.x, lambda i, y, rows: 0.0), axis=0))


def fedprox(loop: Loop, t: int, state: State) -> State:
    x = state.x
    return state._replace(x=np.mean(loop.walk(t, 0, x, lambda i, y, rows: BETA * (y - x)), axis=0))


def scaffold(loop: Loop, t: int, state: State) -> State:
    x, c, own = state
    ends = loop.walk(t, 0, x, lambda i, y, rows: c - own[i])
    fresh = [own[i] - c + (x - ends[i]) / (STEPS[i] * ETA) for i in range(CLIENTS)]
    return State(np.mean(ends, axis=0), c + np.mean(fresh, axis=0) - np.mean(own, axis=0), fresh)


def fedlin_same_batch(loop: Loop, t: int, state: State) -> State:
    x = state.x
    g = np.mean([loop.full(i, x) for i in range(CLIENTS)], axis=0)
    return state._replace(x=np.mean(loop.walk(t, 1, x, lambda i, y, rows: g - loop.over(i, x, rows)), axis=0))


METHODS: dict[str, tuple[Callable[[Loop, int, State], State], Any]] = {
    "fedavg": (fedavg, fedlin.fedavg()),
    "fedprox": (fedprox, fedlin.fedprox(BETA)),
    "scaffold": (scaffold, fedlin.scaffold()),
    "fedlin": (fedlin_same_batch, fedlin.fedlin(same_batch=True)),
}


@cache
def in_jax() -> Any:
    exact = problems.from_loss(loss, list(PARAMS.values()), list(zip(IMAGES, LABELS, strict=True)))
    return problems.minibatch(exact, SIZE, replace=False)


@cache
def in_torch() -> Any:
    rows = [(torch.tensor(images), torch.tensor(labels)) for images, labels in zip(IMAGES, LABELS, strict=True)]
    return fedlin.torch.problem(network(), torch.nn.functional.cross_entropy, rows, SIZE, replace=False)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("library", ["jax", "torch"])
def test_five_rounds_are_those_of_a_loop_written_by_hand(method: str, library: str) -> None:
    round_by_hand, ours = METHODS[method]
    problem, loop = {
        "jax": (in_jax(), Loop(by_jax, jax_batches)),
        "torch": (in_torch(), Loop(by_torch, torch_batches)),
    }[library]
    np.testing.assert_array_equal(problem.start, START)
    plan = fedlin.Plan(fedlin.epochs(problem, PASSES), ETA)
    assert plan.tau.tolist() == STEPS
    found = fedlin.simulate(ours, problem, plan, ROUNDS, seed=SEED, measure_every=ROUNDS).x
    state = State(START, 0 * START, [0 * START] * CLIENTS)
    for t in range(ROUNDS):
        state = round_by_hand(loop, t, state)
    expected = state.x
    assert np.linalg.norm(expected - START) > 0.1
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


def test_both_libraries_have_one_gradient() -> None:
    x = START + 0.1
    np.testing.assert_allclose(by_jax(x, IMAGES[0], LABELS[0]), by_torch(x, IMAGES[0], LABELS[0]), atol=1e-14)
