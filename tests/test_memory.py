"""Programs that fit the device: in blocks of clients, by what the compiled program says it needs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedlin
from fedlin import memory
from fedlin.engines.simulation import chunked, resident
from fedlin.errors import TooLargeError
from fedlin.problems import problem as measured

CLIENTS, ROWS, WIDTH = 12, 32, 64
DRAW = np.random.default_rng(0)
DATA = {"x": DRAW.standard_normal((CLIENTS, ROWS, 8)), "y": DRAW.standard_normal((CLIENTS, ROWS))}
START = {"in": DRAW.standard_normal((8, WIDTH)), "out": DRAW.standard_normal(WIDTH) / WIDTH}


def loss(params: Any, batch: Any) -> Any:
    hidden = jnp.tanh(batch["x"] @ params["in"])
    return jnp.mean((jnp.sin(3 * hidden) @ params["out"] - batch["y"]) ** 2)


def run() -> tuple[fedlin.Result, Any]:
    problem = fedlin.problems.from_loss(loss, START, DATA)
    return fedlin.simulate(fedlin.fedavg(), problem, fedlin.Plan(2, 0.05), 3, iterates=False), problem


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A device with so many bytes, of which nobody remembers what fitted before."""

    def limit(size: int) -> None:
        for module in (resident, measured):
            monkeypatch.setattr(module, "_BLOCKS", {})
        for module in (memory, chunked):
            monkeypatch.setattr(module, "device_memory", lambda: size)

    return limit


def test_a_run_takes_as_many_clients_at_a_time_as_fit(room: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[bool, int | None]] = []
    fitting = memory.fitting_block

    def noted(*given: Any, measuring: bool) -> int | None:
        found.append((measuring, fitting(*given, measuring=measuring)))
        return found[-1][1]

    for module in (resident, measured):
        monkeypatch.setattr(module, "fitting_block", noted)
    room(2**34)
    whole, problem = run()
    room(400_000)
    parted, _ = run()
    blocks = dict(found)
    assert dict(found[:2]) == {True: None, False: None}
    for block in blocks.values():
        assert block is not None
        assert 0 < block < CLIENTS
    np.testing.assert_allclose(parted.x, whole.x, rtol=1e-12)
    np.testing.assert_allclose(parted.loss, whole.loss, rtol=1e-12)
    np.testing.assert_allclose(problem.grad(problem.start), whole_gradient(problem), rtol=1e-10)


def whole_gradient(problem: Any) -> Any:
    """The mean of the clients' own gradients at the start."""
    return np.mean([problem.client(i).grad(problem.start) for i in range(CLIENTS)], axis=0)


def test_what_never_fits_says_what_to_lower(room: Any) -> None:
    room(10_000)
    problem = fedlin.problems.from_loss(loss, START, DATA)
    with pytest.raises(TooLargeError, match=r"one client at a time takes .* this device has 10 kB: use mini-batches"):
        problem.loss(problem.start)
    with pytest.raises(TooLargeError, match=r"a chunk of 1 takes .* this device has 10 kB: use mini-batches"):
        run()


def test_arrays_beyond_32_bits_of_addresses_are_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where the size of the largest array counts, whatever the memory."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(memory, "LARGEST", 5000)

    def make(block: int | None) -> Any:
        size = block or 100
        return jax.jit(lambda x: jax.lax.map(lambda row: jnp.sum(jnp.outer(row, row) * size), x, batch_size=size))

    assert memory.fitting_block(make, (np.ones((100, 20)),), 100, None, measuring=True) == 10


def test_states_that_do_not_fit_stay_on_the_host(room: Any) -> None:
    """A method that remembers a vector for each client, on a device that holds a few of them."""
    many = jax.tree.map(lambda leaf: np.concatenate([leaf] * 4), DATA)
    problem = fedlin.problems.from_loss(loss, START, many)

    def play() -> fedlin.Result:
        return fedlin.simulate(
            fedlin.scaffold(), problem, fedlin.Plan(2, 0.05), 4, participation=0.125, measure_every=0
        )

    room(2**34)
    whole = play()
    room(200_000)  # the data and states of 48 clients take 333 kB
    streamed = play()
    np.testing.assert_allclose(streamed.x, whole.x, rtol=1e-12)
    np.testing.assert_allclose(streamed.training_loss, whole.training_loss, rtol=1e-12)
