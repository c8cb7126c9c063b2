"""Hessians and their products with vectors: closed forms against automatic differentiation, and who may ask."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedlin
from fedlin.engines.local import make_local
from fedlin.errors import FedLinError
from fedlin.precision import precision
from fedlin.problems.problem import Problem

SOURCE = np.random.default_rng(7)
X = SOURCE.standard_normal((3, 8, 4))
SIGNS = np.where(SOURCE.random((3, 8)) < 0.5, -1.0, 1.0)
LONG = [SOURCE.standard_normal((n, 4)) for n in (700, 20, 5)]  # clients whose rows are summed block by block


def custom(params: Any, batch: Any) -> jax.Array:
    return jnp.mean(jnp.cosh(batch @ params["w"]) + params["b"] ** 4)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "quadratic": lambda: fedlin.problems.least_squares(clients=3, dim=4, samples=8),
    "logistic": lambda: fedlin.problems.logistic(X, SIGNS, l2=0.3),
    "penalties": lambda: fedlin.problems.logistic(X, SIGNS, l2=np.array([0.1, 0.0, 2.0, 0.5])),
    "blocks": lambda: fedlin.problems.logistic(LONG, [np.sign(part[:, 0]) for part in LONG], l2=0.1),
    "nonconvex": lambda: fedlin.problems.logistic(X, SIGNS, nonconvex=0.4),
    "poisson": lambda: fedlin.problems.poisson(X, np.abs(SIGNS) + 1, l2=0.2),
    "softmax": lambda: fedlin.problems.softmax(X, (SIGNS > 0).astype(int), l2=0.1),
    "custom": lambda: fedlin.problems.from_loss(custom, {"b": np.ones(()), "w": np.ones(4)}, X),
}


def oracle(problem: Problem, client: int) -> fedlin.Oracle:
    data = jax.tree.map(lambda leaf: jnp.asarray(leaf[client]), problem.data)
    tau, eta, key = jnp.asarray(1, jnp.int32), jnp.asarray(0.1), jax.random.key(0)
    return make_local(problem.objective, None, data, None, tau, eta, key, key)[0].oracle


OTHERS = ("penalties", "nonconvex", "softmax", "quadratic")  # the closed forms once more, and what is differentiated


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.long] if n in OTHERS else []) for n in PROBLEMS])
def test_hessians_are_differences_of_gradients(name: str) -> None:
    """Central differences of the exact gradient, column by column; and symmetric, as a message takes it."""
    problem = PROBLEMS[name]()
    point = 0.3 * np.random.default_rng(0).standard_normal(problem.dim)
    with precision(np.float64):
        asked = oracle(problem, 1)
        hessian = np.asarray(jax.jit(asked.hessian)(jnp.asarray(point)))
        grad = jax.jit(asked.full)
        step = 1e-5
        columns = [
            (np.asarray(grad(jnp.asarray(point + step * unit))) - np.asarray(grad(jnp.asarray(point - step * unit))))
            / (2 * step)
            for unit in np.eye(problem.dim)
        ]
        direction = np.linspace(-1, 1, problem.dim)
        along = np.asarray(jax.jit(asked.hvp)(jnp.asarray(point), jnp.asarray(direction)))
    np.testing.assert_allclose(hessian, np.array(columns).T, atol=1e-8 * (1 + np.abs(hessian).max()))
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-12 * np.abs(hessian).max())
    np.testing.assert_allclose(along, hessian @ direction, atol=1e-10 * (1 + np.abs(hessian).max()))


@pytest.mark.long
def test_a_torch_model_is_refused_and_told_what_would_serve() -> None:
    torch = pytest.importorskip("torch")
    problem = fedlin.torch.problem(
        torch.nn.Linear(4, 1), torch.nn.functional.mse_loss, [(part, part[:, :1]) for part in X.astype(np.float32)]
    )
    with pytest.raises(FedLinError, match=r"second derivatives.*from_loss.*fedlin\.scaffnew"):
        fedlin.simulate(fedlin.fednl_pp(fedlin.low_rank(1)), problem, fedlin.Plan(1, 1.0), 1)
