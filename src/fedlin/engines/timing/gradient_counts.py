"""Who answers in a round and how many gradients each client takes, without running it."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Wrapped

from fedlin.core import Array, Numbers, Scalar, Structure, Vector, rebuild, structure
from fedlin.engines.keys import draw_cohort, phase_keys
from fedlin.engines.opening import opening_rounds
from fedlin.engines.phase import ClientArrays, ClientProgram, phase_alone
from fedlin.engines.simulation.run import Run
from fedlin.precision import precision
from fedlin.problems.objective import Data


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
    """Gradients by (round, phase, client) if all clients answer: of the `opening_rounds`, and of the others.

    They follow from the plan and from coins, never from the data or the model, so they can be had without a run.
    """
    problem = run.problem
    opens = opening_rounds(run.algorithm, run.seed, 0, rounds)
    tau = np.broadcast_to(run.tau, (rounds, problem.clients))
    own = jax.tree.map(lambda leaf: np.zeros(leaf.shape[1:], leaf.dtype), (problem.data, problem.noise))

    def count(opening: bool) -> Array:
        at = np.flatnonzero(opens == opening).astype(np.int32)
        if not at.size:
            return np.zeros((0, 1, problem.clients), np.int32)
        program = _program(structure(run.algorithm), opening, ClientProgram(problem.objective, problem.sampling))
        index = np.arange(problem.clients, dtype=np.int32)
        calls = program(run.numbers, own, problem.start, np.uint32(run.seed), at, index, tau[at])
        return np.asarray(calls).transpose(0, 2, 1)

    with precision(problem.dtype):
        return count(True), count(False)


@cache
def _program(algorithm: Structure, opening: bool, program: ClientProgram) -> Wrapped:
    """A client's part of a round, of which only the count is kept: the compiler drops the rest."""

    def count(
        numbers: Numbers,
        own: tuple[Data, Data],
        x: Vector,
        seed: Scalar,
        round_index: Scalar,
        index: Scalar,
        tau: Scalar,
    ) -> jax.Array:
        method = rebuild(algorithm, numbers)
        server, state = method.init_server(x), method.init_client(x)
        calls = []
        for number, phase in enumerate(method.phases_in(opening)):
            keys = phase_keys(jax.random.key(seed), round_index, number)
            client = ClientArrays(index, *own, tau, jnp.ones((), x.dtype), state)
            _, answer, server = phase_alone(phase, program, keys, server, client)
            state = answer.state
            calls.append(answer.calls)
        return jnp.stack(calls)

    clients = jax.vmap(count, in_axes=(None, None, None, None, None, 0, 0))
    return jax.jit(jax.vmap(clients, in_axes=(None, None, None, None, 0, None, 0)))
