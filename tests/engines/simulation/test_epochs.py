"""Local work counted in passes over a client's rows."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fedlin
from fedlin import problems
from fedlin.problems.problem import Problem

LENGTHS = np.array([30, 7, 12])  # clients of unequal length
SOURCE = np.random.default_rng(0)
X = [SOURCE.standard_normal((n, 4)) for n in LENGTHS]
SIGNS = [np.where(SOURCE.random(n) < 0.5, 1.0, -1.0) for n in LENGTHS]


def square(w: Any, rows: Any) -> Any:
    return jnp.mean((rows @ w - 1) ** 2)


RAGGED: dict[str, Problem] = {
    "regression": problems.regression(X, SIGNS),
    "logistic": problems.logistic(X, SIGNS, l2=0.1),
    "nonconvex": problems.logistic(X, SIGNS, nonconvex=0.1),
    "softmax": problems.softmax(X, [(y > 0).astype(float) for y in SIGNS], l2=0.1),
    "from_loss": problems.from_loss(square, np.zeros(4), X),
}


@pytest.mark.parametrize("name", RAGGED)
@pytest.mark.parametrize(("number", "batch"), [(1, 1), (1, 5), (2.5, 4), (0.1, 1), (0.3, 7), (1e-6, 40), (3, 40)])
def test_just_enough_batches_for_so_many_passes(name: str, number: float, batch: int) -> None:
    """τ_i batches draw at least number · n_i rows, and one batch fewer would not."""
    tau = fedlin.epochs(problems.minibatch(RAGGED[name], batch), number)
    wanted = number * LENGTHS
    assert np.all(tau * batch >= wanted * (1 - 1e-9))
    assert np.all((tau - 1) * batch < wanted)


def test_tenths_of_an_epoch_are_not_rounded_up_by_floats() -> None:
    """0.1 · 30 in floats is more than 3."""
    assert fedlin.epochs(problems.minibatch(RAGGED["regression"], 1), 0.1).tolist() == [3, 1, 2]


def test_clients_of_equal_length_given_as_one_array() -> None:
    stacked = problems.from_loss(square, np.zeros(4), np.ones((2, 9, 4)))
    assert fedlin.epochs(problems.minibatch(stacked, 2), 1).tolist() == [5, 5]


def test_a_run_takes_the_gradients_its_epochs_say() -> None:
    """Two passes in batches of five: ⌈2 n_i/5⌉ gradients of client i a round."""
    noisy = problems.minibatch(RAGGED["regression"], 5)
    tau = fedlin.epochs(noisy, 2)
    assert tau.tolist() == [12, 3, 5]
    result = fedlin.simulate(fedlin.fedavg(), noisy, fedlin.Plan.scaled(tau, 1e-3), 4)
    np.testing.assert_array_equal(result.gradients, 20 * np.arange(5))
