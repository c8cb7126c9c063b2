"""Logistic regression: f_i(x) = mean or sum over rows of log(1 + exp(-y aᵀx)) + (l2/2)‖x‖² + λ Σ_j x_j²/(1 + x_j²)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fedlin.checks import nonnegative
from fedlin.core import Array, Matrix, Scalar, Vector
from fedlin.errors import DataError, UnknownError
from fedlin.problems.entropy import above_tangent_binary
from fedlin.problems.fused import Model, descend_on_chip
from fedlin.problems.measure_model import Optimum
from fedlin.problems.objective import Data, Objective, prox_by_newton
from fedlin.problems.problem import Problem, Rows
from fedlin.problems.rows import (
    RowPart,
    RowSlope,
    Sheet,
    add_penalty,
    count_rows,
    drawable_rows,
    largest_eigenvalues,
    pack_sheet,
    pick_rows,
    stack_rows,
    sum_over_rows,
)
from fedlin.problems.solver import minimise


def _fit(rows: RowPart | Sheet, x: Vector) -> Scalar:
    """The loss of all rows at once, without the regulariser."""
    return rows.weight @ jax.nn.softplus(-rows.y * (rows.X @ x))


def _loss(sheet: Sheet, x: Vector) -> Scalar:
    return sum_over_rows(_fit, sheet, x) + (sheet.l2 * x) @ x / 2


def _fit_slope(rows: RowPart, x: Vector) -> Vector:
    # No part without x: the compiler would take it out of the rounds, and no longer see two gradients as one.
    return -(rows.weight * (rows.y * jax.nn.sigmoid(-(rows.y * (rows.X @ x))))) @ rows.X


def _grad(sheet: Sheet, x: Vector) -> Vector:
    return sum_over_rows(_fit_slope, sheet, x) + sheet.l2 * x


def _fit_curvature(rows: RowPart, x: Vector) -> Matrix:
    margins = rows.X @ x  # a row's second derivative does not depend on the sign of its label
    bend = rows.weight * (jax.nn.sigmoid(margins) * jax.nn.sigmoid(-margins))
    return (rows.X.T * bend[None]) @ rows.X


def _hessian(sheet: Sheet, x: Vector) -> Matrix:
    return add_penalty(sum_over_rows(_fit_curvature, sheet, x), sheet)


def _fit_above_tangent(rows: RowPart, x: Vector, y: Vector) -> Scalar:
    # Apart, so that the compiler shares X @ x with the loss and computes X @ y once for all rounds.
    here, there = rows.y * (rows.X @ x), rows.y * (rows.X @ y)
    return rows.weight @ above_tangent_binary(here, there)


def _divergence(sheet: Sheet, x: Vector, y: Vector) -> Scalar:
    return sum_over_rows(_fit_above_tangent, sheet, x, y) + jnp.sum(sheet.l2 * (x - y) ** 2) / 2


def _smooth(sheet: Sheet, x: Vector) -> Scalar:
    """The loss in a form that can be differentiated backwards, which a loop of any length cannot."""
    return _fit(sheet, x) + (sheet.l2 * x) @ x / 2


def slope(margins: Sequence[Vector], labels: None) -> list[Vector]:
    """-1/(1 + exp(y aᵀx)), the derivative of a row's loss in y aᵀx."""
    grown = 1 + jnp.exp(margins[0])
    # 1/u as the root of 1/u²: a GPU takes that root in one instruction and a quotient in ten.
    return [-jax.lax.rsqrt(grown * grown)]


ON_CHIP = Model(slope, classes=1, signed=True)


CONVEX = Objective(
    _loss,
    _grad,
    _divergence,
    prox_by_newton(_smooth),
    fused=partial(descend_on_chip, ON_CHIP),
    hessian=_hessian,
    origin=(__name__, "CONVEX"),
)
WEIGHTED = replace(
    CONVEX, fused=None, origin=(__name__, "WEIGHTED")
)  # the kernel takes one weight for all of a client's rows


def _loss_bent(data: tuple[Sheet, Scalar], x: Vector) -> Scalar:
    sheet, lam = data
    return _loss(sheet, x) + lam * jnp.sum(x**2 / (1 + x**2))


def _grad_bent(data: tuple[Sheet, Scalar], x: Vector) -> Vector:
    sheet, lam = data
    return _grad(sheet, x) + lam * 2 * x / (1 + x**2) ** 2


NONCONVEX = Objective(_loss_bent, _grad_bent, origin=(__name__, "NONCONVEX"))


