"""Problems that travel to another process are the problems they were."""

import pickle
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fedlin
from fedlin import problems

DRAW = np.random.default_rng(2)
ROWS = [DRAW.standard_normal((n, 3)) for n in (4, 9)]
CLASSES = [np.arange(len(X)) % 3 for X in ROWS]
SIGNS = [2.0 * (y > 0) - 1 for y in CLASSES]


def square(params: Any, batch: Any) -> Any:
    return jnp.mean((batch @ params["w"] - 1) ** 2)


MADE: dict[str, Callable[[], problems.Problem]] = {
    "quadratic": lambda: problems.quadratic(np.stack([np.eye(2), 2 * np.eye(2)]), np.ones((2, 2))),
    "regression": lambda: problems.minibatch(problems.regression(ROWS, SIGNS, l2=0.1), 2),
    "logistic": lambda: problems.logistic(ROWS, SIGNS, l2=0.1, row_weights=[np.ones(len(X)) for X in ROWS]),
    "bent": lambda: problems.logistic(ROWS, SIGNS, nonconvex=0.1).weighted([1, 3]),
    "softmax": lambda: problems.noisy(problems.softmax(ROWS, CLASSES, l2=0.1), 0.01),
    "batches": lambda: problems.minibatch(problems.softmax(ROWS, CLASSES, l2=0.1), 2, replace=False),
    "poisson": lambda: problems.poisson(ROWS, CLASSES, l2=0.1),
    "loss": lambda: problems.from_loss(square, {"w": np.ones(3)}, ROWS, smoothness=3.0),
}


@pytest.mark.parametrize("kind", MADE)
def test_a_problem_comes_back_from_pickle(kind: str) -> None:
    problem = MADE[kind]()
    again = pickle.loads(pickle.dumps(problem))
    assert again.objective is problem.objective, "so that nothing compiles twice"
    assert again.sampling is problem.sampling
    assert repr(again) == repr(problem)
    np.testing.assert_array_equal(again.weights, problem.weights)
    plan = fedlin.Plan(2, 0.01)
    first, second = (fedlin.simulate(fedlin.fedlin(), one, plan, 2, seed=1) for one in (problem, again))
    np.testing.assert_array_equal(first.iterates, second.iterates)
