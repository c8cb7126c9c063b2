"""A run's problem, built from numbers, a file of quadratics or rows of data, with the facts a report shows."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedlin import problems
from fedlin.columns import write_bytes
from fedlin.data import heterogeneity
from fedlin.data.held_out_metrics import held_out_metrics
from fedlin.data.held_out_report import HeldOutRows, OwnMetric
from fedlin.errors import DataError, UnknownError
from fedlin.experiments import config
from fedlin.experiments.client_rows import ClientData, client_data
from fedlin.experiments.own_code import call_own
from fedlin.problems.metrics import Metric
from fedlin.problems.problem import Problem


@dataclass(frozen=True, eq=False)
class BuiltProblem:
    """A problem, and the rows it is of, where it is of rows."""

    problem: Problem
    rows: ClientData | None = None
    weights: str = ""  # f in words: how much each client counts
    metrics: dict[str, Metric] | None = None  # on rows that are held out, while a run goes
    test: Any = None  # those rows
    kind: str = ""
    own_metrics: Mapping[str, OwnMetric] = field(default_factory=dict)

    @cached_property
    def held_out(self) -> HeldOutRows | None:
        """What to say of models on the rows held out, where there are any."""
        if self.rows is None or self.rows.test is None:
            return None
        return HeldOutRows(self.kind, self.rows.test, self.own_metrics)

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
        said = {"f": self.weights} if self.weights else {}
        return {"clients": str(problem.clients), "dimension": str(problem.dim), **said, **known, **self._of_rows()}

    def _of_rows(self) -> dict[str, str]:
        rows = self.rows
        if rows is None or rows.partition is None:
            return {}
        facts = {"rows": f"{sum(rows.sizes):,}, {min(rows.sizes):,} to {max(rows.sizes):,} a client"}
        if rows.test is not None:
            facts["rows to test on"] = f"{sum(map(len, rows.test.y)):,} of {len(rows.test.y)} clients"
        if rows.preparation is not None:
            up, down = (write_bytes(size) for size in rows.exchanged)
            facts["preparing sends"] = f"{up} up, {down} down"
        return facts


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
    return replace(built, problem=problem)


def _exact(setting: config.OracleConfig) -> BuiltProblem:
    if isinstance(setting, config.LeastSquaresConfig):
        numbers = setting.model_dump(exclude={"kind", "minibatch", "noise"})
        return BuiltProblem(problems.least_squares(**numbers))
    if isinstance(setting, config.QuadraticConfig):
        return BuiltProblem(_quadratic(setting.file))
    if isinstance(setting, config.PythonConfig):
        made = call_own(setting.python, setting.arguments, Problem, "a problem, as fedlin.problems.from_loss(...) is")
        return BuiltProblem(made)
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
    rows = client_data(setting)
    problem = setting.build(rows)
    metrics, test = (None, None) if rows.test is None else held_out_metrics(setting.kind, rows.test)
    if setting.weights == "rows":
        problem, weights = problem.weighted(rows.sizes), "Σ (nᵢ/n) fᵢ, clients in proportion to their rows"
    else:
        weights = "(1/m) Σ fᵢ, every client alike"
    return BuiltProblem(problem, rows, weights, metrics, test, setting.kind)
