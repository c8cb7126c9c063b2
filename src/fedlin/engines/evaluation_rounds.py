"""When a run's models are evaluated on test data, and which was best."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedlin.checks import positive_integer
from fedlin.columns import column
from fedlin.core import Array
from fedlin.errors import ArgumentError
from fedlin.problems.metrics import Evaluate, Metric, check_metrics
from fedlin.problems.objective import Data
from fedlin.problems.problem import Problem


class Best(NamedTuple):
    """The model whose first metric was highest so far."""

    round: int
    x: Array
    value: float


@dataclass(frozen=True)
class Evaluations:
    """What is evaluated, and every how many rounds."""

    names: tuple[str, ...]
    every: int
    metrics: Mapping[str, Metric]
    test: Data

    def of(self, problem: Problem) -> Evaluate:
        """The function of a flat model of this problem; checked, but compiled when it is first called."""
        return problem.evaluator(self.metrics, self.test)

    def better(self, values: Mapping[str, float], best: Best | None) -> bool:
        """Whether these metrics beat the best so far."""
        value = values[self.names[0]]
        return bool(np.isfinite(value)) and (best is None or value > best.value)


def plan_evaluations(metrics: Mapping[str, Metric] | None, test: Data, every: int) -> Evaluations | None:
    """What a user asked to be evaluated, checked; None where nothing was asked for."""
    if metrics is None and test is None:
        return None
    if metrics is None or test is None:
        raise ArgumentError("metrics and test belong together: give functions by name and the data they are taken on.")
    checked = check_metrics(metrics)
    return Evaluations(tuple(checked), positive_integer("every", every), checked, test)


def reached(limits: Mapping[str, float], values: Mapping[str, float]) -> bool:
    """Whether a metric is at its limit."""
    return any(bool(column(name).reached(value, limits[name])) for name, value in values.items() if name in limits)
