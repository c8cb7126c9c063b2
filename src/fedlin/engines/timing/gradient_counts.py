"""Who answers in a round and how many gradients each client takes, without running it."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fedlin.core import Central
from fedlin.engines.keys import draw_cohort, phase_keys
from fedlin.engines.local import make_local
from fedlin.engines.simulation.program import Structure, rebuild, structure
from fedlin.engines.simulation.run import Run
from fedlin.payloads import decode
from fedlin.precision import precision
from fedlin.problems.objective import Objective, Sampling

Array = NDArray[Any]


def who_answers(run: Run, rounds: int) -> Array:
    """(rounds, m), as the run drew it."""
    clients = run.problem.clients
    if run.present is not None:
        return run.present[:rounds]
    present = np.ones((rounds, clients), bool)
    if run.cohort is not None:
        with precision(run.problem.dtype):
            key, size = jax.random.key(np.uint32(run.seed)), run.cohort
            drawn = jax.vmap(lambda t: draw_cohort(key, t, clients, size))(jnp.arange(rounds, dtype=jnp.int32))
        present[:] = False
        np.put_along_axis(present, np.asarray(drawn), True, axis=1)
    return present


def gradient_calls(run: Run, rounds: int) -> tuple[Array, Array]:
    """Gradients by (round, phase, client) if everyone answers: of the first round where it differs, and of the others.

    They follow from the plan and from coins, never from the data or the model, so they can be had without a run.
    """
    problem = run.problem
    first = 0 if run.algorithm.opening is None else 1
    tau = np.broadcast_to(run.tau, (rounds, problem.clients))
    data = jax.tree.map(lambda leaf: np.zeros(leaf.shape[1:], leaf.dtype), (problem.data, problem.noise))

    def count(opening: bool, start: int, end: int) -> Array:
        if start == end:
            return np.zeros((0, 1, problem.clients), np.int32)
        program = _program(structure(run.algorithm), opening, problem.objective, problem.sampling)
        index, at = np.arange(problem.clients, dtype=np.int32), np.arange(start, end, dtype=np.int32)
        calls = program(run.numbers, data, problem.start, np.uint32(run.seed), at, index, tau[start:end])
        return np.asarray(calls).transpose(0, 2, 1)

    with precision(problem.dtype):
        return count(True, 0, first), count(False, first, rounds)


@cache
def _program(kind: Structure, opening: bool, objective: Objective, sampling: Sampling | None) -> Any:
    """A client's part of a round, of which only the count is kept: the compiler drops the rest."""

    def count(numbers: Any, data: Any, x: Any, seed: Any, round_index: Any, index: Any, tau: Any) -> Any:
        algorithm = rebuild(kind, numbers)
        server, client = algorithm.init_server(x), algorithm.init_client(x)
        (rows, noise), one = data, jnp.ones((), x.dtype)
        calls = []
        for number, phase in enumerate(algorithm.phases_in(opening)):
            keys = phase_keys(jax.random.key(seed), round_index, number)
            local, counter = make_local(objective, sampling, rows, noise, tau, one, keys.client(index), keys.shared)
            client, upload = phase.client(client, decode(phase.down(server)), local)
            server = phase.server(server, decode(upload), Central(one, keys.server, keys.shared, one, one))
            calls.append(jnp.asarray(counter.calls, jnp.int32))
        return jnp.stack(calls)

    clients = jax.vmap(count, in_axes=(None, None, None, None, None, 0, 0))
    return jax.jit(jax.vmap(clients, in_axes=(None, None, None, None, 0, None, 0)))
