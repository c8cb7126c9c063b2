"""Softmax regression: f_i(W) = mean or sum over rows of log Σ_c exp(w_cᵀa) - w_yᵀa, + (l2/2)‖W‖².

The model is W, shape (d, K), flat.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fedlin.checks import positive_integer
from fedlin.core import Array, Scalar, Vector
from fedlin.errors import ArgumentError, DataError, UnknownError
from fedlin.problems.entropy import above_tangent
from fedlin.problems.fused import Model, descend_on_chip
from fedlin.problems.measure_model import Optimum
from fedlin.problems.objective import Objective, prox_by_newton
from fedlin.problems.problem import Problem, Rows
from fedlin.problems.rows import (
    PackedSheet,
    RowPart,
    Sheet,
    drawable_rows,
    largest_eigenvalues,
    pack_sheet,
    stack_rows,
    sum_over_rows,
)
from fedlin.problems.solver import minimise

MOST_CLASSES = 2**20  # more are labels that are no classes


@cache
def objective(classes: int, weighted_rows: bool = False) -> Objective:
    """The functions for K classes."""

    def logits(rows: RowPart | Sheet, x: Vector) -> Vector:
        """(K, n): a reduction over a few classes is quicker along the outer axis."""
        # Each class's weights side by side: XLA would fold a plain transpose into the product, which doubles its time.
        by_class = jax.lax.optimization_barrier(x.reshape(-1, classes).T)  # type: ignore[no-untyped-call]
        return jnp.einsum("cd,nd->cn", by_class, rows.X)  # no copy of the rows turned around

    def fit(rows: RowPart | Sheet, x: Vector) -> Scalar:
        z = logits(rows, x)
        chosen = jnp.take_along_axis(z, rows.y.astype(jnp.int32)[None], axis=0)[0]
        return rows.weight @ (jax.nn.logsumexp(z, axis=0) - chosen)

    def fit_slope(rows: RowPart, x: Vector) -> Vector:
        """(K, d), to be turned around once it is summed: a product with few columns is slow."""
        hit = jax.nn.one_hot(rows.y.astype(jnp.int32), classes, dtype=x.dtype, axis=0)
        return (rows.weight[None] * (jax.nn.softmax(logits(rows, x), axis=0) - hit)) @ rows.X

    def fit_above_tangent(rows: RowPart, x: Vector, y: Vector) -> Scalar:
        return rows.weight @ above_tangent(logits(rows, y), logits(rows, x))

    def loss(sheet: Sheet, x: Vector) -> Scalar:
        return sum_over_rows(fit, sheet, x) + (sheet.l2 * x) @ x / 2

    def smooth(sheet: Sheet, x: Vector) -> Scalar:
        """The loss in a form that can be differentiated backwards, which a loop of any length cannot."""
        return fit(sheet, x) + (sheet.l2 * x) @ x / 2

    def grad(sheet: Sheet, x: Vector) -> Vector:
        return sum_over_rows(fit_slope, sheet, x).T.ravel() + sheet.l2 * x

    def divergence(sheet: Sheet, x: Vector, y: Vector) -> Scalar:
        return sum_over_rows(fit_above_tangent, sheet, x, y) + jnp.sum(sheet.l2 * (x - y) ** 2) / 2

    # The kernel takes one weight for all of a client's rows.
    fused = None if weighted_rows else partial(descend_on_chip, on_chip(classes))
    origin = (__name__, "objective", classes, weighted_rows)
    return Objective(loss, grad, divergence, prox_by_newton(smooth), fused=fused, origin=origin)


def slope(logits: Sequence[Vector], y: Vector) -> list[Vector]:
    """softmax(z)_c - [y = c], the derivative of a row's loss, class by class."""
    top = reduce(jnp.maximum, logits)
    grown = [jnp.exp(z - top) for z in logits]
    total = sum(grown)
    return [part / total - (y == c).astype(part.dtype) for c, part in enumerate(grown)]


def on_chip(classes: int) -> Model:
    """What the fused kernel needs to know of K classes."""
    return Model(slope, classes, signed=False)


