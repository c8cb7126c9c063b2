"""FedLin whose local steps are Newton's: a client turns the mean gradient by its own curvature, which never travels.

With one local step it is GIANT (S. Wang, F. Roosta-Khorasani, P. Xu, M. Mahoney, GIANT: Globally Improved Approximate
Newton Method for Distributed Optimization, NeurIPS 2018) without its line search; with so many that local problems are
solved it is DANE (O. Shamir, N. Srebro, T. Zhang, Communication-Efficient Distributed Optimization Using an Approximate
Newton-Type Method, ICML 2014). Written from their equations, which we know from memory. Links go beyond both.
"""

from jax.scipy.linalg import cho_factor, cho_solve

from fedlin.algorithms.factory import factory
from fedlin.algorithms.fedlin_rounds import FedLinClient, FedLinServer, Links, fedlin_rounds
from fedlin.compressors import Compressor, identity
from fedlin.core import Algorithm, Key, Local, Requirement, Vector
from fedlin.links import Link, as_link


@factory()
def fedlin_newton(
    *,
    uplink: Link | Compressor = identity(),  # noqa: B008 - cached, and immutable
    downlink: Link | Compressor = identity(),  # noqa: B008
    model_uplink: Link | Compressor = identity(),  # noqa: B008
    model_downlink: Link | Compressor = identity(),  # noqa: B008
) -> Algorithm[FedLinServer, FedLinClient]:
    """x ← x - η_i ∇²f_i(x)⁻¹(∇f_i(x) - ∇f_i(x̄) + g), τ_i times from x̄; messages are FedLin's.

    How fast it is depends on how much the clients' curvatures differ, and not on how badly conditioned they are:
    `theory.fedlin_newton` has the step and the rate. A bare compressor means its error feedback. Of the first round the
    model alone is sent in full.

    Args:
        uplink: For the gradients ∇f_i(x̄) that clients send. These do not vanish at x*, so that a link that loses
            anything has to send changes: innovation(nearest(127)) does.
        downlink: For the mean gradient g that the server broadcasts. It vanishes, and plain(nearest(127)) is exact.
        model_uplink: For the moves of the clients' models, which vanish too.
        model_downlink: For the move of the server's model; where it loses anything clients add the moves up, and
            nobody may miss a round.

    Returns:
        The method.

    >>> fedlin_newton().name
    'fedlin_newton'
    """
    links = Links(
        as_link(uplink, "uplink"),
        as_link(downlink, "downlink"),
        as_link(model_uplink, "model_uplink"),
        as_link(model_downlink, "model_downlink"),
    )

    def newton(local: Local, x: Vector, g: Vector, grad: Vector) -> Vector:
        def step(y: Vector, key: Key) -> Vector:
            factor = cho_factor(local.oracle.hessian(y))
            moved: Vector = y - local.eta * cho_solve(factor, local.oracle.full(y) - grad + g)
            return moved

        return local.repeat(step, x)

    return fedlin_rounds(
        "fedlin_newton",
        links,
        newton,
        exact_gradients=True,
        opens_in_full=False,
        requires=[Requirement.HESSIAN, Requirement.STRONG_CONVEXITY, Requirement.PLAIN_STEPS],
    )
