"""Unequal clients with rows in blocks: every method's run is that on each client's rows alone, in every layout."""

import os
import subprocess
import sys
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fedlin
from fedlin import problems
from fedlin.engines.simulation.run import prepare_run
from fedlin.problems.packed_rows import pack
from fedlin.problems.problem import Problem

SIZES = (700, 3, 90, 1, 64, 128, 5, 33)
DRAW = np.random.default_rng(4)
ROWS = [DRAW.standard_normal((n, 3)) for n in SIZES]
CLASSES = [DRAW.integers(0, 3, n) for n in SIZES]
PLAN = fedlin.Plan([1, 2, 3, 4, 5, 6, 7, 8], 0.05)


def square(params: Any, batch: Any) -> Any:
    return jnp.mean(jnp.tanh(batch["x"] @ params["w"] + params["b"] - batch["y"]) ** 2)


def unequal(kind: str) -> Problem:
    signs = [2.0 * (y > 0) - 1 for y in CLASSES]
    weights = problems.logistic(ROWS, signs).row_counts
    made: dict[str, Any] = {
        "logistic": lambda: problems.logistic(ROWS, signs, l2=0.1),
        "bent": lambda: problems.logistic(ROWS, signs, l2=0.1, nonconvex=0.2),
        "softmax": lambda: problems.softmax(ROWS, CLASSES, l2=0.1),
        "poisson": lambda: problems.poisson(ROWS, CLASSES, l2=0.1, reduction="sum").weighted(1 / weights),
        "loss": lambda: problems.from_loss(
            square,
            {"w": np.ones(3), "b": np.zeros(())},
            [{"x": X, "y": y * 1.0} for X, y in zip(ROWS, CLASSES, strict=True)],
        ),
    }  # fmt: skip
    problem: Problem = made[kind]()
    return problem.weighted(weights)


def is_packed(problem: Problem) -> bool:
    run = prepare_run(
        fedlin.fedlin(), problem, PLAN, 1, seed=0, x0=None, participation=1.0, weights=None, stop=None
    )  # fmt: skip
    return run.packed(1) is not None


def padded(problem: Problem) -> Problem:
    """The same problem, never packed."""
    problem._packed.update({1: None, 2: None})
    return problem


@pytest.mark.parametrize("kind", ["logistic", "bent", "softmax", "poisson", "loss"])
def test_packed_rows_give_the_padded_rows_run(kind: str) -> None:
    assert is_packed(unequal(kind))
    assert not is_packed(padded(unequal(kind)))
    step = 0.003 if kind == "poisson" else 0.05
    plan = fedlin.Plan(PLAN.tau, step)
    wanted = fedlin.simulate(fedlin.fedlin(), padded(unequal(kind)), plan, 4, layout="step")
    for layout in ("step", "client"):
        run = fedlin.simulate(fedlin.fedlin(), unequal(kind), plan, 4, layout=layout)
        np.testing.assert_allclose(run.iterates, wanted.iterates, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(run.loss, wanted.loss, rtol=1e-10)
        np.testing.assert_allclose(run.grad_norm, wanted.grad_norm, rtol=1e-9)
        np.testing.assert_array_equal(run.gradients, wanted.gradients)


def test_a_batch_of_step_sizes_on_packed_rows_is_each_run_alone() -> None:
    problem, plans = unequal("softmax"), [fedlin.Plan(3, eta) for eta in (0.01, 0.1)]
    for plan, run in zip(plans, fedlin.simulate_many(fedlin.fedlin(), problem, plans, 3), strict=True):
        alone = fedlin.simulate(fedlin.fedlin(), padded(unequal("softmax")), plan, 3)
        np.testing.assert_allclose(run.iterates, alone.iterates, rtol=1e-10, atol=1e-12)


def on_two_devices() -> None:
    wanted = fedlin.simulate(fedlin.fedlin(), padded(unequal("logistic")), PLAN, 3)
    for layout in ("step", "client"):
        run = fedlin.simulate(fedlin.fedlin(), unequal("logistic"), PLAN, 3, devices=2, layout=layout)
        np.testing.assert_allclose(run.iterates, wanted.iterates, rtol=1e-10, atol=1e-12)


def test_devices_hold_their_own_clients_blocks() -> None:
    """In a process that shows two devices, since one is all that the tests' own have."""
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "2", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", "import test_packed; test_packed.on_two_devices()"]
    subprocess.run(command, env=environment, check=True)


def test_every_row_is_in_one_block_and_equal_clients_are_left_alone() -> None:
    lengths = np.array(SIZES)
    room = int(lengths.max())
    number = np.arange(len(SIZES) * room).reshape(len(SIZES), room)
    weight = (np.arange(room) < lengths[:, None]) * 1.0
    for parts in (1, 2, 4):
        packed = pack(number, weight, lengths, 16, parts)
        assert packed is not None
        rows, weights = packed.rows.tree
        assert sorted(rows[weights > 0].tolist()) == sorted(number[weight > 0].tolist())
        # A client's blocks lie where it looks for them, on its own device.
        local, most = len(SIZES) // parts, len(rows) // parts
        for client in range(len(SIZES)):
            begin = (client // local) * most + packed.first[client]
            own = slice(begin, begin + packed.count[client])
            assert set(packed.owner.tree[own].tolist()) == {client % local}
            assert rows[own][weights[own] > 0].tolist() == number[client, : lengths[client]].tolist()
    assert pack(number, np.ones_like(weight), np.full(len(SIZES), room), 16) is None
