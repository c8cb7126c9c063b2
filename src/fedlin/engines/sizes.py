"""What a round sends, from shapes alone."""

from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np

from fedlin.core import Algorithm
from fedlin.engines.shapes import PhaseShape, trace_rounds
from fedlin.payloads import Size, size
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
    traced = trace_rounds(algorithm, objective, sampling, one, dim, dtype)
    return RoundSize(measure_phases(traced.opening), measure_phases(traced.later))


def measure_phases(phases: tuple[PhaseShape, ...]) -> tuple[MessageSize, ...]:
    """Bytes of the messages of these phases."""
    return tuple(MessageSize(phase.name, size(phase.down), size(phase.up)) for phase in phases)
