"""The GPU kernels, interpreted on whatever device there is, against the loop over gradients."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedlin import problems
from fedlin.precision import precision
from fedlin.problems import Problem, fused, fused_quadratic
from fedlin.problems.fused import Tile, choose_tile
from fedlin.problems.logistic import ON_CHIP
from fedlin.problems.objective import Descent, descend_by_gradients
from fedlin.problems.rows import Sheet
from fedlin.problems.softmax import on_chip

CLIENTS, SAMPLES, FEATURES = 5, 11, 6
TAU = np.array([0, 1, 2, 7, 30], np.int32)
TILE = Tile(4, 4, 1)  # leaves a remainder in both directions


def instance(kind: str, dtype: Any) -> Problem:
    """A problem of each kind, with clients of unequal length, and an l2 that matters."""
    draw = np.random.default_rng(3)
    X = [draw.standard_normal((n, FEATURES)).astype(dtype) for n in (SAMPLES, 3, 8, SAMPLES, 1)]
    if kind == "softmax":
        y = [draw.integers(0, 3, len(rows)).astype(dtype) for rows in X]
        return problems.softmax(X, y, l2=0.3, classes=3)
    if kind == "logistic":
        return problems.logistic(X, [np.sign(draw.standard_normal(len(rows))).astype(dtype) for rows in X], l2=0.3)
    y = [draw.standard_normal(len(rows)).astype(dtype) for rows in X]
    return problems.regression(X, y, l2=0.3, reduction="mean", closed_form=False)


def kernel(kind: str) -> Any:
    if kind == "quadratic":
        return lambda form, work: fused_quadratic.run_kernel(form.A, form.b, work, interpret=True)
    return partial(fused.run_kernel, ON_CHIP if kind == "logistic" else on_chip(3), TILE, interpret=True)


def looped(problem: Problem) -> Any:
    def descend(data: Any, work: Descent) -> Any:
        return descend_by_gradients(lambda x: problem.objective.grad(data, x), work)

    return descend


def both(kind: str, dtype: Any, **chosen: Any) -> tuple[Any, Any]:
    """The clients' models after their τ_i steps, by the kernel and by the loop."""
    problem = instance(kind, dtype)
    draw = np.random.default_rng(4)
    shape = (CLIENTS, problem.dim)
    values: dict[str, Any] = {
        "start": draw.standard_normal(shape).astype(dtype),
        "shift": draw.standard_normal(shape).astype(dtype),
        "pull": np.full(CLIENTS, 0.2, dtype),
        "center": draw.standard_normal(shape).astype(dtype),
        "steps": TAU,
        "eta": np.linspace(0.05, 0.3, CLIENTS).astype(dtype),
        **chosen,
    }
    axes: Any = {name: 0 if np.ndim(value) else None for name, value in values.items()}

    def answer(way: Any) -> Any:
        each = jax.vmap(lambda data, work: way(data, Descent(**work)), in_axes=(0, axes))
        return jax.jit(each)(problem.data, values)

    with precision(dtype):
        return answer(kernel(kind)), answer(looped(problem))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["logistic", "softmax", "quadratic"])
def test_the_kernel_takes_every_clients_own_steps(kind: str, dtype: Any) -> None:
    on_chip, by_steps = both(kind, dtype)
    assert on_chip.dtype == dtype
    np.testing.assert_allclose(on_chip, by_steps, rtol=0, atol=30 * np.finfo(dtype).eps * np.abs(by_steps).max())


@pytest.mark.parametrize("kind", ["logistic", "softmax", "quadratic"])
def test_plain_numbers_serve_as_shift_and_pull(kind: str) -> None:
    on_chip, by_steps = both(kind, np.float64, shift=0.0, pull=0.0, steps=4, eta=0.1)
    np.testing.assert_allclose(on_chip, by_steps, rtol=1e-13, atol=1e-13)


def test_large_margins_saturate() -> None:
    """Where exp overflows, or its square does, the slope is still the logistic's."""
    z = jnp.array([-200.0, -50.0, 0.0, 40.0, 50.0, 200.0], jnp.float32)
    (found,) = ON_CHIP.slope([z], None)
    np.testing.assert_allclose(found, -1 / (1 + np.exp(np.asarray(z, np.float64))), rtol=1e-6, atol=1e-18)


@pytest.mark.parametrize(("dtype", "classes"), [("float32", 1), ("float32", 10), ("float64", 1), ("float64", 3)])
def test_a_tile_covers_the_threads_and_leaves_room_in_the_registers(dtype: str, classes: int) -> None:
    for samples, features in ((100, 60), (20, 20), (7, 3), (64, 33)):
        tile = choose_tile(samples, features, classes, dtype)
        assert tile is not None
        threads, held = 32 * tile.warps, tile.rows * tile.columns
        assert held % threads == 0
        tiles = -(-samples // tile.rows) * -(-features // tile.columns)
        assert tiles * held // threads * np.dtype(dtype).itemsize // 4 <= fused.REGISTERS


def test_what_does_not_fit_is_left_to_the_loop() -> None:
    assert choose_tile(100_000, 60, 1, "float32") is None
    sheet = jax.eval_shape(lambda: Sheet(*(jnp.zeros(s) for s in ((5000, 60), 5000, 5000, (), ()))))
    work = Descent(sheet.l2, 0.0, 0.0, sheet.l2, 1, 0.1)
    assert fused.descend_on_chip(ON_CHIP, sheet, work) is None
    A, b = jax.eval_shape(lambda: (jnp.zeros((300, 300)), jnp.zeros(300)))
    assert fused_quadratic.descend_on_chip(A, b, work) is None
