"""LoCoDL: local steps until a shared coin falls, and then differences to a second model, compressed without bias.

L. Condat, A. Maranjyan, P. Richtárik, LoCoDL: Communication-Efficient Distributed Learning with Local Training and
Compression, ICLR 2025. Written from memory of Algorithm 1, whose text was out of reach, and held to the proof that
stands at `fedlin.theory.locodl`.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fedlin.algorithms.factory import factory
from fedlin.algorithms.shared_coin import steps_until
from fedlin.algorithms.unbiased import unbiased
from fedlin.checks import fraction, positive
from fedlin.compressors import Compressor
from fedlin.core import Algorithm, Central, Key, Local, Message, Phase, Requirement, Scalar, Vector
from fedlin.links import encoding_key


class SecondModel(NamedTuple):
    """What the server and every client alike know without a message: the second model y and its control variate."""

    x: Vector  # y, the model
    v: Vector  # v


class LocodlServer(NamedTuple):
    """The second model and what is broadcast."""

    x: Vector  # y
    v: Vector  # v
    mean: Vector  # d̄, half of the mean of what clients sent


class LocodlClient(NamedTuple):
    """The client's model and control variate, the second model, and what the last round left to do with d̄."""

    x: Vector  # x̂_i
    u: Vector  # u_i
    second: SecondModel  # ŷ and v
    sent: Vector  # d_i


@factory(probability=fraction, pace=fraction, strong_convexity=positive)
def locodl(
    compressor: Compressor, probability: float, pace: float, strong_convexity: float | None = None
) -> Algorithm[LocodlServer, LocodlClient]:
    """Until a coin of probability p falls: x_i ← x_i - γ(∇f_i(x_i) - νx_i - u_i), y ← y - γ(νy - v), ν = μ/2; then

    d_i = C(x_i - y), d̄ = (1/2m) Σ d_i, x_i ← (1 - ρ)x_i + ρ(y + d̄), u_i ← u_i + (pρ/(γ(1 + 2ω)))(d̄ - d_i),
    y ← y + ρd̄, v ← v + (pρ/(γ(1 + 2ω))) d̄. γ is the plan's η, and its τ is not used. The model is y. The objective
    is split into f_i - (ν/2)‖x‖², which the clients have, and (ν/2)‖y‖², whose steps everyone takes; so the broadcast
    is d̄ alone.

    Args:
        compressor: C, unbiased.
        probability: p; a round takes 1/p local steps on average.
        pace: ρ; 1/(1 + ω/m) is proven and best.
        strong_convexity: μ; the problem's unless given.

    Returns:
        The method.

    >>> from fedlin.compressors import rand_k
    >>> locodl(rand_k(5, unbiased=True), probability=0.1, pace=0.5).name
    'locodl(rand_k(5, unbiased=True))'
    """
    omega = unbiased(compressor, "LoCoDL").omega
    assert omega is not None

    def dual_step(eta: Scalar, dim: int) -> Scalar:
        return probability * pace / (eta * (1 + 2 * omega(dim)))

    def weight(x: Vector) -> Scalar:
        assert strong_convexity is not None
        return jnp.asarray(strong_convexity, x.dtype) / 2  # ν

    def roll(second: SecondModel, eta: Scalar, steps: Scalar) -> SecondModel:
        """T steps y ← y - γ(νy - v), which a geometric sum gives."""
        shrink = 1 - eta * weight(second.x)
        power = shrink ** steps.astype(second.x.dtype)
        limit = second.v / weight(second.x)
        return second._replace(x=limit + power * (second.x - limit))

    def count(key: Key) -> Scalar:
        return steps_until(key, jnp.asarray(probability, jnp.float32))

    def move_locally(state: LocodlClient, mean: Vector, local: Local) -> tuple[LocodlClient, Message]:
        dual = dual_step(local.eta, mean.shape[0])
        before = state.second
        x = (1 - pace) * state.x + pace * (before.x + mean)
        u = state.u + dual * (mean - state.sent)
        steps = count(local.shared_key)
        second = roll(SecondModel(before.x + pace * mean, before.v + dual * mean), local.eta, steps)
        # ∇f_i(x) - νx as a pull of strength -ν towards zero.
        x = local.descend(x, shift=-u, pull=-weight(x), center=jnp.zeros(x.shape, x.dtype), steps=steps)
        payload = compressor.encode(encoding_key(compressor, local, local.key), x - second.x)
        return LocodlClient(x, u, second, payload.decode()), payload

    def average(state: LocodlServer, message: Vector, central: Central) -> LocodlServer:
        mean = message / 2
        second = roll(SecondModel(state.x, state.v), central.eta, count(central.shared_key))
        dual = dual_step(central.eta, mean.shape[0])
        return LocodlServer(second.x + pace * mean, second.v + dual * mean, mean)

    required = {
        Requirement.ONE_STEP_SIZE,
        Requirement.EVERY_CLIENT,
        Requirement.OWN_MODEL,
        Requirement.MEAN_UPLOAD,
        Requirement.PLAIN_STEPS,
    }
    if strong_convexity is None:
        required.add(Requirement.STRONG_CONVEXITY)
    return Algorithm(
        f"locodl({compressor})",
        lambda x: LocodlServer(x, 0 * x, 0 * x),
        lambda x: LocodlClient(x, 0 * x, SecondModel(x, 0 * x), 0 * x),
        (Phase("difference", lambda state: state.mean, move_locally, average),),
        requires=frozenset(required),
        check=compressor.check,
    )