class Softmax(Problem):
    """Clients with labels 0..K-1."""

    def __init__(self, sheet: Sheet, classes: int, weighted_rows: bool = False) -> None:
        self.classes = classes
        start = np.zeros(sheet.X.shape[-1] * classes, sheet.X.dtype)
        super().__init__(objective(classes, weighted_rows), sheet, start=start, clients=len(sheet.length))

    def curvature(self) -> tuple[Array, Array]:
        # The Hessian of log Σ exp is at most I/2 (Böhning, 1992).
        l2 = np.asarray(self.data.l2[0], np.float64)
        return largest_eigenvalues(self.data) / 2 + l2.max(), np.full(self.clients, l2.min())

    def solve(self) -> Optimum:
        from scipy.special import logsumexp  # takes long to import
        from scipy.special import softmax as probabilities

        d, K, l2 = self.data.X.shape[-1], self.classes, np.asarray(self.data.l2[0], np.float64)
        weight = (self.weights[:, None] * self.data.weight).reshape(-1)
        used = weight > 0
        X, weight = self.data.X.reshape(-1, d)[used].astype(np.float64), weight[used]
        labels = self.data.y.reshape(-1)[used].astype(int)
        hit = np.eye(K)[labels]

        def value(x: Array) -> float:
            z = X @ x.reshape(d, K)
            return float(weight @ (logsumexp(z, axis=1) - z[np.arange(len(z)), labels]) + (l2 * x) @ x / 2)

        def grad(x: Array) -> Array:
            p = probabilities(X @ x.reshape(d, K), axis=1)
            return np.asarray((X.T @ (weight[:, None] * (p - hit))).ravel() + l2 * x)

        def curvature(x: Array) -> Callable[[Array], Array]:
            p = probabilities(X @ x.reshape(d, K), axis=1)

            def times(v: Array) -> Array:
                u = X @ v.reshape(d, K)
                bend = p * (u - np.sum(p * u, axis=1, keepdims=True))
                return np.asarray((X.T @ (weight[:, None] * bend)).ravel() + l2 * v)

            return times

        x = minimise(value, grad, curvature, np.zeros(self.dim))
        if not l2.any() and np.all(np.argmax(X @ x.reshape(d, K), axis=1) == labels):
            raise UnknownError(
                f"{self!r} has no minimiser: the classes can be separated, so the loss falls for ever. Set l2 above 0."
            )
        return Optimum(x.astype(self.dtype), np.asarray(value(x), self.dtype))

    def pack(self, parts: int) -> PackedSheet | None:
        return pack_sheet(self.data, parts)

    def rows(self) -> Rows:
        return drawable_rows(self.data, self.objective.loss, self.objective.grad)


def softmax(
    X: ArrayLike | Sequence[ArrayLike],
    y: ArrayLike | Sequence[ArrayLike],
    l2: float | ArrayLike = 0.0,
    reduction: str = "mean",
    *,
    classes: int | None = None,
    row_weights: Sequence[ArrayLike] | None = None,
) -> Softmax:
    """Softmax regression: f_i(W) = Σ_j w_j (log Σ_c exp(w_cᵀa_j) - w_{y_j}ᵀa_j) + (l2/2)‖W‖².

    Args:
        X: The clients' rows a_j, an array (m, n, d) or a list with one array (n_i, d) for each client.
        y: Their labels 0..K-1, (m, n) or a list.
        l2: The weight of the penalty: a number, or one for each of the d·K entries of the flat model.
        reduction: "mean" for weights w_j = 1/n_i, "sum" for w_j = 1.
        classes: K, one more than the largest label unless given.
        row_weights: How much each row counts, a list with one array (n_i,) for each client; all alike unless given. A
            mean divides them by their sum.

    Returns:
        The problem, whose model is W, shape (d, K), flat; it knows its smoothness and its minimiser.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((2, 9, 3))
    >>> softmax(X, np.tile([0, 1, 2], (2, 3)), l2=0.1).dim
    9
    """
    count = _count_classes(y) if classes is None else positive_integer("classes", classes)
    if count > MOST_CLASSES:
        raise ArgumentError(f"classes = {count} is not allowed: give at most {MOST_CLASSES}.")
    sheet = stack_rows(X, y, l2, reduction, row_weights, count)
    labels = sheet.y[sheet.weight > 0]
    if np.any(labels != np.round(labels)) or labels.min() < 0 or labels.max() >= count or count < 2:
        raise DataError(
            f"y holds labels from {labels.min():g} to {labels.max():g} for {count} classes: give whole numbers 0..K-1, "
            "K at least 2."
        )
    return Softmax(sheet, count, row_weights is not None)


def _count_classes(y: Any) -> int:
    """One more than the largest label; what is wrong with the labels is for `stack_rows` to say."""
    try:
        largest = max(float(np.max(np.asarray(part, np.float64), initial=0.0)) for part in y)
    except (TypeError, ValueError, OverflowError):
        return 2
    return int(largest) + 1 if np.isfinite(largest) else 2
