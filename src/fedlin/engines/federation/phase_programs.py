"""The two sides of a phase as compiled functions, one program each for the whole life of a process."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

from fedlin.core import Algorithm, Central, Key, Phase
from fedlin.engines.keys import phase_keys
from fedlin.engines.local import make_local
from fedlin.payloads import decode
from fedlin.problems.objective import Objective, Sampling


def _phase(algorithm: Algorithm[Any, Any], opening: bool, number: int) -> Phase[Any, Any]:
    return algorithm.phases_in(opening)[number]


def _hidden(key: Key, secret: tuple[Any, ...]) -> Key:
    """A key that only who knows the secret can have; the key itself where there is none."""
    for word in secret:
        key = jax.random.fold_in(key, word)
    return key


@cache
def broadcast(algorithm: Algorithm[Any, Any], opening: bool, number: int) -> Any:
    """The compiled function server -> message."""
    return jax.jit(_phase(algorithm, opening, number).down)


@cache
def work(
    algorithm: Algorithm[Any, Any], opening: bool, number: int, objective: Objective, sampling: Sampling | None
) -> Any:
    """The compiled function of one client: (its state, message, …) -> (state, upload, gradients taken).

    What it draws depends on its `secret`, words that no one else knows; without any it draws as `simulate` does.
    """
    phase = _phase(algorithm, opening, number)

    def run(
        state: Any,
        message: Any,
        data: Any,
        noise: Any,
        tau: Any,
        eta: Any,
        seed: Any,
        round_index: Any,
        client: Any,
        secret: tuple[Any, ...],
    ) -> Any:
        keys = phase_keys(jax.random.key(seed), round_index, number)
        own = _hidden(keys.client(client), secret)
        local, counter = make_local(objective, sampling, data, noise, tau, eta, own, keys.shared)
        after, upload = phase.client(state, decode(message), local)
        return after, upload, jnp.asarray(counter.calls, jnp.int32)

    return jax.jit(run)


@cache
def gradient_norm(algorithm: Algorithm[Any, Any], opening: bool, number: int) -> Any:
    """The compiled function server -> norm of its estimate of ∇f after this phase; None where it holds none."""
    gradient = _phase(algorithm, opening, number).gradient
    return None if gradient is None else jax.jit(lambda server: jnp.linalg.norm(gradient(server)))


@cache
def update(algorithm: Algorithm[Any, Any], opening: bool, number: int) -> Any:
    """The compiled function (server, uploads, …) -> server; an absent client has zeros and `present` false.

    The mean is over those who answered, in the order of their numbers and not of their arrival. The `secret` is the
    server's, since every client knows the seed.
    """
    phase = _phase(algorithm, opening, number)

    def run(
        server: Any,
        uploads: Any,
        weight: Any,
        present: Any,
        eta: Any,
        seed: Any,
        round_index: Any,
        secret: tuple[Any, ...],
    ) -> Any:
        keys = phase_keys(jax.random.key(seed), round_index, number)
        total = jnp.sum(weight)
        mean_eta = weight @ eta / total
        answered = weight * present.astype(weight.dtype)
        share = jnp.sum(answered) / total
        answered = answered / jnp.sum(answered)
        decoded = jax.vmap(decode, axis_size=weight.shape[0])(uploads)  # an upload may be empty
        mean = jax.tree.map(lambda leaf: jnp.tensordot(answered, leaf, 1), decoded)
        own = _hidden(keys.server, secret)
        return phase.server(server, mean, Central(share, own, keys.shared, mean_eta, jnp.max(answered)))

    return jax.jit(run)
