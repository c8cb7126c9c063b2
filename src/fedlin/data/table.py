"""What a reader returns: features, labels and, where the data tell, whose row it is."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedlin.checks import is_sparse
from fedlin.core import Array
from fedlin.errors import DataError


class Table(NamedTuple):
    """Rows of one data set.

    Attributes:
        X: The features, (n, d), float64; dense or CSR, as the file was.
        y: The labels, (n,): float64, or words where the labels are words.
        clients: The name of the client that holds each row, (n,).

    >>> table = Table(np.eye(2), np.array([1.0, -1.0]), np.array(["north", "south"]))
    >>> table.X.shape, table.clients.tolist()
    ((2, 2), ['north', 'south'])
    """

    X: Any
    y: Array
    clients: Array | None = None


def _csr(X: Any) -> Any:
    from scipy.sparse import csr_array  # takes long to import

    return csr_array(X, dtype=np.float64)


def checked(source: object, X: Any, y: Any, clients: Any = None, columns: Sequence[str] | None = None) -> Table:
    """A table of finite features with a label for every row; `source` and `columns` name what is wrong."""
    X = X if is_sparse(X) else np.asarray(X)
    if X.ndim != 2 or 0 in X.shape:
        raise DataError(f"{source}: X has shape {X.shape}; give at least one row and one feature, shape (n, d).")
    try:
        X = _csr(X) if is_sparse(X) else X.astype(np.float64)
    except (TypeError, ValueError) as cause:
        raise DataError(f"{source}: X is not an array of numbers ({cause}); encode words as numbers first.") from cause
    rows, places = _not_finite(X)
    if len(rows):
        column = f"column {places[0]}" if columns is None else f"column {columns[places[0]]!r}"
        raise DataError(
            f"{source}: row {rows[0]}, {column} is NaN or infinite, as are {len(rows)} entries in all (rows are "
            "counted from 0): clean or impute the data first."
        )
    labels = _column(source, "y", y, X.shape[0])
    return Table(X, labels, None if clients is None else _column(source, "clients", clients, X.shape[0]))


def _not_finite(X: Any) -> tuple[Array, Array]:
    if is_sparse(X):
        entries = X.tocoo()
        bad = ~np.isfinite(entries.data)
        return entries.row[bad], entries.col[bad]
    rows, places = np.nonzero(~np.isfinite(X))
    return rows, places


def _column(source: object, name: str, values: object, rows: int) -> Array:
    """Numbers as float64, all else as words; every row must have one."""
    column = np.asarray(values)
    if column.shape != (rows,):
        raise DataError(f"{source}: {name} has shape {column.shape} for {rows} rows of X; give one entry a row.")
    if column.dtype.kind in "biuf":
        missing = ~np.isfinite(column.astype(np.float64))
    else:
        missing = np.array([value is None or value != value for value in column.tolist()])  # NaN is not itself
    if missing.any():
        raise DataError(
            f"{source}: row {int(np.argmax(missing))} has no {name}, as have {int(missing.sum())} rows in all (rows "
            "are counted from 0): fill them in, or leave these rows out."
        )
    if name == "clients":
        return column if column.dtype.kind in "iu" else column.astype(str)  # numbers keep their order
    return column.astype(np.float64 if column.dtype.kind in "biuf" else str)
