"""Metrics of a model on the rows that an experiment holds out: shares of right answers, or of what is explained."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedlin.data.prepare_table import LabelledRows
from fedlin.experiments import config
from fedlin.problems.metrics import Metric


def held_out_metrics(setting: config.RowsConfig, test: LabelledRows) -> tuple[dict[str, Metric], dict[str, Any]]:
    """The metric that fits the kind of problem, and the rows it is taken on.

    `explained` is 1 - D/D₀, where D is the mean squared error, or the mean Poisson deviance, and D₀ that of the mean.

    >>> rows = LabelledRows([np.eye(2)], [np.array([1.0, -1.0])], ("a",))
    >>> metrics, test = held_out_metrics(config.LogisticConfig(kind="logistic", synthetic={"clients": 1}), rows)
    >>> float(metrics["accuracy"](np.array([2.0, -1.0]), test))
    1.0
    """
    rows = {"X": np.concatenate(test.X), "y": np.concatenate(test.y)}
    if isinstance(setting, config.LogisticConfig):
        return {"accuracy": _right_signs}, rows
    if isinstance(setting, config.SoftmaxConfig):
        return {"accuracy": _right_classes}, rows
    deviance = _poisson_deviance if isinstance(setting, config.PoissonConfig) else _squared_error
    worst = float(np.mean(deviance(rows["y"], np.full(len(rows["y"]), rows["y"].mean()))))
    return {"explained": _explained(deviance, worst)}, rows


def _right_signs(x: Any, rows: Any) -> Any:
    return jnp.mean((rows["X"] @ x > 0) == (rows["y"] > 0))


def _right_classes(x: Any, rows: Any) -> Any:
    scores = rows["X"] @ x.reshape(rows["X"].shape[-1], -1)
    return jnp.mean(jnp.argmax(scores, axis=1) == rows["y"].astype(jnp.int32))


def _squared_error(y: Any, mean: Any) -> Any:
    return (y - mean) ** 2


def _poisson_deviance(y: Any, mean: Any) -> Any:
    return 2 * (y * jnp.log(jnp.where(y > 0, y, 1) / mean) - y + mean)


@cache
def _explained(deviance: Callable[[Any, Any], Any], worst: float) -> Metric:
    def explained(x: Any, rows: Any) -> Any:
        scores = rows["X"] @ x
        means = scores if deviance is _squared_error else jnp.exp(scores)
        return 1 - jnp.mean(deviance(rows["y"], means)) / worst

    return explained
