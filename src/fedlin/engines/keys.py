"""Randomness as a function of (seed, round, phase, client), so that every engine draws the same."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedlin.core import Key, Scalar

_COHORT = 2**31 - 1  # a phase number no algorithm reaches
_FEW = 4  # a cohort is drawn one by one where the clients are at least so many times more, and dealt from all otherwise
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
    """The numbers of the clients that take part in a round, in order: every set of `size` is equally likely.

    The work is that of `size` clients, however many there are.
    """
    key = cohort_key(seed, round_index)
    if _FEW * size > clients:
        return jnp.sort(jax.random.permutation(key, clients)[:size])

    def draw(carry: tuple[Scalar, Scalar, jax.Array]) -> tuple[Scalar, Scalar, jax.Array]:
        attempt, _, _ = carry
        numbers = jax.random.randint(jax.random.fold_in(key, attempt), (2 * size,), 0, clients, jnp.int32)
        return attempt + 1, *_first_distinct(numbers, size, clients)

    none = jnp.zeros((), jnp.int32)
    # Twice as many as needed hold enough that differ, but for a chance that falls exponentially in `size`.
    _, _, cohort = jax.lax.while_loop(lambda c: c[1] < size, draw, (none, none, jnp.zeros(size, jnp.int32)))
    return cohort


def _first_distinct(numbers: jax.Array, size: int, none: int) -> tuple[Scalar, jax.Array]:
    """How many of the numbers differ, and the first `size` that do, in order; `none` stands where there are too few."""
    order = jnp.argsort(numbers, stable=True)
    repeats = jnp.diff(numbers[order], prepend=-1) == 0
    fresh = jnp.zeros_like(repeats).at[order].set(~repeats)
    seen = jnp.cumsum(fresh, dtype=jnp.int32)
    return seen[-1], jnp.sort(jnp.where(fresh & (seen <= size), numbers, none))[:size]
