"""Scaffnew (ProxSkip): a coin everyone shares decides when to communicate, and control variates do the rest.

K. Mishchenko et al., ProxSkip: Yes! Local Gradient Steps Provably Lead to Communication Acceleration!
Finally!, ICML 2022, Algorithm 2. A round here is what lies between two communications.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fedlin.algorithms.factory import factory
from fedlin.algorithms.model_only import ModelOnly, take_mean
from fedlin.algorithms.shared_coin import steps_until
from fedlin.checks import fraction
from fedlin.core import Algorithm, Local, Message, Phase, Requirement, Vector


class ScaffnewClient(NamedTuple):
    """The control variate, and the model sent last."""

    h: Vector  # h_i
    sent: Vector  # x̂_i


@factory()
def scaffnew(probability: float | None = None) -> Algorithm[ModelOnly, ScaffnewClient]:
    """x_i ← x_i - γ(∇f_i(x_i) - h_i) until a coin of probability p falls; then x = mean, h_i ← h_i + (p/γ)(x - x̂_i).

    γ is the plan's η and p is 1/τ: the plan's τ is the mean number of local steps, not a fixed one.

    Args:
        probability: p itself. The plan's τ are then the numbers of local steps that were drawn, one for each round, so
            that a run can be replayed from its log without its coins.

    Returns:
        The method.

    >>> scaffnew().name
    'scaffnew'
    """
    if probability is not None:
        fraction("probability", probability)

    def move_locally(state: ScaffnewClient, x: Vector, local: Local) -> tuple[ScaffnewClient, Message]:
        p = 1 / local.tau.astype(x.dtype) if probability is None else jnp.asarray(probability, x.dtype)
        h = state.h + p / local.eta * (x - state.sent)
        if probability is not None:
            y = local.descend(x, shift=-h)
            return ScaffnewClient(h, y), y
        y = local.descend(x, shift=-h, steps=steps_until(local.shared_key, 1 / local.tau.astype(jnp.float32)))
        return ScaffnewClient(h, y), y

    return Algorithm(
        "scaffnew" if probability is None else f"scaffnew(probability={probability:g})",
        ModelOnly,
        lambda x: ScaffnewClient(0 * x, x),
        (Phase("model", lambda state: state.x, move_locally, take_mean),),
        requires=frozenset(
            [
                Requirement.ONE_STEP_SIZE,
                Requirement.ONE_STEP_COUNT,
                Requirement.EVERY_CLIENT,
                Requirement.OWN_MODEL,
                Requirement.MEAN_UPLOAD,
                Requirement.PLAIN_STEPS,
            ]
        ),
    )
