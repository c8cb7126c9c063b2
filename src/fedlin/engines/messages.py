"""What each phase sends: the shapes of its messages and their exact bytes, known before anything is computed."""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedlin.checks import instance_of
from fedlin.core import Algorithm, Message, Method, MethodPhase, PyTree
from fedlin.engines.keys import phase_keys
from fedlin.engines.phase import Answer, ClientArrays, ClientProgram, State, phase_alone
from fedlin.errors import ArgumentError
from fedlin.payloads import Size, paper_bits, size
from fedlin.precision import precision
from fedlin.problems.objective import Data
from fedlin.problems.problem import Problem


class PhaseShape(NamedTuple):
    """The messages of one phase and the states after it, abstract."""

    name: str
    down: Message
    up: Message
    server: State
    client: State


class RoundShapes(NamedTuple):
    """The states before the first round, and the phases of the first round and of every later one."""

    server: State
    client: State
    opening: tuple[PhaseShape, ...]
    later: tuple[PhaseShape, ...]


class MessageSize(NamedTuple):
    """Bytes of one message of one client in one phase."""

    phase: str
    down: Size
    up: Size


class RoundSize(NamedTuple):
    """The messages of the first round and of every later one."""

    opening: tuple[MessageSize, ...]
    later: tuple[MessageSize, ...]

    def sums(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """All bytes of one client, up and down, in the first round and in a later one."""
        opening, later = ((sum(sum(m.up) for m in phases), sum(sum(m.down) for m in phases)) for phases in self)
        return opening, later


def message_sizes(algorithm: Method, problem: Problem) -> RoundSize:
    """Exact bytes of every message one client sends and gets, values and indices apart.

    Args:
        algorithm: The method.
        problem: The problem, whose dimension and precision fix the sizes.

    Returns:
        The messages of the first round and of every later one, each with its phase's name and its bytes up and down.

    >>> import fedlin
    >>> problem = fedlin.problems.least_squares(clients=2, dim=100, samples=5)
    >>> fedlin.message_sizes(fedlin.fedlin(uplink=fedlin.top_k(10)), problem).later[0].up
    Size(values=80, indices=10)
    """
    shapes = _shapes(algorithm, problem)
    return RoundSize(_measure(shapes.opening), _measure(shapes.later))


def message_bits(algorithm: Method, problem: Problem) -> tuple[tuple[float, float], tuple[float, float]]:
    """Bits of one client as most papers count them, up and down, in the first round and in a later one.

    Args:
        algorithm: The method.
        problem: The problem, whose dimension fixes the sizes.

    Returns:
        (up, down) of the first round, and of every later one.

    >>> import fedlin
    >>> problem = fedlin.problems.least_squares(clients=2, dim=20, samples=30)
    >>> message_bits(fedlin.ef21(fedlin.top_k(2)), problem)  # 20 floats, then 2 with indices of 5 bits; the model down
    ((640.0, 640.0), (74.0, 640.0))
    """
    shapes = _shapes(algorithm, problem)
    opening, later = (
        (sum(paper_bits(phase.up) for phase in phases), sum(paper_bits(phase.down) for phase in phases))
        for phases in (shapes.opening, shapes.later)
    )
    return opening, later


def _shapes(algorithm: Method, problem: Problem) -> RoundShapes:
    instance_of("algorithm", algorithm, Algorithm, "a fedlin Algorithm")
    instance_of("problem", problem, Problem, "a fedlin Problem")
    algorithm.check(problem.dim)
    leaves, tree = jax.tree.flatten((problem.data, problem.noise))
    shapes = tuple((leaf.shape[1:], np.dtype(leaf.dtype)) for leaf in leaves)
    program = ClientProgram(problem.objective, problem.sampling)
    with precision(problem.dtype):
        return _traced(algorithm, program, tree, shapes, problem.dim, problem.dtype)


@cache
def _traced(
    algorithm: Method,
    program: ClientProgram,
    tree: PyTree,
    shapes: tuple[tuple[tuple[int, ...], np.dtype], ...],
    dim: int,
    dtype: np.dtype,
) -> RoundShapes:
    # Kept, since tracing costs milliseconds and the runs of a batch all ask the same.
    numbers = {} if algorithm.recipe is None else dict(algorithm.recipe.numbers)
    if algorithm.recipe is not None and None in numbers.values():  # shapes do not depend on it: any number will do
        known = {name: 1.0 if value is None else value for name, value in numbers.items()}
        algorithm = algorithm.recipe.with_numbers(known)
    own = jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(*shape) for shape in shapes])  # type: ignore[no-untyped-call]
    return trace_rounds(algorithm, program, own, dim, dtype)


def _measure(phases: tuple[PhaseShape, ...]) -> tuple[MessageSize, ...]:
    return tuple([MessageSize(phase.name, size(phase.down), size(phase.up)) for phase in phases])


def trace_rounds(
    algorithm: Method, program: ClientProgram, own: tuple[Data, Data], dim: int, dtype: np.dtype
) -> RoundShapes:
    """Follow an algorithm through a round; `own` is a client's data and noise, abstract."""

    def follow(phases: tuple[MethodPhase, ...], server: State, client: State) -> tuple[PhaseShape, ...]:
        shapes = []
        for number, phase in enumerate(phases):

            def play(
                server: State, state: State, own: tuple[Data, Data], phase: MethodPhase = phase, at: int = number
            ) -> tuple[Message, Answer, State]:
                zero, one = jnp.zeros((), jnp.int32), jnp.ones((), jnp.int32)
                client = ClientArrays(zero, *own, one, jnp.ones((), dtype), state)
                return phase_alone(phase, program, phase_keys(jax.random.key(0), zero, at), server, client)

            message, answer, server = jax.eval_shape(play, server, client, own)
            client = answer.state
            shapes.append(PhaseShape(phase.name, message, answer.upload, server, client))
        return tuple(shapes)

    x = jax.ShapeDtypeStruct((dim,), dtype)  # type: ignore[no-untyped-call]
    start = jax.eval_shape(algorithm.init_server, x), jax.eval_shape(algorithm.init_client, x)
    if getattr(getattr(start[0], "x", None), "shape", None) != (dim,):
        raise ArgumentError(
            f"algorithm = {algorithm.name} starts with a server state {start[0]!r}: it needs a field x, the model, "
            "so that it can be measured."
        )
    later = follow(algorithm.phases, *start)
    opening = later if algorithm.opening is None else follow(algorithm.opening, *start)
    return RoundShapes(*start, opening, later)
