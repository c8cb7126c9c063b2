"""Poisson regression with the log link: f_i(x) = Σ_j w_j (exp(a_jᵀx) - y_j a_jᵀx) + (l2/2)‖x‖², for counts y_j."""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fedlin.core import Array, Matrix, Scalar, Vector
from fedlin.errors import DataError
from fedlin.problems.entropy import exp_above_tangent
from fedlin.problems.measure_model import Optimum
from fedlin.problems.objective import Objective, prox_by_newton
from fedlin.problems.problem import Problem, Rows
from fedlin.problems.rows import (
    PackedSheet,
    RowPart,
    Sheet,
    add_penalty,
    drawable_rows,
    largest_eigenvalues,
    pack_sheet,
    stack_rows,
    sum_over_rows,
)
from fedlin.problems.solver import minimise


def _fit(rows: RowPart | Sheet, x: Vector) -> Scalar:
    """The loss of all rows at once, without the penalty."""
    scores = rows.X @ x
    return rows.weight @ (jnp.exp(scores) - rows.y * scores)


def _loss(sheet: Sheet, x: Vector) -> Scalar:
    return sum_over_rows(_fit, sheet, x) + (sheet.l2 * x) @ x / 2


def _fit_slope(rows: RowPart, x: Vector) -> Vector:
    return (rows.weight * (jnp.exp(rows.X @ x) - rows.y)) @ rows.X


def _grad(sheet: Sheet, x: Vector) -> Vector:
    return sum_over_rows(_fit_slope, sheet, x) + sheet.l2 * x


def _fit_curvature(rows: RowPart, x: Vector) -> Matrix:
    return (rows.X.T * (rows.weight * jnp.exp(rows.X @ x))[None]) @ rows.X


def _hessian(sheet: Sheet, x: Vector) -> Matrix:
    return add_penalty(sum_over_rows(_fit_curvature, sheet, x), sheet)


def _fit_above_tangent(rows: RowPart, x: Vector, y: Vector) -> Scalar:
    # exp(u) - exp(v) - exp(v)(u - v) = exp(v) (exp(t) - 1 - t) with t = u - v.
    there = rows.X @ y
    return rows.weight @ (jnp.exp(there) * exp_above_tangent(rows.X @ x - there))


def _divergence(sheet: Sheet, x: Vector, y: Vector) -> Scalar:
    return sum_over_rows(_fit_above_tangent, sheet, x, y) + jnp.sum(sheet.l2 * (x - y) ** 2) / 2


def _smooth(sheet: Sheet, x: Vector) -> Scalar:
    """The loss in a form that can be differentiated backwards, which a loop of any length cannot."""
    return _fit(sheet, x) + (sheet.l2 * x) @ x / 2


OBJECTIVE = Objective(
    _loss, _grad, _divergence, prox_by_newton(_smooth), hessian=_hessian, origin=(__name__, "OBJECTIVE")
)


class Poisson(Problem):
    """Clients with counts."""

    def __init__(self, sheet: Sheet) -> None:
        start = np.zeros(sheet.X.shape[-1], sheet.X.dtype)
        super().__init__(OBJECTIVE, sheet, start=start, clients=len(sheet.length))

    def curvature(self) -> tuple[Array, Array]:
        # exp has no largest slope, so that f is smooth in a bounded region only. The curvature in a direction,
        # Σ_j w_j exp(a_jᵀx)(a_jᵀv)², is convex in x: from the start to x* it is largest at one of the two ends.
        l2 = np.asarray(self.data.l2[0], np.float64)
        ends = [self._largest_at(x) for x in (np.zeros(self.dim), self.minimizer)]
        return np.max(ends, axis=0) + l2.max(), np.full(self.clients, l2.min())

    def _largest_at(self, x: Array) -> Array:
        bend = self.data.weight * np.exp(self.data.X @ x)
        return largest_eigenvalues(self.data._replace(weight=bend))

    def solve(self) -> Optimum:
        weight = (self.weights[:, None] * self.data.weight).reshape(-1)
        used = weight > 0
        X, weight = self.data.X.reshape(-1, self.dim)[used].astype(np.float64), weight[used]
        y, l2 = self.data.y.reshape(-1)[used].astype(np.float64), np.asarray(self.data.l2[0], np.float64)

        def value(x: Array) -> float:
            scores = X @ x
            with np.errstate(over="ignore"):  # a step too far is infinite, and halved
                return float(weight @ (np.exp(scores) - y * scores) + (l2 * x) @ x / 2)

        def grad(x: Array) -> Array:
            with np.errstate(over="ignore"):
                return np.asarray((weight * (np.exp(X @ x) - y)) @ X + l2 * x)

        def curvature(x: Array) -> Callable[[Array], Array]:
            bend = weight * np.exp(X @ x)
            return lambda v: l2 * v + (bend * (X @ v)) @ X

        x = minimise(value, grad, curvature, np.zeros(self.dim))
        return Optimum(x.astype(self.dtype), np.asarray(value(x), self.dtype))

    def pack(self, parts: int) -> PackedSheet | None:
        return pack_sheet(self.data, parts)

    def rows(self) -> Rows:
        return drawable_rows(self.data, _loss, _grad)


def poisson(
    X: ArrayLike | Sequence[ArrayLike],
    y: ArrayLike | Sequence[ArrayLike],
    l2: float | ArrayLike = 0.0,
    reduction: str = "mean",
    *,
    row_weights: Sequence[ArrayLike] | None = None,
) -> Poisson:
    """Poisson regression of counts, E[y_j] = exp(a_jᵀx): f_i(x) = Σ_j w_j (exp(a_jᵀx) - y_j a_jᵀx) + (l2/2)‖x‖².

    Args:
        X: The clients' rows a_j, an array (m, n, d) or a list with one array (n_i, d) for each client.
        y: Their counts, each at least 0, (m, n) or a list.
        l2: The weight of the penalty: a number, or one for each entry of the model (0 for an intercept, say).
        reduction: "mean" for weights w_j = 1/n_i, "sum" for w_j = 1.
        row_weights: How much each row counts, a list with one array (n_i,) for each client; all alike unless given. A
            mean divides them by their sum.

    Returns:
        The problem. It knows its minimiser; its smoothness is that of the way from zero to there, since exp has none
        that holds everywhere.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((2, 50, 3))
    >>> problem = poisson(X, np.round(np.exp(X[..., 0])), l2=0.1)
    >>> float(np.linalg.norm(problem.grad(problem.minimizer))) < 1e-12
    True
    """
    sheet = stack_rows(X, y, l2, reduction, row_weights)
    wrong = (sheet.weight > 0) & (sheet.y < 0)
    if np.any(wrong):
        i, j = np.argwhere(wrong)[0]
        raise DataError(f"y of client {i} holds {sheet.y[i, j]:g}: counts must be at least 0.")
    if not np.any(sheet.weight * sheet.y):
        raise DataError("y holds no count above 0: the mean has no logarithm. Give rows with counts.")
    return Poisson(sheet)
