"""Mini-batches of a client's rows: drawn one by one with replacement, or as the parts of a pass over all of them."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from fedlin.checks import instance_of, one_of, positive_integer, true_or_false
from fedlin.core import Key, Scalar, Vector
from fedlin.errors import DataError
from fedlin.problems.noise import with_sampling
from fedlin.problems.objective import (
    Data,
    Descended,
    Descent,
    Model,
    Objective,
    Sampling,
    Slope,
    above,
    begin,
    repeat_steps,
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
    slope: Callable[[Data, Model, Key], Slope]
    split: Callable[[Vector], Model]
    join: Callable[[Model], Vector]
    full: Callable[[Objective, Data, Data, Vector, Key], Slope] | None  # of a loss that draws, over all rows
    size: int
    last: str | None  # None where batches are drawn with replacement
    masked: bool  # whether a batch may hold fewer rows than there is room for


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
    batches = Batches(
        rows.sizes,
        rows.pick,
        rows.slope,
        rows.split or _as_it_is,
        rows.join or _as_it_is,
        full,
        size,
        None if replace else last,
        masked=not replace and last == "short" and bool(np.any(lengths % size)),
    )
    noise = None if rows.data is problem.data else rows.data
    made = with_sampling(problem, _sampling(batches), noise)
    made.sampler = partial(minibatch, size=size, replace=replace, last=last)
    return made


def _as_it_is(x: Model) -> Model:
    return x


@cache
def _sampling(batches: Batches) -> Sampling:
    size, last = batches.size, batches.last

    def draw(rows: Data, key: Key) -> jax.Array:
        """The numbers of some rows, each drawn from all."""
        return jax.random.randint(key, (size,), 0, batches.sizes(rows)[0])

    def shuffle(rows: Data, key: Key) -> jax.Array:
        """The numbers of the client's rows in random order, then those that are padding.

        Each row's lot is drawn by its number alone, so that padding changes nothing.
        """
        count, room = batches.sizes(rows)
        numbers = jnp.arange(room, dtype=jnp.int32)
        lots = jax.vmap(lambda number: jax.random.bits(jax.random.fold_in(key, number), dtype=jnp.uint32))(numbers)
        return jnp.argsort(jnp.where(numbers < count, lots, _LAST))

    def take(rows: Data, order: jax.Array, batch: Scalar | int, dtype: DTypeLike) -> tuple[jax.Array, Vector | None]:
        """The numbers of a batch's rows and, where batches may be short, the share of each."""
        count, room = batches.sizes(rows)
        places = batch * size + jnp.arange(size, dtype=jnp.int32)
        picked = order[jnp.minimum(places, room - 1)]
        if not batches.masked:
            return picked, None
        here = (places < count).astype(dtype)
        return picked, here / jnp.sum(here)

    def slope_over(rows: Data, picked: jax.Array, share: Vector | None, key: Key) -> Callable[[Model], Slope]:
        batch = batches.pick(rows, picked, share)
        return lambda x: batches.slope(batch, x, jax.random.fold_in(key, _LOSS))

    def flat(at: Callable[[Model], Slope]) -> Callable[[Vector], Slope]:
        """The slope at a flat model, as a flat vector."""

        def slope(x: Vector) -> Slope:
            at_model = at(batches.split(x))
            return Slope(batches.join(at_model.grad), at_model.loss)

        return slope

    def slope(objective: Objective, data: Data, noise: Data, x: Vector, key: Key) -> Slope:
        rows = data if noise is None else noise
        picked, share = (draw(rows, key), None) if last is None else take(rows, shuffle(rows, key), 0, x.dtype)
        return flat(slope_over(rows, picked, share, key))(x)

    def descend(
        objective: Objective, data: Data, noise: Data, work: Descent, anchor: Vector | None, key: Key
    ) -> Descended:
        rows = data if noise is None else noise
        # What changes a gradient knows flat vectors only.
        split, join = (batches.split, batches.join) if work.change is None else (_as_it_is, _as_it_is)
        vectors = {name: getattr(work, name) for name in ("start", "shift", "center")}
        vectors = {name: v if isinstance(v, float | int) else split(jnp.asarray(v)) for name, v in vectors.items()}
        work, anchor = work._replace(**vectors), None if anchor is None else split(anchor)

        def step(state: Descended, picked: jax.Array, share: Vector | None, own: Key) -> Descended:
            at = slope_over(rows, picked, share, own)
            return take_step(state, above(at if work.change is None else flat(at), state.x, anchor), work)

        if last is None:
            drawn = repeat_steps(
                lambda state, own: step(state, draw(rows, own), None, own), begin(work), work.steps, key
            )
            return Descended(join(drawn.x), drawn.losses)

        count = batches.sizes(rows)[0]
        in_a_pass = count // size if last == "drop" else (count + size - 1) // size

        def go_through(number: Scalar, state: Descended) -> Descended:
            order = shuffle(rows, jax.random.fold_in(jax.random.fold_in(key, _ORDER), number))
            first = number * in_a_pass

            def take_batch(batch: Scalar, state: Descended) -> Descended:
                own = jax.random.fold_in(key, first + batch)
                dtype = jax.tree.leaves(state.x)[0].dtype
                return step(state, *take(rows, order, batch, dtype), own)

            passed: Descended = jax.lax.fori_loop(0, jnp.minimum(in_a_pass, work.steps - first), take_batch, state)
            return passed

        passes = (work.steps + in_a_pass - 1) // in_a_pass
        state = jax.lax.fori_loop(0, passes, go_through, begin(work))
        return Descended(join(state.x), state.losses)

    name = f"minibatch({size})" if last is None else f"minibatch({size}, replace=False, last={last!r})"
    return Sampling(slope, name, size, last, descend, full=batches.full)
