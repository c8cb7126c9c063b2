"""The loop of local steps, and what it adds up on its way."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedlin.problems.objective import Descent, Slope, descend_by_slopes

CENTER = np.array([1.0, -2.0, 0.5])
STEPS, ETA = 5, 0.25


def loss(x: jax.Array) -> jax.Array:
    return 0.5 * jnp.sum((x - CENTER) ** 2)


def descended(with_loss: bool) -> tuple[np.ndarray, float]:
    start = jnp.zeros(3)
    work = Descent(start, 0.0, 0.0, start, jnp.int32(STEPS), jnp.asarray(ETA), None, None)

    def slope(x: jax.Array, step: jax.Array) -> Slope:
        return Slope(x - CENTER, loss(x)) if with_loss else Slope(x - CENTER)

    done = jax.jit(lambda: descend_by_slopes(slope, work))()
    return np.asarray(done.x), float(done.losses)


def test_losses_are_added_up_over_the_models_at_which_gradients_were_taken() -> None:
    x, losses = descended(with_loss=True)
    shrink = (1 - ETA) ** np.arange(STEPS + 1)  # x_k - c = (1 - η)^k (x_0 - c)
    np.testing.assert_allclose(x, CENTER * (1 - shrink[-1]), rtol=1e-14)
    assert losses == pytest.approx(0.5 * np.sum(CENTER**2) * np.sum(shrink[:-1] ** 2), rel=1e-14)


def test_gradients_without_losses_have_no_sum_of_losses_and_the_same_steps() -> None:
    x, losses = descended(with_loss=False)
    assert np.isnan(losses)
    np.testing.assert_array_equal(x, descended(with_loss=True)[0])
