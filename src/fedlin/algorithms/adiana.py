"""ADIANA: DIANA with Nesterov's momentum; clients send two compressed gradient differences, at x and at an anchor w.

Z. Li, D. Kovalev, X. Qian, P. Richtárik, Acceleration for Compressed Gradient Descent in Distributed and Federated
Optimization, ICML 2020, Algorithm 2; written after its authors' later code (Rustem-Islamov/FedNL-Public).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedlin.algorithms.factory import factory
from fedlin.algorithms.unbiased import unbiased
from fedlin.checks import fraction, positive
from fedlin.compressors import Compressor
from fedlin.core import Algorithm, Central, Local, Message, Phase, Requirement, Scalar, Vector
from fedlin.links import encoding_key

_SECOND = 1 / 2  # θ₂


class AdianaServer(NamedTuple):
    """The three sequences, the anchor, the mean shift and the point where gradients are asked for."""

    x: Vector  # y, the model
    z: Vector  # z
    w: Vector  # w, the anchor
    h: Vector  # mean of h_i
    at: Vector  # x


class AdianaClient(NamedTuple):
    """The shift."""

    h: Vector  # h_i


class Points(NamedTuple):
    """Where gradients are asked for, or what they are compressed to: a message of two vectors."""

    at: Message  # x
    w: Message  # w


@factory(alpha=fraction, probability=fraction, strong_convexity=positive)
def adiana(
    compressor: Compressor, alpha: float, probability: float, strong_convexity: float | None = None
) -> Algorithm[AdianaServer, AdianaClient]:
    """x = θ₁z + w/2 + (1/2 - θ₁)y, g = h + mean C(∇f_i(x) - h_i), y⁺ = x - ηg, z ← βz + (1 - β)x + (γ/η)(y⁺ - x).

    h_i ← h_i + α C(∇f_i(w) - h_i), and w ← y with probability q. θ₁ = min{1/4, √(ημ/q)}, γ = η/(2(θ₁ + ημ)),
    β = 1 - γμ. η is the plan's; its τ is not used.

    Args:
        compressor: C, unbiased.
        alpha: α, how fast h_i follows; 1/(1 + ω) suits every C.
        probability: q, how often the anchor moves; `theory.adiana_probability` is its authors'.
        strong_convexity: μ; the problem's unless given.

    Returns:
        The method.

    >>> from fedlin.compressors import quantize
    >>> adiana(quantize(4), 0.5, 0.25).name
    'adiana(quantize(4))'
    """
    unbiased(compressor, "ADIANA")

    def middle(eta: Scalar) -> Scalar:
        assert strong_convexity is not None
        return jnp.minimum(1 / 4, jnp.sqrt(eta * strong_convexity / probability))  # θ₁

    def send_differences(state: AdianaClient, points: Points, local: Local) -> tuple[AdianaClient, Message]:
        first, second, draw = jax.random.split(local.key, 3)
        here = compressor.encode(encoding_key(compressor, local, first), local.oracle.grad(points.at, draw) - state.h)
        there = compressor.encode(encoding_key(compressor, local, second), local.oracle.grad(points.w, draw) - state.h)
        return AdianaClient(state.h + alpha * there.decode()), Points(here, there)

    def step(state: AdianaServer, means: Points, central: Central) -> AdianaServer:
        assert strong_convexity is not None
        eta, mu = central.eta, strong_convexity
        theta = middle(eta)
        gamma = eta / (2 * (theta + eta * mu))  # γ
        beta = 1 - gamma * mu  # β
        grad = state.h + means.at
        y = state.at - eta * grad
        z = beta * state.z + (1 - beta) * state.at + gamma / eta * (y - state.at)
        # In one precision for every model, so that the coin falls the same way whatever x is.
        falls = jax.random.uniform(central.key, (), jnp.float32) < jnp.asarray(probability, jnp.float32)
        w = jnp.where(falls, state.x, state.w)
        at = theta * z + _SECOND * w + (1 - theta - _SECOND) * y
        return AdianaServer(y, z, w, state.h + alpha * means.w, at)

    required = {
        Requirement.ONE_STEP_SIZE,
        Requirement.EVERY_CLIENT,
        Requirement.OWN_MODEL,
        Requirement.MEAN_UPLOAD,
    }
    if strong_convexity is None:
        required.add(Requirement.STRONG_CONVEXITY)
    return Algorithm(
        f"adiana({compressor})",
        lambda x: AdianaServer(x, x, x, jnp.zeros_like(x), x),
        lambda x: AdianaClient(jnp.zeros_like(x)),
        (Phase("gradient", lambda state: Points(state.at, state.w), send_differences, step),),
        requires=frozenset(required),
        check=compressor.check,
    )
