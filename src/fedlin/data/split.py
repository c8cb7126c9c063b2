"""How rows are split among clients: evenly, by label, by size, or as they came. The same seed gives the same split."""

import re
from collections.abc import Sequence
from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike

from fedlin.checks import fits_memory, positive, positive_integer, random_seed, refuse_missing, shape_of
from fedlin.core import Array
from fedlin.data.labels import labels_of_rows
from fedlin.data.partition import Partition
from fedlin.errors import DataError


def iid(y: ArrayLike | int, clients: int, *, seed: int = 0) -> Partition:
    """Rows shuffled and split into equal parts.

    Args:
        y: The labels, or the number of rows.
        clients: How many clients.
        seed: What decides every draw.

    Returns:
        Which rows each client has.

    >>> [part.tolist() for part in iid(6, 2).indices]
    [[2, 3, 5], [0, 1, 4]]
    """
    rows, clients = _sizes(y, clients)
    return _sorted(np.array_split(np.random.default_rng(random_seed(seed)).permutation(rows), clients))


def dirichlet(y: ArrayLike, clients: int, alpha: float, *, seed: int = 0) -> Partition:
    """Each label's rows shared out in proportions drawn from Dirichlet(α, ..., α); small α means clients of few labels.

    The split of Yurochkin et al. (2019). A client that draws no rows is given one by the largest client.

    Args:
        y: The label of every row.
        clients: How many clients.
        alpha: α > 0.
        seed: What decides every draw.

    Returns:
        Which rows each client has.

    >>> dirichlet([0, 0, 0, 1, 1, 1] * 5, 3, 0.1, seed=1).table([0, 0, 0, 1, 1, 1] * 5)
      client  rows   0   1
    0      0    14   0  14
    1      1     1   0   1
    2      2    15  15   0
    """
    labels = labels_of_rows(y)
    _, clients = _sizes(labels, clients)
    alpha, draw = positive("alpha", alpha), np.random.default_rng(random_seed(seed))
    parts: list[list[Array]] = [[] for _ in range(clients)]
    for value in np.unique(labels):
        rows_of_label = draw.permutation(np.flatnonzero(labels == value))
        for i, share in enumerate(_by_shares(rows_of_label, draw.dirichlet(np.full(clients, alpha)))):
            parts[i].append(share)
    return _sorted(_none_empty([np.concatenate(part) for part in parts]))


def shards(y: ArrayLike, clients: int, labels: int, *, seed: int = 0) -> Partition:
    """Rows sorted by label and cut into equal shards, `labels` of them for each client.

    The split of McMahan et al. (2017). A shard that lies across the border of two labels holds both.

    Args:
        y: The label of every row.
        clients: How many clients.
        labels: How many shards each client gets.
        seed: What decides every draw.

    Returns:
        Which rows each client has.

    >>> shards([0, 0, 1, 1, 2, 2, 3, 3], 2, labels=2, seed=1).table([0, 0, 1, 1, 2, 2, 3, 3])
      client  rows  0  1  2  3
    0      0     4  0  0  2  2
    1      1     4  2  2  0  0
    """
    labels_of = labels_of_rows(y)
    rows, clients = _sizes(labels_of, clients)
    each = positive_integer("labels", labels)
    if each * clients > rows:
        raise DataError(
            f"{clients} clients with {each} shards each need at least {each * clients} rows and there are {rows}: "
            "ask for fewer clients or fewer labels."
        )
    draw = np.random.default_rng(random_seed(seed))
    shuffled = draw.permutation(rows)  # so that rows of one label come in random order
    ordered = shuffled[np.argsort(labels_of[shuffled], kind="stable")]
    cut = np.array_split(ordered, clients * each)
    assigned = draw.permutation(len(cut)).reshape(clients, each)
    return _sorted([np.concatenate([cut[shard] for shard in own]) for own in assigned])


def quantity(n: ArrayLike | int, clients: int, alpha: float, *, seed: int = 0) -> Partition:
    """Clients alike in their labels and unlike in size: shares of the rows drawn from Dirichlet(α, ..., α).

    A client that draws no rows is given one by the largest client.

    Args:
        n: The number of rows, or their labels.
        clients: How many clients.
        alpha: α > 0; small α means clients of very different size.
        seed: What decides every draw.

    Returns:
        Which rows each client has.

    >>> quantity(100, 4, 0.5, seed=1)
    <Partition: 100 rows, 4 clients with 1 to 52 rows each>
    """
    rows, clients = _sizes(n, clients)
    alpha, draw = positive("alpha", alpha), np.random.default_rng(random_seed(seed))
    return _sorted(_none_empty(_by_shares(draw.permutation(rows), draw.dirichlet(np.full(clients, alpha)))))


def by_column(names: ArrayLike | None) -> Partition:
    """One client for every name in a column, in sorted order: the split the data came with.

    Args:
        names: For every row the name of its client.

    Returns:
        Which rows each client has, and the clients' names.

    >>> part = by_column(["north", "south", "north"])
    >>> part.names, [rows.tolist() for rows in part.indices]
    (('north', 'south'), [[0, 2], [1]])
    """
    if names is None:
        raise DataError("names is None: the data tell no clients. Name the column that does, or deal the rows by iid.")
    shape_of("names", names, DataError)
    column = names if isinstance(names, np.ndarray) else np.asarray(names, dtype=object)
    if column.ndim != 1 or column.size == 0:
        raise DataError(f"names has shape {column.shape}: give the name of a client for every row, shape (n,).")
    refuse_missing(column, "client", "fill in whose they are")
    if column.dtype.kind == "O":  # numbers keep their order; text, and text among numbers, is sorted as text
        numbers = all(isinstance(name, Real) for name in column)
        column = np.asarray(column.tolist()) if numbers else column.astype(str)
    values, codes = np.unique(column, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(codes))[:-1])
    clients = sorted(zip(map(str, values), parts, strict=True), key=lambda client: _natural(client[0]))
    return Partition([rows for _, rows in clients], [name for name, _ in clients])


def _natural(name: str) -> list[tuple[int, int, str]]:
    """A key that sorts text by the numbers in it: site 2 comes before site 10."""
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def _sizes(y: object, clients: int) -> tuple[int, int]:
    clients = positive_integer("clients", clients)
    if isinstance(y, Integral):
        rows = positive_integer("n", y)
        fits_memory(f"{rows} rows", 4 * rows)
    else:
        shape = shape_of("y", y, DataError)
        if len(shape) != 1:
            raise DataError(f"y has shape {shape}: give one label a row, shape (n,).")
        rows = shape[0]
    if clients > rows:
        raise DataError(f"{clients} clients cannot share {rows} rows: every client needs at least one.")
    return rows, clients


def _by_shares(rows: Array, shares: Array) -> list[Array]:
    """Rows cut where the summed shares say."""
    cuts = np.round(np.cumsum(shares)[:-1] * len(rows)).astype(int)
    return np.split(rows, cuts)


def _none_empty(parts: list[Array]) -> list[Array]:
    """Each client without rows is given the last row of the one that has most at that time."""
    sizes = np.array([len(part) for part in parts])
    for i in np.flatnonzero(sizes == 0):
        richest = int(np.argmax(sizes))
        parts[i], parts[richest] = parts[richest][-1:], parts[richest][:-1]
        sizes[i] = 1
        sizes[richest] -= 1
    return parts


def _sorted(parts: Sequence[Array]) -> Partition:
    return Partition([np.sort(part) for part in parts])
