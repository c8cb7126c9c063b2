"""S-Local-SVRG: local steps on mini-batches, corrected at a reference point that everyone renews together.

E. Gorbunov, F. Hanzely, P. Richtárik, Local SGD: Unified Theory and New Efficient Methods, AISTATS 2021, S-Local-SVRG,
with τ local steps between two communications.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedlin.algorithms.factory import factory
from fedlin.checks import fraction
from fedlin.core import Algorithm, Central, Key, Local, Message, Phase, Requirement, Scalar, Vector


class SvrgServer(NamedTuple):
    """The model and the gradient at the reference point."""

    x: Vector  # x
    g: Vector  # ∇f(y)
    begun: Scalar  # whether there is a reference point yet


class SvrgClient(NamedTuple):
    """Between rounds `x` is None."""

    x: Vector | None  # x
    y: Vector  # y, the reference point
    begun: Scalar


@factory(renewal=fraction)
def s_local_svrg(renewal: float) -> Algorithm[SvrgServer, SvrgClient]:
    """x_i ← x_i - η_i(∇f_ij(x_i) - ∇f_ij(y) + ∇f(y)), τ_i times from x, one draw j for both; x ← mean of x_i.

    Before a round y ← x with probability `renewal` (q), by a coin all share, and only then full gradients are taken; in
    the first round always. With q = 1 it is same-batch FedLin. Every round sends its gradient message, whatever the
    coin says, so q saves gradients and no bytes.

    Args:
        renewal: q, the probability that a round begins with a new reference point.

    Returns:
        The method.

    >>> s_local_svrg(0.25).name
    's_local_svrg'
    """

    def falls(begun: Scalar, key: Key) -> Scalar:
        # In one precision for every model, so that the coin falls the same way whatever x is.
        return ~begun | (jax.random.uniform(key, (), jnp.float32) < jnp.asarray(renewal, jnp.float32))

    def renew(state: SvrgClient, x: Vector, local: Local) -> tuple[SvrgClient, Message]:
        coin = falls(state.begun, local.shared_key)
        grad = local.repeat(lambda _, key: local.oracle.full(x), 0 * x, steps=coin.astype(jnp.int32))
        return SvrgClient(x, jnp.where(coin, x, state.y), state.begun | coin), grad

    def average_gradients(state: SvrgServer, grad: Vector, central: Central) -> SvrgServer:
        coin = falls(state.begun, central.shared_key)
        return SvrgServer(state.x, jnp.where(coin, grad, state.g), state.begun | coin)

    def move_locally(state: SvrgClient, g: Vector, local: Local) -> tuple[SvrgClient, Message]:
        assert state.x is not None
        return state._replace(x=None), local.descend(state.x, shift=g, anchor=state.y)

    def average_models(state: SvrgServer, x: Vector, central: Central) -> SvrgServer:
        return state._replace(x=x)

    return Algorithm(
        "s_local_svrg",
        lambda x: SvrgServer(x, jnp.zeros_like(x), jnp.zeros((), bool)),
        lambda x: SvrgClient(None, x, jnp.zeros((), bool)),
        (
            Phase("gradient", lambda state: state.x, renew, average_gradients),
            Phase("model", lambda state: state.g, move_locally, average_models),
        ),
        requires=frozenset([Requirement.EVERY_CLIENT]),
    )
