"""What a round sends, from shapes alone."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedlin.compressors import Size, decode, size
from fedlin.core import Algorithm, Central, Phase
from fedlin.engines.local import make_local
from fedlin.errors import ArgumentError
from fedlin.precision import precision
from fedlin.problems.objective import Objective, Sampling
from fedlin.problems.problem import Problem


class MessageSize(NamedTuple):
    """Bytes of one message of one client in one phase."""

    phase: str
    down: Size
    up: Size


class RoundSize(NamedTuple):
    """The messages of the first round and of every later one."""

    opening: tuple[MessageSize, ...]
    later: tuple[MessageSize, ...]


def message_sizes(algorithm: Algorithm[Any, Any], problem: Problem) -> RoundSize:
    """Exact bytes of every message one client sends and gets, values and indices apart.

    >>> import fedlin
    >>> problem = fedlin.problems.least_squares(clients=2, dim=100, samples=5)
    >>> fedlin.message_sizes(fedlin.fedlin(uplink=fedlin.top_k(10)), problem).later[0].up
    Size(values=80, indices=10)
    """
    algorithm.check(problem.dim)
    leaves, tree = jax.tree.flatten((problem.data, problem.noise))
    shapes = tuple((leaf.shape[1:], np.dtype(leaf.dtype)) for leaf in leaves)
    with precision(problem.dtype):
        return _round_size(algorithm, problem.objective, problem.sampling, tree, shapes, problem.dim, problem.dtype)


@cache
def _round_size(
    algorithm: Algorithm[Any, Any],
    objective: Objective,
    sampling: Sampling | None,
    tree: Any,
    shapes: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...],
    dim: int,
    dtype: np.dtype[Any],
) -> RoundSize:
    # Kept, since tracing costs milliseconds and the members of a batch all ask the same.
    if algorithm.recipe is not None:  # shapes do not depend on a number left open, so any one stands in for it
        numbers = {name: 1.0 if value is None else value for name, value in algorithm.recipe.numbers}
        algorithm = algorithm.recipe.with_numbers(numbers)
    one = jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(*shape) for shape in shapes])  # type: ignore[no-untyped-call]

    def walk(phases: tuple[Phase[Any, Any], ...], server: Any, client: Any) -> tuple[MessageSize, ...]:
        sizes = []
        for phase in phases:

            def work(server: Any, client: Any, one: Any, number: Any, key: Any, phase: Any = phase) -> Any:
                message = phase.down(server)
                tau = jnp.ones((), jnp.int32)
                data, noise = one
                local, _ = make_local(objective, sampling, data, noise, tau, number, key, key)
                state, upload = phase.client(client, decode(message), local)
                after = phase.server(server, decode(upload), Central(number, key, key, number, number))
                return message, upload, after, state

            number = jnp.ones((), dtype)
            message, upload, server, client = jax.eval_shape(work, server, client, one, number, jax.random.key(0))
            sizes.append(MessageSize(phase.name, size(message), size(upload)))
        return tuple(sizes)

    x = jax.ShapeDtypeStruct((dim,), dtype)  # type: ignore[no-untyped-call]
    start = jax.eval_shape(algorithm.init_server, x), jax.eval_shape(algorithm.init_client, x)
    if getattr(getattr(start[0], "x", None), "shape", None) != (dim,):
        raise ArgumentError(
            f"algorithm = {algorithm.name} starts with a server state {start[0]!r}: it needs a field x, the model, "
            "so that it can be measured."
        )
    later = walk(algorithm.phases, *start)
    return RoundSize(later if algorithm.opening is None else walk(algorithm.opening, *start), later)
