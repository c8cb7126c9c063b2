"""Metrics on test data, the training loss, and when models are measured at all."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedlin
from fedlin.errors import ArgumentError, DataError, UnknownError
from fedlin.problems import metrics as evaluation

CLIENTS, ROWS, CLASSES, ROUNDS = 6, 8, 3, 9
DRAW = np.random.default_rng(0)
TEST = {"x": DRAW.standard_normal((50, 4)), "y": DRAW.integers(0, CLASSES, 50)}
DATA = {"x": DRAW.standard_normal((CLIENTS, ROWS, 4)), "y": DRAW.integers(0, CLASSES, (CLIENTS, ROWS))}


def loss(params: Any, batch: Any) -> Any:
    found = jax.nn.log_softmax(batch["x"] @ params["w"] + params["b"][None])
    return -jnp.mean(jnp.take_along_axis(found, batch["y"][:, None], axis=1))


def accuracy(params: Any, batch: Any) -> Any:
    return jnp.mean(jnp.argmax(batch["x"] @ params["w"] + params["b"][None], axis=1) == batch["y"])


whole = fedlin.problems.from_loss(loss, {"w": np.zeros((4, CLASSES)), "b": np.zeros(CLASSES)}, DATA)
drawn = fedlin.problems.minibatch(whole, 2, replace=False)
PLAN = fedlin.Plan(4, 0.3)
METRICS = {"accuracy": accuracy, "test_loss": loss}
run = partial(fedlin.simulate, fedlin.fedavg(), drawn, PLAN, participation=0.5, metrics=METRICS, test=TEST, every=2)


def by_hand(x: Any) -> float:
    """The accuracy without anything of the package but the order of a flat model's entries."""
    b, w = x[:CLASSES], x[CLASSES:].reshape(4, CLASSES)
    return float(np.mean(np.argmax(TEST["x"] @ w + b, axis=1) == TEST["y"]))


def test_metrics_are_columns_and_the_best_model_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    models = []
    result = run(ROUNDS, callbacks=[lambda t, columns, model: models.append((t, columns["accuracy"], model))])
    evaluated = np.flatnonzero(~np.isnan(result.accuracy))
    assert evaluated.tolist() == [0, 2, 4, 6, 8, 9]
    for t in evaluated:
        assert result.accuracy[t] == pytest.approx(by_hand(result.iterates[t]), abs=1e-7)
    for t, value, model in models:
        np.testing.assert_array_equal(model["w"].ravel(), result.iterates[t][CLASSES:])
        np.testing.assert_equal(value, result.accuracy[t])
    assert result.accuracy[result.best_round] == np.nanmax(result.accuracy)
    assert result.best_round == np.nanargmax(result.accuracy)
    np.testing.assert_array_equal(result.best_x, result.iterates[result.best_round])
    assert {"accuracy", "test_loss", "training_loss"} <= set(result.to_dataframe())
    assert "accuracy" in repr(result)
    assert result.plot("accuracy").get_ylabel() == "accuracy"
    result.save(tmp_path / "run.npz")
    np.testing.assert_array_equal(fedlin.Result.load(tmp_path / "run.npz").best_x, result.best_x)
    monkeypatch.setattr(evaluation, "ROWS", 7)  # rows at a time, with one left over
    np.testing.assert_allclose(run(ROUNDS).test_loss, result.test_loss, rtol=1e-12)


