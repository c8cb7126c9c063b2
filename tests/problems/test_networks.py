"""Parts of a network that are learned and parts that are not, and losses of each row."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedlin
from fedlin.errors import ArgumentError
from fedlin.precision import precision

DRAW = np.random.default_rng(0)
LENGTHS = (5, 8, 3)
CLIENTS = [{"x": DRAW.standard_normal((n, 4)), "y": DRAW.integers(0, 3, n)} for n in LENGTHS]
PARAMS: dict[str, Any] = {
    "base": DRAW.standard_normal((4, 6)),
    "adapter": {"down": DRAW.standard_normal((6, 1)), "up": np.zeros((1, 6))},
    "head": DRAW.standard_normal((6, 3)),
}


def each(params: Any, batch: Any, key: Any = None) -> Any:
    hidden = jnp.tanh(batch["x"] @ params["base"])
    if key is not None:
        hidden = jnp.where(jax.random.bernoulli(key, 0.5, hidden.shape), hidden, 0)
    hidden = hidden + hidden @ params["adapter"]["down"] @ params["adapter"]["up"]
    scores = jax.nn.log_softmax(hidden @ params["head"])
    return -jnp.take_along_axis(scores, batch["y"][:, None], axis=1)[:, 0]


def mean(params: Any, batch: Any) -> Any:
    return jnp.mean(each(params, batch))


def play(problem: Any, **given: Any) -> fedlin.Result:
    return fedlin.simulate(fedlin.fedavg(), problem, fedlin.Plan(3, 0.1), 4, **given)


def test_frozen_parameters_stay_and_do_not_travel() -> None:
    problem = fedlin.problems.from_loss(mean, PARAMS, CLIENTS, trainable=lambda name: name.startswith("adapter/"))
    assert [layer.name for layer in problem.layers] == ["adapter/down", "adapter/up"]
    result = play(problem)
    assert result.bytes_up[1] == len(LENGTHS) * 12 * 8
    trained = problem.params(result.x)
    for name in ("base", "head"):
        np.testing.assert_array_equal(trained[name], PARAMS[name])
    assert result.loss[-1] < result.loss[0]

    def around(adapter: Any, batch: Any) -> Any:
        return mean({**PARAMS, "adapter": adapter}, batch)

    alone = play(fedlin.problems.from_loss(around, PARAMS["adapter"], CLIENTS))
    np.testing.assert_allclose(result.iterates, alone.iterates, rtol=1e-12, atol=1e-14)
    other = fedlin.problems.from_loss(
        mean, {**PARAMS, "base": PARAMS["base"] + 1}, CLIENTS, trainable=lambda name: name.startswith("adapter/")
    )
    assert other.signature() != problem.signature()
    with pytest.raises(ArgumentError, match="trainable chooses none of the parameters adapter/down"):
        fedlin.problems.from_loss(mean, PARAMS, CLIENTS, trainable=lambda name: False)


def test_a_loss_of_each_row_is_masked_and_its_mean_is_meant() -> None:
    """The same models as by the mean over rows, which takes rows one by one where clients differ in length."""

    def quiet(params: Any, batch: Any) -> Any:
        return each(params, batch)

    by_row, by_mean = (fedlin.problems.from_loss(loss, PARAMS, CLIENTS) for loss in (quiet, mean))
    runs = [play(fedlin.problems.minibatch(p, 4, replace=False), measure_every=1) for p in (by_row, by_mean)]
    np.testing.assert_allclose(runs[0].iterates, runs[1].iterates, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(runs[0].loss, runs[1].loss, rtol=1e-11)
    np.testing.assert_allclose(runs[0].training_loss, runs[1].training_loss, rtol=1e-11)
    own = jax.tree.map(lambda leaf: leaf[0], by_row.data)
    with precision(np.float64):
        programs = [str(jax.make_jaxpr(problem.objective.loss)(own, problem.start)) for problem in (by_row, by_mean)]
    products = [program.count("f64[8,1,") for program in programs]
    assert products[0] == 0 < products[1]  # batches of one row each, in the second alone


def test_a_loss_of_each_row_may_draw() -> None:
    problem = fedlin.problems.from_loss(each, PARAMS, CLIENTS)
    a, b, c = (play(problem, seed=seed).x for seed in (0, 0, 1))
    np.testing.assert_array_equal(a, b)
    assert np.any(a != c)