class Logistic(Problem):
    """Clients with labels -1 and +1."""

    def __init__(self, sheet: Sheet, nonconvex: float, weighted_rows: bool = False) -> None:
        self.sheet = sheet
        self.nonconvex = nonconvex  # λ
        clients = len(sheet.length)
        data = (sheet, np.full(clients, nonconvex, sheet.X.dtype)) if nonconvex else sheet
        start = np.zeros(sheet.X.shape[-1], sheet.X.dtype)
        convex = WEIGHTED if weighted_rows else CONVEX
        super().__init__(NONCONVEX if nonconvex else convex, data, start=start, clients=clients)

    def curvature(self) -> tuple[Array, Array]:
        # The second derivative of x²/(1+x²) lies in [-1/2, 2].
        l2, lam = np.asarray(self.sheet.l2[0], np.float64), self.nonconvex
        largest = largest_eigenvalues(self.sheet) / 4 + l2.max() + 2 * lam
        return largest, np.full(self.clients, max(l2.min() - lam / 2, 0.0))

    def solve(self) -> Optimum:
        if self.nonconvex:
            raise UnknownError(
                f"{self!r} with nonconvex={self.nonconvex:g} has no known global minimum: "
                "use the loss and the gradient norm, or set nonconvex=0."
            )
        from scipy.special import expit, log1p  # takes long to import

        X = self.sheet.X.reshape(-1, self.dim).astype(np.float64)
        labels = self.sheet.y.reshape(-1).astype(np.float64)
        weight = (self.weights[:, None] * self.sheet.weight).reshape(-1)
        used = weight > 0
        X, weight = X[used] * labels[used, None], weight[used]
        l2 = np.asarray(self.sheet.l2[0], np.float64)

        def value(x: Array) -> float:
            margin = X @ x
            return float(weight @ (np.maximum(-margin, 0) + log1p(np.exp(-np.abs(margin)))) + (l2 * x) @ x / 2)

        def grad(x: Array) -> Array:
            return np.asarray(l2 * x - (weight * expit(-(X @ x))) @ X)

        def curvature(x: Array) -> Callable[[Array], Array]:
            margin = X @ x
            bend = weight * expit(margin) * expit(-margin)
            return lambda v: l2 * v + (bend * (X @ v)) @ X

        x = minimise(value, grad, curvature, np.zeros(self.dim))
        if not l2.any() and np.all(X @ x > 0):
            raise UnknownError(
                f"{self!r} has no minimiser: a hyperplane separates the labels, so the loss falls for ever. "
                "Set l2 above 0."
            )
        return Optimum(x.astype(self.dtype), np.asarray(value(x), self.dtype))

    def pack(self, parts: int) -> Data | None:
        packed = pack_sheet(self.sheet, parts)
        return packed if packed is None or not self.nonconvex else (packed, self.data[1])

    def rows(self) -> Rows:
        if self.nonconvex:
            lengths = np.asarray(self.sheet.length)
            return Rows(self.data, lengths, _count_bent, _pick_bent, RowSlope(_loss_bent, _grad_bent))
        return drawable_rows(self.sheet, _loss, _grad)


def _count_bent(data: tuple[Sheet, Scalar]) -> tuple[Scalar, int]:
    return count_rows(data[0])


def _pick_bent(data: tuple[Sheet, Scalar], picked: jax.Array, share: Vector | None) -> tuple[Sheet, Scalar]:
    return pick_rows(data[0], picked, share), data[1]


def logistic(
    X: ArrayLike | Sequence[ArrayLike],
    y: ArrayLike | Sequence[ArrayLike],
    l2: float | ArrayLike = 0.0,
    reduction: str = "mean",
    *,
    nonconvex: float = 0.0,
    row_weights: Sequence[ArrayLike] | None = None,
) -> Logistic:
    """Logistic regression: f_i(x) = Σ_j w_j log(1 + exp(-y_j a_jᵀx)) + (l2/2)‖x‖² + λ Σ_k x_k²/(1 + x_k²).

    Args:
        X: The clients' rows a_j, an array (m, n, d) or a list with one array (n_i, d) for each client.
        y: Their labels, each -1 or +1, (m, n) or a list.
        l2: The weight of the penalty: a number, or one for each entry of the model (0 for an intercept, say).
        reduction: "mean" for weights w_j = 1/n_i, "sum" for w_j = 1.
        nonconvex: λ of the bounded regulariser, which is not convex.
        row_weights: How much each row counts, a list with one array (n_i,) for each client; all alike unless given. A
            mean divides them by their sum.

    Returns:
        The problem; it knows its smoothness and, where λ = 0, its minimiser.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((2, 8, 3))
    >>> problem = logistic(X, np.sign(X[..., 0]), l2=0.1)
    >>> float(np.linalg.norm(problem.grad(problem.minimizer))) < 1e-12
    True
    """
    sheet = stack_rows(X, y, l2, reduction, row_weights)
    wrong = (sheet.weight > 0) & ~np.isin(sheet.y, (-1, 1))
    if np.any(wrong):
        i, j = np.argwhere(wrong)[0]
        raise DataError(f"y of client {i} holds {sheet.y[i, j]:g}: labels must be -1 or +1. Map 0/1 labels by 2*y - 1.")
    return Logistic(sheet, nonnegative("nonconvex", nonconvex), row_weights is not None)
