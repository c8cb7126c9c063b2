"""FedLin: local steps corrected by remembered gradients, and links around every message.

A. Mitra, R. Jaafar, G. Pappas, H. Hassani, Linear Convergence in Federated Learning: Tackling Client
Heterogeneity and Sparse Gradients, NeurIPS 2021, Algorithm 1. Links on models go beyond the paper.
"""

from fedlin.algorithms.factory import factory
from fedlin.algorithms.fedlin_rounds import FedLinClient, FedLinServer, Links, fedlin_rounds
from fedlin.checks import true_or_false
from fedlin.compressors import Compressor, identity
from fedlin.core import Algorithm, Local, Vector
from fedlin.links import Link, as_link


@factory()
def fedlin(
    *,
    uplink: Link | Compressor = identity(),  # noqa: B008 - cached, and immutable
    downlink: Link | Compressor = identity(),  # noqa: B008
    model_uplink: Link | Compressor = identity(),  # noqa: B008
    model_downlink: Link | Compressor = identity(),  # noqa: B008
    same_batch: bool = False,
) -> Algorithm[FedLinServer, FedLinClient]:
    """x ← x - η_i(∇f_i(x) - ∇f_i(x̄) + g), τ_i times from x̄; gradients and models travel through links.

    A bare compressor means its error feedback. The first round is sent in full, so that g_1 = ∇f(x̄_1).

    Args:
        uplink: For the gradients ∇f_i(x̄) that clients send.
        downlink: For the mean gradient g that the server broadcasts.
        model_uplink: For the moves of the clients' models.
        model_downlink: For the move of the server's model; where it loses anything clients add the moves up, and
            nobody may miss a round.
        same_batch: With a noisy oracle, take g from exact gradients and each local step's estimates at x and at x̄ from
            one draw, so that the noise vanishes with the distance (as in SVRG) and the rate stays linear.

    Returns:
        The method.

    >>> from fedlin.compressors import top_k
    >>> fedlin(uplink=top_k(10)).name
    'fedlin(uplink=error_feedback(top_k(10)))'
    """
    links = Links(
        as_link(uplink, "uplink"),
        as_link(downlink, "downlink"),
        as_link(model_uplink, "model_uplink"),
        as_link(model_downlink, "model_downlink"),
    )
    true_or_false("same_batch", same_batch)

    def descend(local: Local, x: Vector, g: Vector, grad: Vector) -> Vector:
        if same_batch:
            return local.descend(x, shift=g, anchor=x)
        return local.descend(x, shift=g - grad)  # line 5

    return fedlin_rounds("fedlin", links, descend, options=["same_batch=True"] * same_batch, exact_gradients=same_batch)
