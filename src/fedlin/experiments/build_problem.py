"""A run's problem, built from numbers, a file of quadratics or rows of data, with the facts a report shows."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlin import problems
from fedlin.data import Partition, heterogeneity
from fedlin.errors import DataError, UnknownError
from fedlin.experiments import config
from fedlin.experiments.client_rows import rows
from fedlin.problems.problem import Problem

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class BuiltProblem:
    """A problem, and how its rows were dealt to clients where they came from data."""

    problem: Problem
    partition: Partition | None = None
    labels: Array | None = None

    def facts(self) -> dict[str, str]:
        """What a reader wants to know of the problem: its size, its constants and how much its clients differ."""
        problem = self.problem
        numbers = {}
        with suppress(UnknownError):
            numbers["L"] = problem.smoothness
            numbers["κ"] = problem.condition
        if problem.known_optimum is not None:
            numbers["f*"] = problem.minimum
        differing = heterogeneity(problem)
        numbers |= {"C": differing.C, "D": differing.D, "Σ wᵢ‖∇fᵢ(x*)‖²": differing.dissimilarity}
        known = {name: f"{value:.6g}" for name, value in numbers.items() if np.isfinite(value)}
        return {"clients": str(problem.clients), "dimension": str(problem.dim), **known}


def build_problem(setting: config.OracleConfig) -> BuiltProblem:
    """The problem a file's [problem] describes.

    >>> build_problem(config.LeastSquaresConfig(kind="least_squares", clients=3, dim=4, samples=10)).problem
    Quadratic(clients=3, dim=4, dtype=float64)
    """
    built = _exact(setting)
    problem = built.problem
    if setting.minibatch is not None:
        problem = problems.minibatch(problem, setting.minibatch)
    if setting.noise is not None:
        problem = problems.noisy(problem, setting.noise)
    return BuiltProblem(problem, built.partition, built.labels)


def _exact(setting: config.OracleConfig) -> BuiltProblem:
    if isinstance(setting, config.LeastSquaresConfig):
        numbers = setting.model_dump(exclude={"kind", "minibatch", "noise"})
        return BuiltProblem(problems.least_squares(**numbers))
    if isinstance(setting, config.QuadraticConfig):
        return BuiltProblem(_quadratic(setting.file))
    assert isinstance(setting, config.RowsConfig)
    return _with_rows(setting)


def _quadratic(file: str) -> Problem:
    try:
        with open(file, "rb") as content, np.load(content, allow_pickle=False) as arrays:
            missing = {"A", "b"} - set(arrays.files)
            if missing:
                raise DataError(f"{file} has no array {sorted(missing)[0]}: save A (clients, d, d) and b (clients, d).")
            return problems.quadratic(arrays["A"], arrays["b"])
    except (OSError, ValueError, AttributeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{file} is not an .npz file of arrays A and b: {error}.") from error


def _with_rows(setting: config.RowsConfig) -> BuiltProblem:
    X, y, partition, labels = rows(setting)
    problem = _objective(setting, X, y)
    if setting.weights == "rows":
        problem = problem.weighted([len(part) for part in y])
    return BuiltProblem(problem, partition, labels)


def _objective(setting: config.RowsConfig, X: Any, y: Any) -> Problem:
    if isinstance(setting, config.LogisticConfig):
        return problems.logistic(X, y, setting.l2, setting.reduction, nonconvex=setting.nonconvex)
    if isinstance(setting, config.SoftmaxConfig):
        return problems.softmax(X, y, setting.l2, setting.reduction, classes=setting.classes)
    if isinstance(setting, config.PoissonConfig):
        return problems.poisson(X, y, setting.l2, setting.reduction)
    return problems.regression(X, y, l2=setting.l2, reduction=setting.reduction)
