"""What a model's answers on test rows are worth: which are right, and how much of numbers or counts they explain.

Each metric is defined once, for arrays of NumPy and of JAX alike: runs take it while they go, reports at the end.
"""

from functools import cache
from typing import Any

import numpy as np

from fedlin.data.prepare_table import LabelledRows
from fedlin.problems.metrics import Metric

CLASSIFIERS = ("logistic", "softmax")


def model_scores(kind: str, x: Any, X: Any) -> Any:
    """What a linear model gives every row: X x; in softmax regression a score for each class, shape (n, classes)."""
    return X @ (x.reshape(X.shape[-1], -1) if kind == "softmax" else x)


def right_answers(scores: Any, y: Any) -> Any:
    """Which rows' labels are those with the largest score; of one score a row, those with its sign.

    >>> right_answers(np.array([2.0, -1.0]), np.array([1.0, 1.0])).tolist()
    [True, False]
    >>> right_answers(np.array([[2.0, -1.0, 0.0]]), np.array([0])).tolist()
    [True]
    """
    return (scores > 0) == (y > 0) if scores.ndim == 1 else scores.argmax(axis=1).astype(y.dtype) == y


def deviances(kind: str, scores: Any, y: Any) -> Any:
    """Every row's squared error, or its Poisson deviance 2(y log(y/μ) - y + μ) with log μ the row's score.

    >>> deviances("regression", np.array([1.0]), np.array([3.0])).tolist()
    [4.0]
    >>> deviances("poisson", np.array([0.0, 0.0]), np.array([1.0, 0.0])).tolist()
    [0.0, 2.0]
    """
    if kind != "poisson":
        return (y - scores) ** 2
    arrays = scores.__array_namespace__()
    return 2 * (y * (arrays.log(arrays.where(y > 0, y, 1.0)) - scores) - y + arrays.exp(scores))


def constant_deviance(kind: str, y: Any) -> float:
    """The mean deviance of the best constant, which is the mean of y."""
    mean = y.mean()
    if kind == "poisson":
        return float(deviances(kind, np.log(np.full(len(y), mean)), y).mean()) if mean > 0 else 0.0
    return float(deviances(kind, mean, y).mean())


def held_out_metrics(kind: str, test: LabelledRows) -> tuple[dict[str, Metric], dict[str, Any]]:
    """The metric that fits a kind of problem, as traced code, and the rows it is taken on.

    `explained` is 1 - D/D₀, where D is the mean deviance and D₀ that of the best constant.

    Args:
        kind: "logistic", "softmax", "regression" or "poisson".
        test: The rows of every client that has any.

    Returns:
        Functions of a model and rows by name, and all rows.

    >>> rows = LabelledRows([np.eye(2)], [np.array([1.0, -1.0])], ("a",))
    >>> metrics, test = held_out_metrics("logistic", rows)
    >>> float(metrics["accuracy"](np.array([2.0, -1.0]), test))
    1.0
    """
    rows = {"X": np.concatenate(test.X), "y": np.concatenate(test.y)}
    if kind in CLASSIFIERS:
        return {"accuracy": _accuracy(kind)}, rows
    return {"explained": _explained(kind, constant_deviance(kind, rows["y"]))}, rows


@cache
def _accuracy(kind: str) -> Metric:
    # JAX takes means of truth values in 32 bits unless they are numbers before.
    return lambda x, rows: right_answers(model_scores(kind, x, rows["X"]), rows["y"]).astype(x.dtype).mean()


@cache
def _explained(kind: str, constant: float) -> Metric:
    return lambda x, rows: explained(deviances(kind, model_scores(kind, x, rows["X"]), rows["y"]).mean(), constant)


def explained(deviance: Any, constant: float) -> Any:
    """1 - D/D₀, NaN where a constant is exact: there is nothing to explain."""
    return 1 - deviance / constant if constant > 0 else deviance * np.nan
