"""How well a model does on rows nobody learned from: over all rows, and at the worst and the median client."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, log_softmax
from scipy.stats import rankdata

from fedlin.columns import column
from fedlin.core import Array
from fedlin.data.held_out_metrics import (
    CLASSIFIERS,
    constant_deviance,
    deviances,
    explained,
    model_scores,
    right_answers,
)
from fedlin.data.prepare_table import LabelledRows
from fedlin.errors import ArgumentError

OwnMetric = Callable[[Array, Array, Array], Any]  # (model, X, y) -> a number
BINS = 10  # of equal width, in which stated chances are set beside what happened


@dataclass(frozen=True)
class HeldOutReport:
    """A model on the test rows: every metric over all rows and by client, and how well its chances are calibrated."""

    metrics: dict[str, float]
    clients: dict[str, dict[str, float]]  # by client, then by metric; with the number of rows
    calibration: list[dict[str, float]]  # of each bin: the mean chance stated, the share that happened, the rows


class HeldOutRows:
    """Metrics of models on test rows.

    Args:
        kind: What the model is: "logistic" (labels -1 and +1), "softmax" (0, 1, ...), "regression" or "poisson".
        test: The rows of every client that has any.
        own: Further metrics by name, functions of (model, X, y) that give a number; higher is better.

    >>> test = LabelledRows([np.array([[1.0], [2.0]]), np.array([[-1.0]])], [np.array([1.0, -1.0]), np.array([-1.0])],
    ...                     ("a", "b"))
    >>> held_out = HeldOutRows("logistic", test).report(np.array([3.0]))
    >>> round(held_out.metrics["accuracy"], 3), held_out.metrics["accuracy_worst"], held_out.metrics["auc"]
    (0.667, 0.5, 0.5)
    """

    def __init__(self, kind: str, test: LabelledRows, own: Mapping[str, OwnMetric] | None = None) -> None:
        self.kind, self._own = kind, dict(own or {})
        self._X, self._y = np.concatenate(test.X), np.concatenate(test.y)
        ends = np.cumsum([len(y) for y in test.y])
        self._clients = {name: slice(int(end) - len(y), int(end)) for name, end, y in zip(test.clients, ends, test.y)}  # noqa: B905

    def columns(self, models: Array, rounds: Array, length: int) -> dict[str, Array]:
        """Every metric as a column of a result with so many entries, NaN but for these rounds' models."""
        reports = [self.report(model).metrics for model in models]
        columns = {name: np.full(length, np.nan) for name in reports[0]}
        for name, values in columns.items():
            values[rounds] = [metrics[name] for metrics in reports]
        return columns

    def report(self, x: Array) -> HeldOutReport:
        """All that is said of a model."""
        known = self._of_rows(np.asarray(x, np.float64))

        def values(part: slice) -> dict[str, float]:
            return {**known(part), **{name: self._call(name, x, part) for name in self._own}}

        whole = values(slice(None))
        clients = {name: {"rows": len(self._y[part]), **values(part)} for name, part in self._clients.items()}
        metrics = dict(whole)
        for name in whole:
            each = [own[name] for own in clients.values() if np.isfinite(own[name])]
            if each and name != "calibration":
                metrics[f"{name}_worst"] = min(each) if column(name).stop == "at least" else max(each)
                metrics[f"{name}_median"] = float(np.median(each))
        return HeldOutReport(metrics, clients, self._calibration(x))

    def _call(self, name: str, x: Array, part: slice) -> float:
        try:
            return float(self._own[name](x, self._X[part], self._y[part]))
        except Exception as error:
            raise ArgumentError(f"the metric {name} failed: {type(error).__name__}: {error}.") from error

    def _of_rows(self, x: Array) -> Callable[[slice], dict[str, float]]:
        """The metrics over any of the rows."""
        scores = model_scores(self.kind, x, self._X)
        if self.kind in CLASSIFIERS:
            chances, right = _chances(scores), right_answers(scores, self._y)
            labels = np.maximum(self._y, 0).astype(int)  # -1 and +1 are classes 0 and 1
            return lambda part: _classification(chances[part], labels[part], right[part])
        each = deviances(self.kind, scores, self._y)
        return lambda part: _regression(self.kind, each[part], self._y[part])

    def _calibration(self, x: Array) -> list[dict[str, float]]:
        if self.kind not in CLASSIFIERS:
            return []
        scores = model_scores(self.kind, x, self._X)
        stated, right = _chances(scores).max(axis=1), right_answers(scores, self._y)
        return [
            {"stated": float(stated[own].mean()), "happened": float(right[own].mean()), "rows": int(own.sum())}
            for own in _bins(stated)
            if own.any()
        ]


def _chances(scores: Array) -> Array:
    """What a model says of every class, (rows, classes)."""
    if scores.ndim == 1:
        return np.stack([expit(-scores), expit(scores)], axis=1)
    return np.exp(log_softmax(scores, axis=1))


def _classification(chances: Array, labels: Array, right: Array) -> dict[str, float]:
    chances_of_labels = np.maximum(chances[np.arange(len(labels)), labels], np.finfo(float).tiny)
    stated = chances.max(axis=1)
    gaps = [own_bin.mean() * abs(stated[own_bin].mean() - right[own_bin].mean()) for own_bin in _bins(stated)
            if own_bin.any()]  # fmt: skip
    return {
        "accuracy": float(right.mean()),
        "log_loss": float(-np.log(chances_of_labels).mean()),
        "auc": _auc(chances, labels),
        "calibration": float(sum(gaps)),
    }


def _bins(stated: Array) -> list[Array]:
    bin_of_row = np.minimum((stated * BINS).astype(int), BINS - 1)
    return [bin_of_row == number for number in range(BINS)]


def _auc(chances: Array, labels: Array) -> float:
    """The chance that a row of a class is ranked above one of another; of several classes the mean over them.

    Each class against all others, weighed alike; NaN where rows are of one class only.
    """
    classes = (1,) if chances.shape[1] == 2 else range(chances.shape[1])
    areas = []
    for label in classes:
        of_label = labels == label
        n, others = int(of_label.sum()), int((~of_label).sum())
        if n and others:
            ranks = rankdata(chances[:, label])
            areas.append((ranks[of_label].sum() - n * (n + 1) / 2) / (n * others))
    return float(np.mean(areas)) if areas else float("nan")


def _regression(kind: str, deviance_of_rows: Array, y: Array) -> dict[str, float]:
    deviance = float(deviance_of_rows.mean())
    share = explained(deviance, constant_deviance(kind, y))
    return {"explained": share, **({"deviance": deviance} if kind == "poisson" else {"rmse": deviance**0.5})}
