"""The two sides of a phase as compiled functions, one program each for the whole life of a process."""

from collections.abc import Callable, Sequence
from functools import cache

import jax
import jax.numpy as jnp

from fedlin.aggregation import Aggregator
from fedlin.core import Message, Method, MethodPhase, Scalar, Vector
from fedlin.engines.keys import Secret, phase_keys
from fedlin.engines.phase import (
    Answer,
    ClientArrays,
    ClientProgram,
    State,
    client_step,
    combine,
    server_step,
    total,
    weigh,
)
from fedlin.payloads import decode


def _phase(algorithm: Method, opening: bool, number: int) -> MethodPhase:
    return algorithm.phases_in(opening)[number]


@cache
def broadcast(algorithm: Method, opening: bool, number: int) -> Callable[[State], Message]:
    """The compiled function server -> message."""
    return jax.jit(_phase(algorithm, opening, number).down)


@cache
def work(algorithm: Method, opening: bool, number: int, program: ClientProgram) -> Callable[..., Answer]:
    """The compiled function of one client: (client, message, …) -> its answer, without the losses that gradients met.

    What it draws depends on its `secret`, words that no one else knows; without any it draws as `simulate` does.
    """
    phase = _phase(algorithm, opening, number)

    def run(client: ClientArrays, message: Message, seed: Scalar, round_index: Scalar, secret: Secret) -> Answer:
        keys = phase_keys(jax.random.key(seed), round_index, number, secret)
        # A loss that nobody reads is not computed.
        return client_step(phase, program, keys, message, client)._replace(losses=None, seen=None)

    return jax.jit(run)


@cache
def gradient_norm(algorithm: Method, opening: bool, number: int) -> Callable[[State], Scalar] | None:
    """The compiled function server -> norm of its estimate of ∇f after this phase; None where it holds none."""
    gradient = _phase(algorithm, opening, number).gradient
    return None if gradient is None else jax.jit(lambda server: jnp.linalg.norm(gradient(server)))


@cache
def update(algorithm: Method, opening: bool, number: int, aggregate: Aggregator) -> Callable[..., State]:
    """The compiled function (server, uploads, …) -> server; an absent client has zeros and `present` false.

    The mean, or what `aggregate` puts in its place, is over those who answered, in the order of their numbers and not
    of their arrival. The `secret` is the server's, since every client knows the seed.
    """
    phase = _phase(algorithm, opening, number)

    def run(
        server: State,
        uploads: Sequence[Message],
        weights: Vector,
        present: Vector,
        eta: Vector,
        seed: Scalar,
        round_index: Scalar,
        secret: Secret,
    ) -> State:
        keys = phase_keys(jax.random.key(seed), round_index, number, secret)
        totals = total(weights, eta)
        weighting = weigh(weights, totals, present)
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *uploads)
        decoded = jax.vmap(decode, axis_size=weights.shape[0])(stacked)  # an upload may be empty
        mean, _ = combine(weighting.each, decoded, aggregate=aggregate, keys=keys)
        return server_step(phase, keys, server, mean, weighting, totals.eta)

    return jax.jit(run)


@cache
def update_from_mean(algorithm: Method, opening: bool, number: int) -> Callable[..., State]:
    """The compiled function (server, mean, …) -> server, where no single upload is known.

    Noise for privacy is in the mean already, so that the server, which scales its own by the largest weight, adds none.
    """
    phase = _phase(algorithm, opening, number)

    def run(
        server: State, mean: Message, weights: Vector, present: Vector, eta: Vector, seed: Scalar, round_index: Scalar
    ) -> State:
        keys = phase_keys(jax.random.key(seed), round_index, number)
        totals = total(weights, eta)
        weighting = weigh(weights, totals, present)._replace(largest=jnp.zeros((), weights.dtype))
        return server_step(phase, keys, server, mean, weighting, totals.eta)

    return jax.jit(run)
