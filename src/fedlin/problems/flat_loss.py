"""A user's loss over any pytree of parameters as functions of one flat vector, which is what methods see."""

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import PyTreeDef

from fedlin.core import Key, PyTree, Scalar, Vector
from fedlin.errors import ArgumentError
from fedlin.problems.fast_convolutions import with_fast_convolutions
from fedlin.problems.objective import Data, Objective, Sampling, Slope
from fedlin.problems.packed_rows import PackedRows, sum_over_packed

Params = PyTree
Batch = PyTree
Parts = tuple[jax.Array, ...]  # the arrays of the parameters in the precision of a flat model, in its order
Loss = Callable[..., Scalar]  # (params, batch) or (params, batch, key)
PRECISIONS = ("highest", "tf32", "bfloat16")
_MEASURING = 0  # seed of the key with which a loss that always draws is measured


class Leaf(NamedTuple):
    """An array of the parameters."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class Frozen:
    """Arrays of the parameters that stay as they are, each with its place among all; equal only to itself."""

    def __init__(self, arrays: dict[int, jax.Array]) -> None:
        self.arrays = arrays


class LossForm(NamedTuple):
    """Everything that fixes the functions of a loss; equal ones share their programs."""

    loss: Loss
    tree: PyTreeDef  # the structure of the parameters
    leaves: tuple[Leaf, ...]  # those that are learned
    padded: bool  # whether a client's data is its rows, some of them padding, and their weights
    draws: bool = False  # whether the loss takes a key
    quiet: bool = True  # whether it can be evaluated without one
    precision: str | None = None
    frozen: "Frozen | None" = None
    by_row: bool = False  # whether the loss is one number for each row of a batch


class FlatLoss(NamedTuple):
    """The functions of a loss; a batch is rows, and their shares where they do not all count alike."""

    objective: Objective
    unravel: Callable[[Vector], Params]
    split: Callable[[Vector], Parts]
    join: Callable[[Parts], Vector]
    sizes: Callable[[Data], tuple[Scalar | int, int]]
    pick: Callable[[Data, jax.Array, Vector | None], tuple[Batch, Vector | None]]
    slope: Callable[[tuple[Batch, Vector | None], Parts, Key], Slope]
    sampling: Sampling | None  # over all rows, of a loss that draws


def takes_key(loss: Loss) -> tuple[bool, bool]:
    """Whether the loss draws, and whether it can do without: from its third argument, if it has one.

    >>> takes_key(lambda params, batch: 0), takes_key(lambda params, batch, key: 0)
    ((False, True), (True, False))
    >>> takes_key(lambda params, batch, key=None: 0), takes_key(lambda params, batch, power=2: 0)
    ((True, True), (False, True))
    """
    try:
        parameters = list(inspect.signature(loss).parameters.values())
    except (TypeError, ValueError):  # of some callables nothing is known
        return False, True
    by_place = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p for p in by_place if p.default is p.empty]
    if len(needed) > 3 or any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
        names = ", ".join(p.name for p in parameters)
        raise ArgumentError(f"the loss takes ({names}): write it as loss(params, batch) or loss(params, batch, key).")
    optional = len(by_place) > 2 and by_place[2].name == "key" and by_place[2].default is None
    return len(needed) == 3 or optional, len(needed) < 3


@cache
def flat_loss(form: LossForm) -> FlatLoss:
    """The functions, made once for each form, so that two problems with the same loss share one compiled program."""
    ends = np.cumsum([int(np.prod(leaf.shape)) for leaf in form.leaves])

    def split(x: Vector) -> Parts:
        return tuple(part.reshape(leaf.shape) for part, leaf in zip(jnp.split(x, ends[:-1]), form.leaves, strict=True))

    def join(parts: Parts) -> Vector:
        return jnp.concatenate([part.ravel() for part in parts])

    fixed = {} if form.frozen is None else form.frozen.arrays

    def restore(parts: Parts) -> Params:
        learned = iter([part.astype(leaf.dtype) for part, leaf in zip(parts, form.leaves, strict=True)])
        count = len(parts) + len(fixed)
        leaves = [fixed[place] if place in fixed else next(learned) for place in range(count)]
        return jax.tree.unflatten(form.tree, leaves)

    def evaluate(params: Params, rows: Batch, key: Key | None) -> Scalar:
        if form.precision == "bfloat16":
            params, rows = _shortened((params, rows))
        with _products(form.precision):
            return form.loss(params, rows) if key is None else form.loss(params, rows, key)

    def batch_loss(parts: Parts, batch: tuple[Batch, Vector | None], key: Key | None) -> Scalar:
        rows, share = batch
        params, dtype = restore(parts), parts[0].dtype
        if share is None:
            return jnp.mean(evaluate(params, rows, key).astype(dtype))
        if form.by_row:  # a mask over the rows' losses: padding costs no more than a row
            return _masked_sum(share, evaluate(params, rows, key).astype(dtype))

        def of_row(row: Batch, number: jax.Array) -> Scalar:
            own = None if key is None else jax.random.fold_in(key, number)
            return evaluate(params, jax.tree.map(lambda leaf: leaf[None], row), own)

        values = jax.vmap(of_row)(rows, jnp.arange(len(share), dtype=jnp.int32)).astype(dtype)
        return _masked_sum(share, values)

    def whole(data: Data) -> tuple[Batch, Vector | None]:
        return data if form.padded else (data, None)

    def measured(parts: Parts, data: Data) -> Scalar:
        return batch_loss(parts, whole(data), None if form.quiet else jax.random.key(_MEASURING))

    def total(parts: Parts, data: Data, weights: Vector) -> Scalar:
        if isinstance(data, PackedRows):
            return weights[data.owner] @ jax.vmap(lambda block: batch_loss(parts, block, None))(data.rows)
        return weights @ jax.vmap(lambda client: measured(parts, client))(data)

    # Of clients that share a model the convolutions are merged first, and then looked at.
    at_model, at_batch, sums = (
        jax.value_and_grad(with_fast_convolutions(function)) for function in (measured, batch_loss, total)
    )

    def loss_of_client(data: Data, x: Vector) -> Scalar:
        if isinstance(data, PackedRows):
            return sum_over_packed(lambda block, *parts: batch_loss(parts, block, None), data, *split(x))
        return measured(split(x), data)

    def slope_of_client(data: Data, x: Vector) -> Slope:
        if isinstance(data, PackedRows):
            value, grads = sum_over_packed(lambda block, *parts: at_batch(parts, block, None), data, *split(x))
            return Slope(join(grads), value)
        value, grads = at_model(split(x), data)
        return Slope(join(grads), value)

    def total_slope(data: Data, weights: Vector, x: Vector) -> tuple[Scalar, Vector]:
        value, grads = sums(split(x), data, weights)
        return value, join(grads)

    def slope(batch: tuple[Batch, Vector | None], parts: Parts, key: Key) -> Slope:
        value, grads = at_batch(parts, batch, key if form.draws else None)
        return Slope(grads, value)

    def sizes(data: Data) -> tuple[Scalar | int, int]:
        rows, share = whole(data)
        room = len(jax.tree.leaves(rows)[0])
        return room if share is None else jnp.sum(share > 0, dtype=jnp.int32), room

    def pick(data: Data, picked: jax.Array, share: Vector | None) -> tuple[Batch, Vector | None]:
        return jax.tree.map(lambda leaf: leaf[picked], whole(data)[0]), share

    def over_all_rows(objective: Objective, data: Data, noise: Data, x: Vector, key: Key) -> Slope:
        value, grads = at_batch(split(x), whole(data), key)
        return Slope(join(grads), value)

    return FlatLoss(
        Objective(
            loss_of_client,
            lambda data, x: slope_of_client(data, x).grad,
            slope=slope_of_client,
            total=total_slope,
            origin=(__name__, "objective_of", form),
        ),
        lambda x: restore(split(x)),
        split,
        join,
        sizes,
        pick,
        slope,
        Sampling(over_all_rows, "drawn", full=over_all_rows, origin=(__name__, "sampling_of", form))
        if form.draws
        else None,
    )


def _masked_sum(share: Vector, values: Vector) -> Scalar:
    return jnp.sum(share.astype(values.dtype) * jnp.where(share > 0, values, 0))


def objective_of(form: LossForm) -> Objective:
    """The functions of a loss that methods see."""
    return flat_loss(form).objective


def sampling_of(form: LossForm) -> Sampling | None:
    """How a loss draws, if it does."""
    return flat_loss(form).sampling


def _products(precision: str | None) -> AbstractContextManager[None]:
    """A context in which matrix products and convolutions have this precision."""
    if precision is None or precision == "bfloat16":
        return nullcontext()
    context: AbstractContextManager[None] = jax.default_matmul_precision(
        "tensorfloat32" if precision == "tf32" else "highest"
    )
    return context


def _shortened(tree: PyTree) -> PyTree:
    """Floats as bfloat16; what is learned stays as it is, and so do the gradients' sums."""
    return jax.tree.map(
        lambda leaf: leaf.astype(jnp.bfloat16) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, tree
    )
