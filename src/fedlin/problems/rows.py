"""Clients as rows of features: stacked with padding that weighs nothing, and mini-batches of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from fedlin.checks import all_finite, finite, is_sparse, nonnegative, one_of, shape_of, shown
from fedlin.core import Array, Key, Matrix, PyTree, Scalar, Vector
from fedlin.errors import ArgumentError, DataError
from fedlin.problems.objective import Data, Slope
from fedlin.problems.packed_rows import ROWS, PackedRows, pack, sum_over_packed
from fedlin.problems.problem import Rows

T = TypeVar("T")
BLOCK = 512  # rows at a time where clients are long
LARGEST = 2**30  # entries that sparse rows may take up once they are dense and padded: 8 GiB


class Sheet(NamedTuple):
    """One client's rows. f_i = Σ_j weight_j loss_j + ½ Σ_k l2_k x_k²; a mean has weights 1/n_i, a sum has 1."""

    X: jax.Array  # (n, d)
    y: jax.Array  # (n,)
    weight: jax.Array  # (n,), zero for padding; the same for all of a client's rows unless rows are weighted
    length: jax.Array  # n_i
    l2: jax.Array  # one number, or one for each entry of the model


class PackedSheet(NamedTuple):
    """The same with the rows of all clients in blocks: see `fedlin.problems.packed_rows`."""

    blocks: PackedRows  # of ((X, y), weight)
    length: jax.Array
    l2: jax.Array


class RowPart(NamedTuple):
    """Some of a client's rows, enough for a sum over them."""

    X: jax.Array
    y: jax.Array
    weight: jax.Array


def pack_sheet(sheet: Sheet, parts: int) -> PackedSheet | None:
    """A sheet of all clients with its rows in blocks, where that saves much."""
    blocks = pack((sheet.X, sheet.y), np.asarray(sheet.weight), np.asarray(sheet.length), ROWS, parts)
    return None if blocks is None else PackedSheet(blocks, sheet.length, sheet.l2)


