"""Mini-batches of a client's rows: drawn one by one with replacement, or as the parts of a pass over all of them."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from fedlin.checks import instance_of, one_of, positive_integer, true_or_false
from fedlin.core import Key, Scalar, Vector
from fedlin.errors import DataError
from fedlin.problems.noise import with_sampling
from fedlin.problems.objective import (
    Data,
    Descended,
    Descent,
    Objective,
    Sampling,
    Slope,
    above,
    begin,
    take_step,
)
from fedlin.problems.problem import Problem

P = TypeVar("P", bound=Problem)
_LOSS = 1  # folded into a step's key, for what the loss draws beside the rows
_LAST = np.uint32(2**32 - 1)  # the highest lot, of rows that are padding
_ORDER = 2**31 - 1  # folded into the key of all steps, for the order of the rows in each pass


@dataclass(frozen=True)
class Batches:
    """How a problem's batches are drawn, fixed before anything is traced; the functions are those of `Rows`."""

    sizes: Callable[[Data], tuple[Scalar | int, int]]
    pick: Callable[[Data, jax.Array, Vector | None], Data]
    slope: Callable[[Data, Vector, Key], Slope]
    full: Callable[[Objective, Data, Data, Vector, Key], Slope] | None  # of a loss that draws, over all rows
    size: int
    last: str = "short"
    masked: bool = False  # whether a batch may hold fewer rows than there is room for

    def at(self, rows: Data, picked: jax.Array, share: Vector | None, x: Vector, key: Key) -> Slope:
        """The slope at x over the rows with these numbers."""
        return self.slope(self.pick(rows, picked, share), x, jax.random.fold_in(key, _LOSS))


def minibatch(problem: P, size: int, *, replace: bool = True, last: str = "short") -> P:
    """Every gradient a client takes is over `size` of its rows.

    Drawn with replacement, each batch by itself, it is an unbiased estimate. With `replace=False` the local steps of a
    round go through the client's rows in a random order, and through a new order when all have had their turn: as many
    steps as `fedlin.epochs(problem, 1)` says are one pass over the data.

    Args:
        problem: the problem, with exact gradients over rows.
        size: rows of a batch.
        replace: whether batches are drawn with replacement.
        last: without replacement, what becomes of rows that do not fill a batch at the end of a pass: "short" takes
            the mean over those that are left, "drop" leaves them out of this pass.

    Returns:
        The same problem with gradients over mini-batches.

    >>> import fedlin
    >>> from fedlin.problems.regression import least_squares
    >>> problem = minibatch(least_squares(clients=2, dim=3, samples=50), 8, replace=False, last="drop")
    >>> fedlin.epochs(problem, 2).tolist()
    [12, 12]
    """
    rows = instance_of("problem", problem, Problem, "a fedlin Problem").rows()
    size = positive_integer("size", size)
    one_of("last", last, ("short", "drop"))
    true_or_false("replace", replace)
    lengths = np.asarray(rows.lengths)
    if not replace and last == "drop" and lengths.min() < size:
        raise DataError(
            f"client {int(lengths.argmin())} has {lengths.min()} rows and size = {size}: "
            f'with last="drop" it would take no step. Give size at most {lengths.min()}, or last="short".'
        )
    if not replace:
        size = min(size, int(lengths.max()))
    full = None if rows.sampling is None else rows.sampling.full
    if problem.sampling is not None and problem.sampling == rows.sampling:  # batches take the place of all rows
        problem = copy.copy(problem)
        problem.sampling = None
    masked = not replace and last == "short" and bool(np.any(lengths % size))
    batches = Batches(rows.sizes, rows.pick, rows.slope, full, size, last, masked)
    noise = None if rows.data is problem.data else rows.data
    return with_sampling(problem, _with_replacement(batches) if replace else _in_passes(batches), noise)


def _own(data: Data, noise: Data) -> Data:
    """Where a client's rows are: what the problem keeps for the oracle, or its data."""
    return data if noise is None else noise


@cache
def _with_replacement(batches: Batches) -> Sampling:
    def slope(objective: Objective, data: Data, noise: Data, x: Vector, key: Key) -> Slope:
        rows = _own(data, noise)
        picked = jax.random.randint(key, (batches.size,), 0, batches.sizes(rows)[0])
        return batches.at(rows, picked, None, x, key)

    return Sampling(slope, f"minibatch({batches.size})", batches.size, full=batches.full)


@cache
def _in_passes(batches: Batches) -> Sampling:
    size = batches.size

    def shuffle(rows: Data, key: Key) -> jax.Array:
        """The numbers of the client's rows in random order, then those that are padding.

        Each row's lot is drawn by its number alone, so that padding changes nothing.
        """
        count, room = batches.sizes(rows)
        numbers = jnp.arange(room, dtype=jnp.int32)
        lots = jax.vmap(lambda number: jax.random.bits(jax.random.fold_in(key, number), dtype=jnp.uint32))(numbers)
        return jnp.argsort(jnp.where(numbers < count, lots, _LAST))

    def take(rows: Data, order: jax.Array, batch: Scalar | int, x: Vector) -> tuple[jax.Array, Vector | None]:
        """The numbers of a batch's rows and, where batches may be short, the share of each."""
        count, room = batches.sizes(rows)
        places = batch * size + jnp.arange(size, dtype=jnp.int32)
        picked = order[jnp.minimum(places, room - 1)]
        if not batches.masked:
            return picked, None
        here = (places < count).astype(x.dtype)
        return picked, here / jnp.sum(here)

    def slope(objective: Objective, data: Data, noise: Data, x: Vector, key: Key) -> Slope:
        rows = _own(data, noise)
        picked, share = take(rows, shuffle(rows, key), 0, x)
        return batches.at(rows, picked, share, x, key)

    def descend(
        objective: Objective, data: Data, noise: Data, work: Descent, anchor: Vector | None, key: Key
    ) -> Descended:
        rows = _own(data, noise)
        count = batches.sizes(rows)[0]
        in_a_pass = count // size if batches.last == "drop" else (count + size - 1) // size

        def go_through(number: Scalar, state: Descended) -> Descended:
            order = shuffle(rows, jax.random.fold_in(jax.random.fold_in(key, _ORDER), number))
            first = number * in_a_pass

            def step(batch: Scalar, state: Descended) -> Descended:
                picked, share = take(rows, order, batch, state.x)
                own = jax.random.fold_in(key, first + batch)
                found = above(lambda x: batches.at(rows, picked, share, x, own), state.x, anchor)
                return take_step(state, found, work)

            passed: Descended = jax.lax.fori_loop(0, jnp.minimum(in_a_pass, work.steps - first), step, state)
            return passed

        passes = (work.steps + in_a_pass - 1) // in_a_pass
        done: Descended = jax.lax.fori_loop(0, passes, go_through, begin(work))
        return done

    name = f"minibatch({size}, replace=False, last={batches.last!r})"
    return Sampling(slope, name, size, batches.last, descend, full=batches.full)
