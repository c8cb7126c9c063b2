"""How many local steps lie between two communications, where a coin that all share decides after every step."""

import jax
import jax.numpy as jnp

from fedlin.core import Key, Scalar


def steps_until(key: Key, probability: Scalar) -> Scalar:
    """1, 2, ... with the probabilities p, (1 - p)p, ...: steps up to and with the first success of a coin.

    In one precision for every model, so that a shared coin falls the same way whatever the model is.
    """
    luck = 1 - jax.random.uniform(key, (), jnp.float32)  # in (0, 1]
    # With p = 1, log(1 - p) = -∞ and the quotient is 0.
    longer = jnp.floor(jnp.log(luck) / jnp.log1p(-probability.astype(jnp.float32)))
    return 1 + longer.astype(jnp.int32)
