"""How a function of one client is applied to all of them in one program.

Step-major takes every client's first step, then every client's second, and waits for the largest τ_i. Client-major
takes all steps of one client while its data is in cache, and lets every client stop at its own τ_i. In between
lie blocks of clients. On a GPU step-major is right; on a CPU the rule below was read off `benchmarks/`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from fedlin.checks import one_of
from fedlin.core import Array, PyTree, Vector

T = TypeVar("T")
NEAR = 2**20  # bytes a core keeps close (its L2 cache)
SHARED = 2**25  # bytes the cores keep together (their L3 cache)
WORTHWHILE = 2**15  # bytes of a client from which one step outweighs what a loop over clients costs
UNEVEN = 1.5  # largest τ_i over mean τ_i from which waiting for the largest costs too much

CLIENTS = "clients"  # the axis of a mesh
SHARED_OUT = P(CLIENTS)  # type: ignore[no-untyped-call]  # each device holds its own clients' part
EVERYWHERE = P()  # type: ignore[no-untyped-call]  # each device holds the whole
RUNS = "runs"  # the axis of a mesh that shares out runs instead
BY_RUN = P(RUNS)  # type: ignore[no-untyped-call]
BY_ROUND_AND_RUN = P(None, RUNS)  # type: ignore[no-untyped-call]


@jax.tree_util.register_pytree_node_class
class Shared:
    """Data that every client sees whole, among what is each client's own."""

    def __init__(self, tree: PyTree) -> None:
        self.tree = tree

    def tree_flatten(self) -> tuple[tuple[PyTree], None]:
        """For JAX."""
        return (self.tree,), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[PyTree]) -> "Shared":
        """For JAX."""
        return cls(*children)


def _is_shared(node: object) -> bool:
    return isinstance(node, Shared)


def open_shared(tree: PyTree) -> PyTree:
    """A tree whose shared parts are as a client sees them."""
    return jax.tree.map(lambda node: node.tree if _is_shared(node) else node, tree, is_leaf=_is_shared)


def each_client(function: Callable[..., PyTree], block: int | None, mesh: Mesh | None = None) -> Callable[..., PyTree]:
    """`function` over the leading axis of its arguments, `block` clients at a time; None means all at once.

    The devices of `mesh`, where there are several, each take an equal share of the clients.
    """

    def here(*arguments: PyTree) -> PyTree:
        nodes, structure = jax.tree.flatten(arguments, is_leaf=_is_shared)
        own = [node for node in nodes if not _is_shared(node)]

        def one(leaves: list[jax.Array]) -> PyTree:
            left = iter(leaves)
            whole = [node.tree if _is_shared(node) else next(left) for node in nodes]
            return function(*jax.tree.unflatten(structure, whole))

        if block is None:
            return jax.vmap(one)(own)
        return jax.lax.map(one, own, batch_size=block if block > 1 else None)

    if mesh is None:
        return here

    def everywhere(*arguments: PyTree) -> PyTree:
        clients = len(jax.tree.leaves(arguments)[0])
        if clients % mesh.size:  # a cohort that cannot be shared out equally
            return here(*arguments)
        return jax.shard_map(here, mesh=mesh, in_specs=SHARED_OUT, out_specs=SHARED_OUT, check_vma=False)(*arguments)

    return everywhere


def sum_over_clients(weighted: Sequence[tuple[Vector, PyTree]], mesh: Mesh | None = None) -> list[PyTree]:
    """Σ w_i v_i for every leaf v of the tree in each pair (w, tree); the leading axis is the clients.

    Devices that share the clients make one all-reduce for all the pairs: it costs far more than what it carries.
    """

    def here(weighted: Sequence[tuple[Vector, PyTree]]) -> list[PyTree]:
        return [jax.tree.map(partial(jnp.tensordot, weights, axes=1), tree) for weights, tree in weighted]

    def everywhere(weighted: Sequence[tuple[Vector, PyTree]]) -> PyTree:
        parts, restore = ravel_pytree(here(weighted))
        return restore(jax.lax.psum(parts, CLIENTS))  # type: ignore[no-untyped-call]

    if mesh is None or any(len(weights) % mesh.size for weights, _ in weighted):
        return here(weighted)
    sums: list[PyTree] = jax.shard_map(
        everywhere, mesh=mesh, in_specs=SHARED_OUT, out_specs=EVERYWHERE, check_vma=False
    )(weighted)
    return sums


