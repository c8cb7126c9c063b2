"""Which rounds run the opening phases: the first, and those that a method's coin draws."""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fedlin.core import Key, Method, Scalar
from fedlin.engines.keys import renewal_key
from fedlin.precision import precision

_BLOCK = 256  # rounds whose coins are thrown at once, for one program to serve any number of them


def renews(seed: Key, round_index: Scalar, probability: Scalar | float) -> Scalar:
    """Whether the coin falls in this round; in one precision for every model, so that all sides see the same."""
    luck = jax.random.uniform(renewal_key(seed, round_index), (), jnp.float32)
    return luck < jnp.asarray(probability, jnp.float32)


def opening_rounds(algorithm: Method, seed: int, first: int, count: int, begun: int = 0) -> NDArray[np.bool_]:
    """Whether each of the rounds first, first + 1, ... runs the opening phases; the run began with `begun`.

    >>> import fedlin
    >>> opening_rounds(fedlin.ef21(fedlin.top_k(1)), seed=0, first=0, count=3).tolist()
    [True, False, False]
    """
    if algorithm.opening is None:
        return np.zeros(count, bool)
    rounds = np.arange(first, first + count, dtype=np.int32)
    opens: NDArray[np.bool_] = rounds == begun
    if algorithm.renewal is not None and count:
        blocks = range(first, first + count, _BLOCK)
        with precision(np.float32):
            coins = [_coins(np.uint32(seed), np.int32(block), np.float32(algorithm.renewal)) for block in blocks]
        opens |= np.concatenate(coins)[:count]
    return opens


@jax.jit
def _coins(seed: Key, first: Scalar | int, probability: Scalar | float) -> jax.Array:
    at = first + jnp.arange(_BLOCK, dtype=jnp.int32)
    return jax.vmap(lambda number: renews(jax.random.key(seed), number, probability))(at)
