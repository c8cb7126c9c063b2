"""MARINA: gradient descent on an estimate that compressed gradient differences carry on, renewed in full now and then.

E. Gorbunov, K. Burlachenko, Z. Li, P. Richtárik, MARINA: Faster Non-Convex Distributed Learning with Compression, ICML
2021, Algorithm 1; written after MARINA in the code of DASHA's author (the baseline `dasha` of Flower). The proof stands
at `fedlin.theory.marina`.
"""

from typing import NamedTuple

from fedlin.algorithms.factory import factory
from fedlin.algorithms.unbiased import unbiased
from fedlin.checks import fraction
from fedlin.compressors import Compressor, identity
from fedlin.core import Algorithm, Central, Local, Message, Phase, Requirement, Vector
from fedlin.links import encoding_key


class MarinaServer(NamedTuple):
    """The model and the estimate of the gradient."""

    x: Vector  # x
    g: Vector  # g


class MarinaClient(NamedTuple):
    """The gradient at the last model."""

    grad: Vector  # ∇f_i(x⁻)


@factory(probability=fraction)
def marina(compressor: Compressor, probability: float) -> Algorithm[MarinaServer, MarinaClient]:
    """x ← x - ηg; g = mean ∇f_i(x) in the first round and with probability p, else g + mean C(∇f_i(x) - ∇f_i(x⁻)).

    x⁻ is the model of the round before. A coin that all share decides, so that no message has to say which it is. η is
    the plan's; its τ is not used. Gradients are exact even where the problem has mini-batches.

    Args:
        compressor: C, unbiased.
        probability: p, how often gradients are sent in full; k/d for RAND-k has both kinds of rounds send as much.

    Returns:
        The method.

    >>> from fedlin.compressors import rand_k
    >>> marina(rand_k(5, unbiased=True), probability=0.1).name
    'marina(rand_k(5, unbiased=True))'
    """
    unbiased(compressor, "MARINA")

    def phases(encoder: Compressor, whole: bool) -> tuple[Phase[MarinaServer, MarinaClient], ...]:
        def send(state: MarinaClient, x: Vector, local: Local) -> tuple[MarinaClient, Message]:
            grad = local.oracle.full(x)
            change = grad if whole else grad - state.grad
            return MarinaClient(grad), encoder.encode(encoding_key(encoder, local, local.key), change)

        def step(state: MarinaServer, mean: Vector, central: Central) -> MarinaServer:
            g = mean if whole else state.g + mean
            return MarinaServer(state.x - central.eta * g, g)

        return (Phase("gradient", lambda state: state.x, send, step, gradient=lambda state: state.g),)

    return Algorithm(
        f"marina({compressor})",
        lambda x: MarinaServer(x, 0 * x),
        lambda x: MarinaClient(0 * x),
        phases(compressor, whole=False),
        opening=phases(identity(), whole=True),
        renewal=probability,
        requires=frozenset([Requirement.EVERY_CLIENT, Requirement.MEAN_UPLOAD]),
        check=compressor.check,
    )