def sum_over_blocks(function: Callable[..., T], block: int | None, mesh: Mesh | None = None) -> Callable[..., T]:
    """`function`, a sum over the clients of its arguments' leading axis, for `block` clients at a time.

    The devices of `mesh`, where there are several, each sum over an equal share of the clients.
    """

    def here(*arguments: PyTree) -> T:
        clients = len(jax.tree.leaves(arguments)[0])
        if block is None or block >= clients:
            return function(*open_shared(arguments))
        whole = clients // block * block
        blocks = jax.tree.map(lambda leaf: leaf[:whole].reshape(-1, block, *leaf.shape[1:]), arguments)
        zero = jax.tree.map(lambda sum_: jnp.zeros(sum_.shape, sum_.dtype), jax.eval_shape(function, *arguments))
        total: T
        total, _ = jax.lax.scan(lambda sums, part: (_plus(sums, function(*part)), None), zero, blocks)
        if whole < clients:
            total = _plus(total, function(*jax.tree.map(lambda leaf: leaf[whole:], arguments)))
        return total

    def everywhere(*arguments: PyTree) -> T:
        parts, restore = ravel_pytree(here(*arguments))
        total: T = restore(jax.lax.psum(parts, CLIENTS))  # type: ignore[no-untyped-call]
        return total

    def shared(*arguments: PyTree) -> T:
        assert mesh is not None
        if len(jax.tree.leaves(arguments)[0]) % mesh.size:
            return here(*arguments)
        total: T = jax.shard_map(everywhere, mesh=mesh, in_specs=SHARED_OUT, out_specs=EVERYWHERE, check_vma=False)(
            *arguments
        )
        return total

    return here if mesh is None else shared


def _plus(total: T, more: T) -> T:
    sums: T = jax.tree.map(jnp.add, total, more)
    return sums


def choose_block(layout: str, data: PyTree, clients: int, tau: Array, looped: bool) -> int | None:
    """Clients at a time in the phases of a round; `looped` says that local steps are taken one by one."""
    one_of("layout", layout, ("auto", "client", "step"))
    if layout == "client":
        return 1
    if layout == "step" or jax.default_backend() != "cpu":
        return None
    total = count_bytes(data)
    uneven = float(np.max(tau) / np.mean(tau)) >= UNEVEN
    if looped and total >= WORTHWHILE * clients and (uneven or total > SHARED):
        return 1
    return one_pass_block(data, clients)


def one_pass_block(data: PyTree, clients: int) -> int | None:
    """Clients at a time where each client's data is read once or twice: all, unless they outgrow the cache."""
    total = count_bytes(data)
    if total <= SHARED or jax.default_backend() != "cpu":
        return None
    return even_block(max(1, min(clients, NEAR * clients // total)), clients)


def even_block(most: int, clients: int) -> int:
    """The largest number of clients up to `most` that leaves no remainder, unless that is less than half of it.

    A remainder would be compiled as a second copy of the loop.

    >>> even_block(30, 100), even_block(7, 11)
    (25, 7)
    """
    return next((b for b in range(most, most // 2, -1) if clients % b == 0), most)


def count_bytes(data: PyTree) -> int:
    """The size of a pytree of arrays."""
    return sum(int(leaf.size) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(data))


def of_clients(data: PyTree, count: int) -> PyTree:
    """The shape of the data of so many clients."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape[1:]), leaf.dtype), data)  # type: ignore[no-untyped-call]
