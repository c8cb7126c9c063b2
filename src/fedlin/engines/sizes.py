"""What a round sends, from shapes alone."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedlin.compressors import Size, decode, size
from fedlin.core import Algorithm, Central, Phase
from fedlin.engines.local import make_local
from fedlin.precision import precision
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
    if algorithm.recipe is not None:  # shapes do not depend on a number left open, so any one stands in for it
        numbers = {name: 1.0 if value is None else value for name, value in algorithm.recipe.numbers}
        algorithm = algorithm.recipe.with_numbers(numbers)
    with precision(problem.dtype):
        x = jnp.asarray(problem.start)
        server, client = jax.eval_shape(algorithm.init_server, x), jax.eval_shape(algorithm.init_client, x)
        later = _walk(algorithm.phases, problem, server, client)
        opening = later if algorithm.opening is None else _walk(algorithm.opening, problem, server, client)
    return RoundSize(opening, later)


def _walk(phases: tuple[Phase[Any, Any], ...], problem: Problem, server: Any, client: Any) -> tuple[MessageSize, ...]:
    one = jax.tree.map(lambda leaf: leaf[0], (problem.data, problem.noise))
    sizes = []
    for phase in phases:

        def work(server: Any, client: Any, one: Any, number: Any, key: Any, phase: Any = phase) -> Any:
            message = phase.down(server)
            tau = jnp.ones((), jnp.int32)
            data, noise = one
            local, _ = make_local(problem.objective, problem.sampling, data, noise, tau, number, key, key)
            state, upload = phase.client(client, decode(message), local)
            after = phase.server(server, decode(upload), Central(number, key, key))
            return message, upload, after, state

        number = jnp.ones((), problem.dtype)
        message, upload, server, client = jax.eval_shape(work, server, client, one, number, jax.random.key(0))
        sizes.append(MessageSize(phase.name, size(message), size(upload)))
    return tuple(sizes)
