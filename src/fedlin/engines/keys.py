"""Randomness as a function of (seed, round, phase, client), so that every engine draws the same."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedlin.core import Key, Scalar

_COHORT = 2**31 - 1  # a phase number no algorithm reaches
_DESCENT = 2**31 - 1  # keeps the local steps' draws apart from those an algorithm makes itself


class PhaseKeys(NamedTuple):
    """The keys of one phase of one round."""

    shared: Key
    server: Key
    base: Key

    def client(self, index: Scalar) -> Key:
        """The key of client `index`."""
        return jax.random.fold_in(self.base, index)


def phase_keys(seed: Key, round_index: Scalar, phase: int) -> PhaseKeys:
    """Keys for the server, for all together, and for each client."""
    key = jax.random.fold_in(jax.random.fold_in(seed, round_index), phase)
    shared, server, base = jax.random.split(key, 3)
    return PhaseKeys(shared, server, base)


def cohort_key(seed: Key, round_index: Scalar) -> Key:
    """The key that draws who takes part in a round."""
    return jax.random.fold_in(jax.random.fold_in(seed, round_index), _COHORT)


def descent_key(client: Key) -> Key:
    """The key of a client's local steps."""
    return jax.random.fold_in(client, _DESCENT)


def draw_cohort(seed: Key, round_index: Scalar, clients: int, size: int) -> jax.Array:
    """The numbers of the clients that take part in a round, in order."""
    return jnp.sort(jax.random.permutation(cohort_key(seed, round_index), clients)[:size])
