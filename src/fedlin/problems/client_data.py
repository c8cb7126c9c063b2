"""Clients' data as a user gives it, stacked along one axis of clients and checked on the way."""

from collections.abc import Sequence

import jax
import numpy as np

from fedlin.checks import all_finite, shape_of
from fedlin.core import Array
from fedlin.errors import DataError
from fedlin.problems.objective import Data


def stack_clients(data: Data) -> tuple[Data, bool]:
    """Arrays with a leading client axis, and whether they are padded.

    `data` is a pytree of such arrays, or a list with one pytree a client. Where clients differ in length, all are
    padded to the longest with copies of their first row, and the result is (rows, weights): 1/n_i, and 0 for padding.
    """
    if isinstance(data, list | tuple) and not hasattr(data, "_fields"):
        stacked, padded = _stack(list(data))
    else:
        _check_stacked(data)
        stacked, padded = data, False
    for path, leaf in jax.tree_util.tree_leaves_with_path(stacked[0] if padded else stacked):
        array, name = np.asarray(leaf), jax.tree_util.keystr(path)
        if array.dtype.kind not in "biufcV":  # V: what ml_dtypes adds
            raise DataError(f"data{name} holds {array.dtype}: give arrays of numbers, words encoded as such.")
        if np.issubdtype(array.dtype, np.floating) and not all_finite(array):
            raise DataError(f"data{name} has entries that are NaN or infinite: clean or impute it first.")
    return stacked, padded


def count_rows_of(batch: Data) -> int:
    """How many rows the arrays of a client have."""
    lengths = {int(np.shape(leaf)[0]) for leaf in jax.tree.leaves(batch) if np.ndim(leaf) > 0}
    if len(lengths) != 1:
        raise DataError(f"the arrays of a client have {sorted(lengths)} rows: all must have the same number.")
    return lengths.pop()


def _check_stacked(data: Data) -> None:
    lengths = {shape_of("data", leaf, DataError)[:1] for leaf in jax.tree.leaves(data)}
    if len(lengths) != 1 or lengths <= {(), (0,)}:
        raise DataError(
            f"data has arrays of leading sizes {sorted(lengths)}: stack all of them along one client axis, of at least "
            "one client."
        )


def _stack(clients: Sequence[Data]) -> tuple[Data, bool]:
    if not clients:
        raise DataError("data has no clients: give at least one.")
    structures = {jax.tree.structure(client) for client in clients}
    if len(structures) != 1:
        raise DataError("clients differ in the structure of their data: give every client the same arrays.")
    inner = {tuple(np.shape(leaf)[1:] for leaf in jax.tree.leaves(client)) for client in clients}
    if len(inner) != 1:
        raise DataError(f"clients differ in the shape of a row ({sorted(inner)[:2]}): all must share one.")
    counts = [count_rows_of(client) for client in clients]
    if min(counts) == 0:
        raise DataError(f"client {counts.index(0)} has no rows: leave it out, or give it at least one.")
    longest = max(counts)

    def pad(*parts: Array) -> Array:
        return np.stack(
            [np.concatenate([p, np.repeat(p[:1], longest - len(p), axis=0)]) for p in map(np.asarray, parts)]
        )

    stacked = jax.tree.map(pad, *clients)
    if min(counts) == longest:
        return stacked, False
    weight = np.array([[1 / n] * n + [0.0] * (longest - n) for n in counts])
    return (stacked, weight), True
