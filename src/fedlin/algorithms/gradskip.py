"""GradSkip: Scaffnew in which a client stops taking gradients early, the better conditioned it is the earlier.

A. Maranjyan, M. Safaryan, P. Richtárik, GradSkip: Communication-Accelerated Local Gradient Methods with Better
Computational Complexity, TMLR 2025. Written from memory of Algorithm 1, whose text was out of reach, and held to the
proof that stands at `fedlin.theory.gradskip`.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fedlin.algorithms.factory import factory
from fedlin.algorithms.model_only import ModelOnly, take_mean
from fedlin.algorithms.shared_coin import steps_until
from fedlin.checks import fraction
from fedlin.core import Algorithm, Local, Message, Phase, Requirement, Vector


class GradSkipClient(NamedTuple):
    """The shift and the model at the last communication, before the mean was known."""

    h: Vector  # ĥ_i
    ended: Vector  # x̂_i


@factory(probability=fraction)
def gradskip(probability: float) -> Algorithm[ModelOnly, GradSkipClient]:
    """x_i ← x_i - γ(∇f_i(x_i) - h_i) until a shared coin of probability p falls, or a coin of the client's own before.

    The client's own coin falls with probability 1 - q_i: it then takes h_i = ∇f_i(x_i), so that x_i rests without
    further gradients until all communicate: x = mean of x̂_i - (γ/p)ĥ_i, h_i = ĥ_i + (p/γ)(x - x̂_i). γ is the plan's η.
    Its τ_i, which may differ, are the mean numbers of gradients 1/(1 - q_i(1 - p)) that clients take in a round; with
    τ_i ≥ 1/p a client never rests, and where none does it is `scaffnew`.

    Args:
        probability: p, of the shared coin; a round lasts 1/p steps on average.

    Returns:
        The method.

    >>> gradskip(0.1).name
    'gradskip'
    """

    def move_locally(state: GradSkipClient, x: Vector, local: Local) -> tuple[GradSkipClient, Message]:
        p, coin = jnp.asarray(probability, x.dtype), jnp.asarray(probability, jnp.float32)
        h = state.h + p / local.eta * (x - state.ended)
        steps = steps_until(local.shared_key, coin)
        # 1 - q_i = (1/τ_i - p)/(1 - p), the probability to rest instead of a step; none where τ_i ≥ 1/p.
        spare = jnp.maximum(1 / local.tau.astype(jnp.float32) - coin, 0)
        chance = spare / jnp.where(coin < 1, 1 - coin, 1)
        last = jnp.where(chance > 0, steps_until(local.key, chance), steps + 1)  # the step at which it comes to rest
        rests = last <= steps
        y = local.descend(x, shift=-h, steps=jnp.where(rests, last - 1, steps))
        shift = local.repeat(lambda _, key: local.oracle.full(y), h, steps=rests.astype(jnp.int32))
        return GradSkipClient(shift, y), y - local.eta / p * shift

    return Algorithm(
        "gradskip",
        ModelOnly,
        lambda x: GradSkipClient(0 * x, x),
        (Phase("model", lambda state: state.x, move_locally, take_mean),),
        requires=frozenset(
            [
                Requirement.ONE_STEP_SIZE,
                Requirement.EVERY_CLIENT,
                Requirement.OWN_MODEL,
                Requirement.MEAN_UPLOAD,
                Requirement.PLAIN_STEPS,
            ]
        ),
    )
