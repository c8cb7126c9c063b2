"""Rows of clients of very different length, packed into blocks of equal length, so that padding costs nothing.

A client's rows fill some blocks, the last of them perhaps in part, and lie one block after the other. Sums over a
client's rows are then sums over its blocks: of all clients at once as one product over all blocks and a sum by owner,
of one client alone as a loop over its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from fedlin.core import Array, Scalar
from fedlin.layout import Shared
from fedlin.problems.objective import Data, Model

T = TypeVar("T")
ROWS = 64  # of a block, where a block's sums are small beside its rows
WORTHWHILE = 1.5  # padded rows over packed rows from which packing pays


@partial(jax.tree_util.register_dataclass, data_fields=("rows", "owner", "first", "count"), meta_fields=("clients",))
@dataclass(frozen=True)
class PackedRows:
    """Blocks of rows of all clients, which every client sees, and which of them are a client's own."""

    rows: Data  # arrays (blocks, rows of a block, ...)
    owner: Any  # (blocks,), the client of each, in order
    first: Any  # a client's first block
    count: Any  # how many it has
    clients: int


def pack(rows: Data, weight: Array, lengths: Array, size: int, parts: int = 1) -> PackedRows | None:
    """Padded rows in blocks.

    Args:
        rows: Arrays (m, n, ...), of which client i's first n_i rows count.
        weight: (m, n), how much each row counts.
        lengths: n_i.
        size: Rows of a block.
        parts: How many devices share the clients; each holds its own clients' blocks, and as many as the others.

    Returns:
        The blocks, whose `rows` are (rows, weights) with weight zero for what fills up a block; None where packing
        would save too little.
    """
    clients, longest = weight.shape
    counts = -(-lengths // size)
    each = counts.reshape(parts, -1)
    most = int(each.sum(axis=1).max())
    if clients * longest < WORTHWHILE * most * parts * size:
        return None
    client_of_block = np.repeat(np.arange(clients), counts)
    starts = np.concatenate([np.arange(count) for count in counts]) * size
    owner, start, used = (np.zeros((parts, most), np.intp) for _ in range(3))
    for part, numbers in enumerate(np.split(np.arange(len(client_of_block)), np.cumsum(each.sum(axis=1))[:-1])):
        there = slice(len(numbers))
        # Blocks that fill up a device belong to its last client and weigh nothing.
        owner[part] = (part + 1) * clients // parts - 1
        owner[part, there], start[part, there], used[part, there] = client_of_block[numbers], starts[numbers], 1
    row = start.ravel()[:, None] + np.arange(size)
    owners = owner.ravel()
    counting = (row < lengths[owners][:, None]) & (used.ravel()[:, None] > 0)
    place = owners[:, None], np.minimum(row, longest - 1)
    blocks = jax.tree.map(lambda leaf: leaf[place], rows), np.where(counting, weight[place], 0)
    local = clients // parts  # clients are numbered anew on every device
    first = np.cumsum(each, axis=1) - each
    return PackedRows(
        Shared(blocks),
        Shared((owners % local).astype(np.int32)),
        first.ravel().astype(np.int32),
        counts.astype(np.int32),
        local,
    )


def sum_over_packed(part: Callable[..., T], packed: PackedRows, *models: Model) -> T:
    """Σ part(block, *models) over a client's own blocks; `part` sums over the rows of a block and draws nothing.

    Where clients are taken all at once, all blocks are, each with its owner's models.
    """

    def alone(packed: PackedRows, models: tuple[Model, ...]) -> T:
        def block(number: Scalar) -> T:
            return part(jax.tree.map(lambda leaf: leaf[number], packed.rows), *models)

        nothing = jax.tree.map(lambda sums: jnp.zeros(sums.shape, sums.dtype), jax.eval_shape(block, 0))
        total: T = jax.lax.fori_loop(
            packed.first,
            packed.first + packed.count,
            lambda number, sums: jax.tree.map(jnp.add, sums, block(number)),
            nothing,
        )
        return total

    total = jax.custom_batching.custom_vmap(alone)

    @total.def_vmap
    def together(size: int, batched: Any, packed: PackedRows, models: tuple[Model, ...]) -> Any:
        axes = jax.tree.map(lambda mapped: 0 if mapped else None, batched)
        if batched[0].first and size == packed.clients:
            of_owner = jax.tree.map(lambda leaf, mapped: leaf[packed.owner] if mapped else leaf, models, batched[1])
            each = jax.vmap(part, in_axes=(0, *axes[1]))(packed.rows, *of_owner)
            add = partial(
                jax.ops.segment_sum, segment_ids=packed.owner, num_segments=packed.clients, indices_are_sorted=True
            )
            sums = jax.tree.map(add, each)
        else:
            sums = jax.vmap(alone, in_axes=axes)(packed, models)
        return sums, jax.tree.map(lambda _: True, sums)

    return total(packed, models)  # type: ignore[no-any-return]