def stack_rows(
    X: ArrayLike | Sequence[ArrayLike],
    y: ArrayLike | Sequence[ArrayLike],
    l2: float | ArrayLike,
    reduction: str,
    row_weights: Sequence[ArrayLike] | None = None,
    outputs: int = 1,
) -> Sheet:
    """All clients' rows with a leading client axis; clients may differ in their number of rows.

    A model has `outputs` entries for each feature, so many as an array of `l2` must have.
    """
    one_of("reduction", reduction, ("mean", "sum"))
    X, y, row_weights = (_without_pandas(parts) for parts in (X, y, row_weights))
    _check_clients("X", X)
    _check_clients("y", y)
    if row_weights is not None:
        _check_clients("row_weights", row_weights)
    if len(X) != len(y):  # type: ignore[arg-type]
        raise DataError(f"X has {len(X)} clients and y has {len(y)}: give both for every client.")  # type: ignore[arg-type]
    if len(X) == 0:  # type: ignore[arg-type]
        raise DataError("X has no clients: give at least one.")
    if row_weights is None and _even(X, y):
        return _as_it_is(np.asarray(X), np.asarray(y), l2, reduction, outputs)
    features = [finite(f"X of client {i}", part) for i, part in enumerate(dense(X))]
    targets = [finite(f"y of client {i}", part) for i, part in enumerate(y)]  # type: ignore[arg-type]
    for i, (rows, labels) in enumerate(zip(features, targets, strict=True)):
        if rows.ndim != 2:
            raise DataError(f"X of client {i} has shape {rows.shape}: give one row a sample, shape (n_i, d).")
        if len(rows) == 0:
            raise DataError(f"client {i} has no rows: leave it out, or give it at least one.")
        if rows.shape[1] != features[0].shape[1]:
            raise DataError(
                f"client {i} has {rows.shape[1]} features and client 0 has {features[0].shape[1]}: "
                "all clients must share one feature space."
            )
        if labels.shape != (len(rows),):
            raise DataError(f"y of client {i} has shape {labels.shape} for {len(rows)} rows: give ({len(rows)},).")
    dtype = np.result_type(*features)
    _check_sizes(features, targets, dtype)
    counts = np.array([len(rows) for rows in features], np.int32)
    longest = int(counts.max())
    if longest > BLOCK:
        longest = -(-longest // BLOCK) * BLOCK  # whole blocks, see `sum_over_rows`
    shapes = ((len(counts), longest, features[0].shape[1]), (len(counts), longest), (len(counts), longest))
    X_all, y_all, weight = (np.zeros(shape, dtype) for shape in shapes)
    for i, n in enumerate(counts):
        X_all[i, :n], y_all[i, :n] = features[i], targets[i]
        each = np.ones(n) if row_weights is None else _check_row_weights(i, row_weights, n)
        weight[i, :n] = each / each.sum() if reduction == "mean" else each
    # On the host the fields are NumPy arrays; the type says what the traced functions see.
    stacked: Any = (X_all, y_all, weight, counts, _penalties(l2, len(counts), X_all.shape[-1] * outputs, dtype))
    return Sheet(*stacked)


def _check_sizes(features: Iterable[Array], targets: Iterable[Array], dtype: DTypeLike) -> None:
    """Refuse numbers so large that the curvature, a sum of their squares, could overflow."""
    most = float(np.finfo(dtype).max) ** (1 / 3)
    for name, parts in (("X", features), ("y", targets)):
        for i, part in enumerate(parts):
            largest = float(np.abs(part).max())
            if largest > most:
                raise DataError(
                    f"{name} of client {i} holds numbers up to {largest:.2g}, whose squares overflow in "
                    f"{np.dtype(dtype)}: scale them to at most {most:.0e}, for example by their standard deviation."
                )


def _check_row_weights(client: int, row_weights: Sequence[ArrayLike], rows: int) -> Array:
    """The weights of one client's rows."""
    if len(row_weights) <= client:
        raise DataError("row_weights must have an array of weights for every client, as y has.")
    weights = finite(f"row_weights of client {client}", row_weights[client])
    if weights.shape != (rows,):
        raise DataError(
            f"row_weights of client {client} has shape {weights.shape} for {rows} rows: give one weight for each row."
        )
    if np.any(weights < 0) or not np.any(weights > 0):
        raise DataError(f"row_weights of client {client}: none may be negative and at least one must be above 0.")
    return weights


def _penalties(l2: ArrayLike, clients: int, dim: int, dtype: DTypeLike) -> Array:
    """l2 of every client, a number or one for each entry of the model."""
    if shape_of("l2", l2) == ():
        return np.full(clients, nonnegative("l2", l2), dtype)
    values = finite("l2", l2)
    if values.shape != (dim,) or np.any(values < 0):
        raise ArgumentError(
            f"l2 has shape {values.shape}: give a finite number of at least 0, or one for each of the model's {dim} "
            "entries."
        )
    return np.tile(values.astype(dtype), (clients, 1))


def _even(X: object, y: object) -> bool:
    """Whether arrays need no change and no complaint; whatever is wrong with others is reported client by client."""
    if not isinstance(X, np.ndarray) or not isinstance(y, np.ndarray) or X.ndim != 3 or X.shape[:2] != y.shape:
        return False
    fits = 0 < X.shape[1] <= BLOCK or (X.shape[1] > 0 and X.shape[1] % BLOCK == 0)
    plain = X.dtype in (np.float32, np.float64) and np.issubdtype(y.dtype, np.number)
    return bool(fits and plain and all_finite(X) and all_finite(y))


def _as_it_is(X: Array, y: Array, l2: ArrayLike, reduction: str, outputs: int) -> Sheet:
    """Clients of equal length without a copy of their features, so that a memory-mapped file stays on disk."""
    _check_sizes(X, y, X.dtype)
    clients, rows, features = X.shape
    weight = np.broadcast_to(np.asarray(1 / rows if reduction == "mean" else 1, X.dtype), y.shape)
    counts = np.full(clients, rows, np.int32)
    stacked: Any = (X, np.asarray(y, X.dtype), weight, counts, _penalties(l2, clients, features * outputs, X.dtype))
    return Sheet(*stacked)


def sum_over_rows(part: Callable[..., T], sheet: Sheet | PackedSheet, *models: Vector) -> T:
    """part(rows, *models) of all of a client's rows, for a `part` that sums over rows.

    On a CPU it goes block by block as far as the client's own rows go, so that padding costs a short client nothing
    where clients take turns. A GPU takes all rows at once.
    """
    if isinstance(sheet, PackedSheet):

        def of_block(block: PyTree, *models: Vector) -> T:
            (X, y), weight = block
            return part(RowPart(X, y, weight), *models)

        return sum_over_packed(of_block, sheet.blocks, *models)
    rows = sheet.X.shape[0]
    if rows <= BLOCK or rows % BLOCK or jax.default_backend() != "cpu":
        return part(RowPart(sheet.X, sheet.y, sheet.weight), *models)

    def block(number: Scalar | int) -> T:
        take = partial(jax.lax.dynamic_slice_in_dim, start_index=number * BLOCK, slice_size=BLOCK)
        return part(RowPart(take(sheet.X), take(sheet.y), take(sheet.weight)), *models)

    used = (sheet.length + (BLOCK - 1)) // BLOCK
    nothing = jax.tree.map(lambda part: jnp.zeros(part.shape, part.dtype), jax.eval_shape(block, 0))
    total: T = jax.lax.fori_loop(0, used, lambda number, sums: jax.tree.map(jnp.add, sums, block(number)), nothing)
    return total


def add_penalty(fit: Matrix, sheet: Sheet | PackedSheet) -> Matrix:
    """The Hessian of f_i, from that of its sum over rows."""
    return fit + jnp.diag(jnp.broadcast_to(sheet.l2, fit.shape[:1]))


def _without_pandas(parts: object) -> Any:
    return parts.to_numpy() if hasattr(parts, "to_numpy") else parts


def _check_clients(name: str, parts: Any) -> None:
    """Refuse what is neither an array with an axis of clients nor a list with an entry for each."""
    listed = isinstance(parts, list | tuple) or (
        hasattr(parts, "ndim") and hasattr(parts, "__array__") and parts.ndim > 0
    )
    if not listed or (len(parts) and _axes(parts[0]) == 0):
        raise DataError(
            f"{name} = {shown(parts)} is not allowed: give an array with one more axis, the clients', or a list."
        )


def _axes(part: ArrayLike) -> int:
    """The number of axes of one client's part, two where it is sparse or its rows differ in length."""
    try:
        return 2 if is_sparse(part) else np.ndim(part)
    except ValueError:
        return 2


def dense(X: Any) -> Any:
    """The clients' rows as dense arrays; a sparse client is written out, unless all of them would be too large."""
    if not any(is_sparse(part) for part in X):
        return X
    size = len(X) * max(part.shape[0] for part in X) * max(part.shape[-1] for part in X)
    if size > LARGEST:
        raise DataError(
            f"X is sparse and would take {size:,} entries dense, each client padded to the longest; {LARGEST:,} are "
            "allowed: use fewer features, fewer clients, or clients of more equal size."
        )
    return [part.toarray() if is_sparse(part) else part for part in X]


def count_rows(sheet: Sheet) -> tuple[Scalar, int]:
    """n_i, and the rows there is room for."""
    return sheet.length, sheet.X.shape[0]


def pick_rows(sheet: Sheet, picked: jax.Array, share: Vector | None) -> Sheet:
    """The rows with these numbers, which stand for all: each for its share, or for as much as any other."""
    size = len(picked)
    scale = sheet.length.astype(sheet.X.dtype) * (1 / size if share is None else share)
    return Sheet(sheet.X[picked], sheet.y[picked], sheet.weight[picked] * scale, jnp.int32(size), sheet.l2)


def drawable_rows(
    sheet: Sheet, loss: Callable[[Sheet, Vector], Scalar], grad: Callable[[Sheet, Vector], Vector]
) -> Rows:
    """A problem's rows for mini-batches, from its loss and its gradient over any of them."""
    return Rows(sheet, np.asarray(sheet.length), count_rows, pick_rows, RowSlope(loss, grad))


@dataclass(frozen=True)  # equal functions give equal ones, so that nothing compiles twice
class RowSlope:
    """Loss and gradient over a batch in one function, of those that draw nothing."""

    loss: Callable[[Data, Vector], Scalar]
    grad: Callable[[Data, Vector], Vector]

    def __call__(self, batch: Data, x: Vector, key: Key) -> Slope:
        return Slope(self.grad(batch, x), self.loss(batch, x))


def largest_eigenvalues(sheet: Sheet) -> Array:
    """λ_max(Σ_j weight_j a_j a_jᵀ) of every client."""
    scaled = np.asarray(sheet.X) * np.sqrt(sheet.weight)[..., None]
    if scaled.shape[1] >= scaled.shape[2]:
        gram = np.einsum("inj,ink->ijk", scaled, scaled, optimize=True)
    else:
        gram = np.einsum("inj,ikj->ink", scaled, scaled, optimize=True)
    return np.asarray(np.linalg.eigvalsh(gram)[:, -1])
