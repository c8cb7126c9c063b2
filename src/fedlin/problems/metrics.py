"""Metrics of a model on test data, such as an accuracy: one compiled program, some rows at a time."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Wrapped
from jax.typing import DTypeLike
from numpy.typing import ArrayLike

from fedlin.checks import first_line
from fedlin.columns import is_metric
from fedlin.core import Array, PyTree, Scalar, Vector
from fedlin.errors import ArgumentError, DataError
from fedlin.layout import even_block, sum_over_blocks
from fedlin.memory import fitting_block
from fedlin.problems.objective import Data

Metric = Callable[[PyTree, PyTree], Any]  # (model, batch) -> the mean of something over the batch's rows
Evaluate = Callable[[ArrayLike], dict[str, float]]  # a flat model's metrics
ROWS = 1024  # at a time, at most: enough to occupy a device


def as_it_is(x: Vector) -> Vector:
    """A flat model as itself."""
    return x


def check_metrics(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Functions by names that are no columns already, or an error that says what is allowed."""
    if not isinstance(metrics, Mapping) or not metrics or not all(map(callable, metrics.values())):
        raise ArgumentError(f"metrics = {metrics!r} is not allowed: give functions (model, batch) by name.")
    for name in metrics:
        if not isinstance(name, str) or not name.isidentifier() or not is_metric(name):
            raise ArgumentError(f"metrics names {name!r}: give a word that is no column of a result already.")
    return dict(metrics)


def count_test_rows(test: Data) -> int:
    """The length of all arrays of the test data."""
    lengths = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(test)}
    if len(lengths) != 1 or lengths & {(), (0,)}:
        raise DataError("test must be arrays with one row for each example, all as long, and not empty.")
    return int(lengths.pop()[0])


def evaluate_in_blocks(
    metrics: Mapping[str, Metric], restore: Callable[[Vector], PyTree], start: Array, test: Data
) -> Evaluate:
    """The function from a flat model to its metrics.

    Args:
        metrics: functions of a model and a batch of rows, each a mean over the rows, by name.
        restore: from a flat model to what the metrics take, as traced code.
        start: a flat model.
        test: a pytree of arrays with a leading axis of rows.

    Returns:
        The function, its program compiled when it is first called.
    """
    rows = count_test_rows(test)
    names, functions = tuple(metrics), tuple(metrics.values())
    few = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape[1:]), leaf.dtype), test)  # type: ignore[no-untyped-call]
    for name, function in metrics.items():
        try:
            value = jax.eval_shape(
                lambda x, rows, function=function: jnp.asarray(function(restore(x), rows)), start, few
            )
        except Exception as cause:
            raise DataError(
                f"the metric {name} cannot be computed on test ({type(cause).__name__}: {first_line(cause)}): give "
                "a function (model, batch) that JAX can trace."
            ) from cause
        if value.shape != ():
            raise DataError(f"the metric {name} has shape {value.shape}: give one number, a mean over rows.")
    placed = jax.device_put(test)
    block = fitting_block(
        lambda block: _program(functions, restore, block),
        (start, placed),
        rows,
        None if rows <= ROWS else even_block(ROWS, rows),
        measuring=True,
    )

    def evaluate(x: ArrayLike) -> dict[str, float]:
        values = np.asarray(_program(functions, restore, block)(x, placed))
        return dict(zip(names, (values / rows).tolist(), strict=True))

    return evaluate


@cache
def _program(metrics: tuple[Metric, ...], restore: Callable[[Vector], PyTree], block: int | None) -> Wrapped:
    def run(x: Vector, test: Data) -> Vector:
        model = restore(x)

        def part(batch: Data) -> Vector:
            count = len(jax.tree.leaves(batch)[0])
            return jnp.stack([count * _number(metric(model, batch), x.dtype) for metric in metrics])

        return sum_over_blocks(part, block)(test)

    return jax.jit(run)


def _number(value: ArrayLike, dtype: DTypeLike) -> Scalar:
    return jnp.asarray(value).astype(dtype)
