"""Least squares over rows, and the paper's synthetic instance of it (Section 7)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from fedlin.checks import fits_memory, nonnegative, positive_integer, random_seed
from fedlin.core import Scalar, Vector
from fedlin.problems.quadratic import Quadratic
from fedlin.problems.rows import Sheet, drawable_rows, stack_rows


def _loss_rows(sheet: Sheet, x: Vector) -> Scalar:
    return sheet.weight @ (sheet.X @ x - sheet.y) ** 2 / 2 + (sheet.l2 * x) @ x / 2


def _grad_rows(sheet: Sheet, x: Vector) -> Vector:
    return sheet.X.T @ (sheet.weight * (sheet.X @ x - sheet.y)) + sheet.l2 * x


def regression(
    X: ArrayLike | Sequence[ArrayLike],
    y: ArrayLike | Sequence[ArrayLike],
    *,
    l2: float | ArrayLike = 0.0,
    reduction: str = "sum",
    closed_form: bool = True,
    row_weights: Sequence[ArrayLike] | None = None,
) -> Quadratic:
    """Least squares over rows: f_i(x) = ½ Σ_j w_j (a_jᵀx - y_j)² + (l2/2)‖x‖².

    Args:
        X: The clients' rows a_j, an array (m, n, d) or a list with one array (n_i, d) for each client.
        y: Their targets, (m, n) or a list.
        l2: The weight of the penalty: a number, or one for each entry of the model (0 for an intercept, say).
        reduction: "sum" for weights w_j = 1, "mean" for w_j = 1/n_i.
        closed_form: Whether local steps are taken in closed form rather than one by one.
        row_weights: How much each row counts, a list with one array (n_i,) for each client; all alike unless given. A
            mean divides them by their sum.

    Returns:
        The problem; it knows its smoothness, its strong convexity and its minimiser.

    >>> import numpy as np
    >>> regression([np.eye(2), np.ones((1, 2))], [np.array([1.0, 2.0]), np.array([3.0])]).minimizer.round(3).tolist()
    [1.0, 2.0]
    """
    sheet = stack_rows(X, y, l2, reduction, row_weights)
    weighted = sheet.X * sheet.weight[..., None]
    identity = np.eye(sheet.X.shape[-1], dtype=sheet.X.dtype)
    A = np.matmul(weighted.transpose(0, 2, 1), sheet.X) + sheet.l2[0] * identity
    b = np.einsum("inj,in->ij", weighted, sheet.y)
    c = np.einsum("in,in,in->i", sheet.weight, sheet.y, sheet.y) / 2
    A = (A + A.transpose(0, 2, 1)) / 2
    return Quadratic(A, b, c, closed_form, drawable_rows(sheet, _loss_rows, _grad_rows))


def least_squares(
    clients: int = 20,
    dim: int = 100,
    samples: int = 500,
    alpha: float = 10.0,
    seed: int = 0,
    *,
    closed_form: bool = True,
) -> Quadratic:
    """The paper's instance: f_i = ½‖A_i x - b_i‖², b_i = A_i x_i + ε_i, entries of A_i ~ N(0, 1),
    x_i ~ N(u_i, 1) with u_i ~ N(0, α), ε_i ~ N(0, 0.5). Larger `alpha` means clients that differ more.

    Args:
        clients: m.
        dim: d.
        samples: Rows of each client.
        alpha: α, the variance of u_i.
        seed: What decides every draw.
        closed_form: Whether local steps are computed in closed form; if not, one by one, as in every other problem.

    Returns:
        The problem.

    >>> least_squares(clients=3, dim=4, samples=10, seed=1)
    Quadratic(clients=3, dim=4, dtype=float64)
    """
    clients, dim = positive_integer("clients", clients), positive_integer("dim", dim)
    samples, alpha = positive_integer("samples", samples), nonnegative("alpha", alpha)
    fits_memory(f"the rows of {clients} clients", 4 * clients * samples * dim)
    draw = np.random.default_rng(random_seed(seed))
    A = draw.standard_normal((clients, samples, dim))
    u = np.sqrt(alpha) * draw.standard_normal((clients, 1))  # u_i, one number a client
    truth = u + draw.standard_normal((clients, dim))  # x_i
    b = np.einsum("inj,ij->in", A, truth) + np.sqrt(0.5) * draw.standard_normal((clients, samples))
    return regression(A, b, closed_form=closed_form)
