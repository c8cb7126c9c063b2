"""What every phase sends and leaves behind, as shapes alone: nothing is computed."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedlin.core import Algorithm, Central, Phase
from fedlin.engines.local import make_local
from fedlin.errors import ArgumentError
from fedlin.payloads import decode
from fedlin.problems.objective import Objective, Sampling


class PhaseShape(NamedTuple):
    """The messages of one phase and the states after it, abstract."""

    name: str
    down: Any
    up: Any
    server: Any
    client: Any


class RoundShapes(NamedTuple):
    """The states before the first round, and the phases of the first round and of every later one."""

    server: Any
    client: Any
    opening: tuple[PhaseShape, ...]
    later: tuple[PhaseShape, ...]


def trace_rounds(
    algorithm: Algorithm[Any, Any],
    objective: Objective,
    sampling: Sampling | None,
    one: Any,
    dim: int,
    dtype: np.dtype[Any],
) -> RoundShapes:
    """Follow an algorithm through a round; `one` is a client's data and noise, abstract."""

    def walk(phases: tuple[Phase[Any, Any], ...], server: Any, client: Any) -> tuple[PhaseShape, ...]:
        shapes = []
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
            shapes.append(PhaseShape(phase.name, message, upload, server, client))
        return tuple(shapes)

    x = jax.ShapeDtypeStruct((dim,), dtype)  # type: ignore[no-untyped-call]
    start = jax.eval_shape(algorithm.init_server, x), jax.eval_shape(algorithm.init_client, x)
    if getattr(getattr(start[0], "x", None), "shape", None) != (dim,):
        raise ArgumentError(
            f"algorithm = {algorithm.name} starts with a server state {start[0]!r}: it needs a field x, the model, "
            "so that it can be measured."
        )
    later = walk(algorithm.phases, *start)
    opening = later if algorithm.opening is None else walk(algorithm.opening, *start)
    return RoundShapes(*start, opening, later)