def test_a_metric_ends_a_run_and_all_ways_to_run_agree(tmp_path: Path) -> None:
    result = run(ROUNDS)
    limit = float(np.nanmax(result.accuracy[1:]))
    first = int(np.flatnonzero(result.accuracy >= limit)[0])
    stop = fedlin.Stop(accuracy=limit)
    stopped = run(ROUNDS, stop=stop)
    assert (stopped.status, stopped.rounds) == ("stopped" if first < ROUNDS else "done", first)
    together = fedlin.simulate_many(
        fedlin.fedavg(), drawn, PLAN, ROUNDS, seeds=[0, 1], participation=0.5, metrics=METRICS, test=TEST, every=2
    )
    np.testing.assert_array_equal(together[0].accuracy, result.accuracy)
    np.testing.assert_allclose(together[0].training_loss, result.training_loss, rtol=1e-10)
    assert not np.array_equal(together[1].training_loss, result.training_loss)
    chunked = run(ROUNDS, chunk=2)
    np.testing.assert_array_equal(chunked.accuracy, result.accuracy)
    np.testing.assert_allclose(chunked.training_loss, result.training_loss, rtol=1e-10)
    place = tmp_path / "run.ckpt"
    run(first + 1 if first < ROUNDS else 5, checkpoint=place)
    resumed = run(ROUNDS, checkpoint=place)
    np.testing.assert_array_equal(resumed.training_loss, result.training_loss)
    known = ~np.isnan(result.accuracy)
    np.testing.assert_array_equal(resumed.accuracy[known], result.accuracy[known])
    np.testing.assert_array_equal(resumed.best_x, result.best_x)


def test_nothing_is_measured_of_a_drawn_network_unless_asked() -> None:
    silent = run(ROUNDS)
    assert silent.measured.size == 0
    with pytest.raises(UnknownError, match="has no loss: it was not measured"):
        silent.loss  # noqa: B018
    asked = run(ROUNDS, measure_every=4)
    assert asked.measured.tolist() == [0, 4, 8, 9]
    np.testing.assert_array_equal(asked.x, silent.x)
    needed = run(ROUNDS, stop=fedlin.Stop(loss=1e-9))
    assert needed.measured.tolist() == list(range(ROUNDS + 1))
    never = fedlin.simulate(fedlin.fedavg(), whole, PLAN, ROUNDS, measure_every=0)
    assert "loss" not in never.columns
    far = fedlin.simulate(fedlin.fedavg(), drawn, fedlin.Plan(4, 1e200), ROUNDS)  # nobody looks, and it is seen
    assert far.status == "diverged"


def test_the_training_loss_is_the_mean_that_came_with_the_gradients() -> None:
    """With one exact step a round, that of the model before the round."""
    result = fedlin.simulate(fedlin.fedavg(), whole, fedlin.Plan(1, 0.3), ROUNDS)
    np.testing.assert_allclose(result.training_loss[1:], result.loss[:-1], rtol=1e-12)
    weights = np.arange(1.0, CLIENTS + 1)
    weighted = fedlin.simulate(fedlin.fedavg(), whole, fedlin.Plan(1, 0.3), 2, weights=weights)
    np.testing.assert_allclose(weighted.training_loss[1:], weighted.loss[:-1], rtol=1e-12)
    # Two phases: the gradient's and the local step's are each taken at the model before the round.
    twice = fedlin.simulate(fedlin.fedlin(), whole, fedlin.Plan(1, 0.3), ROUNDS)
    np.testing.assert_allclose(twice.training_loss[1:], twice.loss[:-1], rtol=1e-12)
    closed = fedlin.problems.least_squares(clients=2, dim=3, samples=9)
    quick = fedlin.simulate(fedlin.fedlin(), closed, fedlin.Plan(2, 1e-3), 2)
    with pytest.raises(UnknownError, match="no training loss: its gradients came without losses"):
        quick.training_loss  # noqa: B018


def test_what_is_no_metric_is_refused_before_any_work() -> None:
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"metrics": {"loss": accuracy}}, ArgumentError, "no column of a result already"),
        ({"metrics": {}}, ArgumentError, "by name"),
        ({"metrics": {"accuracy": 3}}, ArgumentError, "by name"),
        ({"test": None}, ArgumentError, "belong together"),
        ({"every": 0}, ArgumentError, "every = 0"),
        ({"test": {"x": TEST["x"], "y": TEST["y"][:9]}}, DataError, "all as long"),
        ({"metrics": {"rows": lambda p, b: b["x"] @ p["w"]}}, DataError, r"shape \(1, 3\)"),
        ({"metrics": {"rows": lambda p, b: b["z"]}}, DataError, "cannot be computed on test"),
        ({"stop": fedlin.Stop(recall=0.5)}, ArgumentError, "measures no recall"),
    ]
    for given, error, message in wrong:
        with pytest.raises(error, match=message):
            run(ROUNDS, **given)
