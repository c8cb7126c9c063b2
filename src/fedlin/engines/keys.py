"""Randomness as a function of (seed, round, phase, client), so that every engine draws the same."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedlin.core import Key, Scalar

_COHORT, _RENEWAL = 2**31 - 1, 2**31 - 2  # phase numbers no algorithm reaches
_FEW = 4  # with at least so many times more clients a cohort is drawn one by one, else by a permutation of all
_DESCENT = 2**31 - 1  # keeps the local steps' draws apart from those an algorithm makes itself
_FULL = 2**31 - 2  # and those of a gradient over all rows


Secret = tuple[jax.Array | np.uint32, ...]  # words that one side alone knows


class PhaseKeys(NamedTuple):
    """The keys of one phase of one round, for the server, for all together, and for each client."""

    shared: Key
    server: Key
    base: Key
    secret: Secret

    def client(self, index: Scalar) -> Key:
        """The key of client `index`."""
        return _hide(jax.random.fold_in(self.base, index), self.secret)


def phase_keys(seed: Key, round_index: Scalar, phase: int, secret: Secret = ()) -> PhaseKeys:
    """The keys that follow from the seed; with a secret, no other side can repeat what this one draws."""
    key = jax.random.fold_in(jax.random.fold_in(seed, round_index), phase)
    shared, server, base = jax.random.split(key, 3)
    return PhaseKeys(shared, _hide(server, secret), base, secret)


def _hide(key: Key, secret: Secret) -> Key:
    for word in secret:
        key = jax.random.fold_in(key, word)
    return key


def cohort_key(seed: Key, round_index: Scalar) -> Key:
    """The key that draws who takes part in a round."""
    return jax.random.fold_in(jax.random.fold_in(seed, round_index), _COHORT)


def renewal_key(seed: Key, round_index: Scalar) -> Key:
    """The key of the coin that decides whether a round runs the phases of the first one."""
    return jax.random.fold_in(jax.random.fold_in(seed, round_index), _RENEWAL)


def descent_key(client: Key) -> Key:
    """The key of a client's local steps."""
    return jax.random.fold_in(client, _DESCENT)


def full_key(client: Key) -> Key:
    """The key of a client's gradient over all its rows, where the loss draws."""
    return jax.random.fold_in(client, _FULL)


def draw_cohort(seed: Key, round_index: Scalar, clients: int, size: int) -> jax.Array:
    """The numbers of the clients that take part in a round, in order: every set of `size` is equally likely.

    The work is that of `size` clients, however many there are.
    """
    key = cohort_key(seed, round_index)
    if _FEW * size > clients:
        return jnp.sort(jax.random.permutation(key, clients)[:size])

    # So many draws hold `size` different ones on average, and a few deviations more almost always do.
    enough = -clients * math.log1p(-size / clients)
    draws = math.ceil(enough + 4 * math.sqrt(enough - size) + 4)

    def draw(carry: tuple[Scalar, Scalar, jax.Array]) -> tuple[Scalar, Scalar, jax.Array]:
        attempt, _, _ = carry
        drawn, lots = jax.random.split(jax.random.fold_in(key, attempt))
        numbers = jax.random.randint(drawn, (draws,), 0, clients, jnp.int32)
        return attempt + 1, *_some_distinct(numbers, size, lots)

    none = jnp.zeros((), jnp.int32)
    _, _, cohort = jax.lax.while_loop(lambda c: c[1] < size, draw, (none, none, jnp.zeros(size, jnp.int32)))
    return cohort


def _some_distinct(numbers: jax.Array, size: int, key: Key) -> tuple[Scalar, jax.Array]:
    """How many of the numbers differ, and `size` of those in order, chosen by lot; fewer than asked for are of no use.

    Whole numbers are sorted without what belongs to them, since a CPU does that six times as fast.
    """
    in_order = jnp.sort(numbers)
    fresh = jnp.diff(in_order, prepend=-1) != 0
    lot = jax.lax.bitcast_convert_type(jax.random.bits(key, numbers.shape, jnp.uint32), jnp.int32)
    lot = jnp.where(fresh, lot, np.iinfo(np.int32).max)
    chosen = fresh & (lot <= jnp.sort(lot)[size - 1])
    to = jnp.where(chosen, jnp.cumsum(chosen, dtype=jnp.int32) - 1, size)
    return jnp.sum(fresh, dtype=jnp.int32), jnp.zeros(size, jnp.int32).at[to].set(in_order, mode="drop")
