"""Scaffnew (ProxSkip): a coin everyone shares decides when to communicate, and control variates do the rest.

K. Mishchenko et al., ProxSkip: Yes! Local Gradient Steps Provably Lead to Communication Acceleration!
Finally!, ICML 2022, Algorithm 2. A round here is what lies between two communications.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedlin.algorithms.factory import factory
from fedlin.algorithms.model_only import ModelOnly, take_mean
from fedlin.core import Algorithm, Local, Message, Phase, Requirement, Vector


class ScaffnewClient(NamedTuple):
    """The control variate, and the model sent last."""

    h: Vector  # h_i
    sent: Vector  # x̂_i


@factory()
def scaffnew() -> Algorithm[ModelOnly, ScaffnewClient]:
    """x_i ← x_i - γ(∇f_i(x_i) - h_i) until a coin of probability p falls; then x = mean, h_i ← h_i + (p/γ)(x - x̂_i).

    γ is the plan's η and p is 1/τ: the plan's τ is the mean number of local steps, not a fixed one.

    >>> scaffnew().name
    'scaffnew'
    """

    def move_locally(state: ScaffnewClient, x: Vector, local: Local) -> tuple[ScaffnewClient, Message]:
        p = 1 / local.tau.astype(x.dtype)
        h = state.h + p / local.eta * (x - state.sent)
        # Steps up to and with the first success of a coin that falls the same way for all; with p = 1, log(1 - p) = -∞.
        # In one precision for every model, so that the coin falls the same way whatever x is.
        luck = 1 - jax.random.uniform(local.shared_key, (), jnp.float32)  # in (0, 1]
        longer = jnp.floor(jnp.log(luck) / jnp.log1p(-1 / local.tau.astype(jnp.float32))).astype(jnp.int32)
        y = local.descend(x, shift=-h, steps=1 + longer)
        return ScaffnewClient(h, y), y

    return Algorithm(
        "scaffnew",
        ModelOnly,
        lambda x: ScaffnewClient(0 * x, x),
        (Phase("model", lambda state: state.x, move_locally, take_mean),),
        requires=frozenset(
            [
                Requirement.ONE_STEP_SIZE,
                Requirement.ONE_STEP_COUNT,
                Requirement.EVERY_CLIENT,
                Requirement.OWN_MODEL,
                Requirement.PLAIN_STEPS,
            ]
        ),
    )
