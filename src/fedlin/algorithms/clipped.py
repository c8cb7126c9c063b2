"""Gradient clipping: no gradient of a client is longer than a bound, so that none that explodes moves its model far.

R. Pascanu, T. Mikolov, Y. Bengio, On the Difficulty of Training Recurrent Neural Networks, ICML 2013, Algorithm 1.
"""

import jax.numpy as jnp

from fedlin.algorithms.factory import factory
from fedlin.algorithms.wrap import with_gradients, wrap
from fedlin.checks import positive
from fedlin.core import Algorithm, Method, Requirement, Vector
from fedlin.errors import ArgumentError


@factory(norm=positive)
def clipped(method: Method, norm: float) -> Method:
    """The method with min(1, c/‖g‖) g in place of every gradient g that a client takes, estimates included.

    Where a step takes the difference of two gradients of one draw (`same_batch`), g is that difference.

    Args:
        method: Any method that takes gradients. Local steps are taken one by one, also where the problem knows better.
        norm: c, the longest a gradient may be.

    Returns:
        The clipped method. Where gradients at x* are longer than c it ends elsewhere.

    >>> import fedlin
    >>> clipped(fedlin.fedavg(), norm=1.0).name
    'clipped(fedavg)'
    """
    if isinstance(method, Algorithm) and Requirement.PROX in method.requires:
        raise ArgumentError(
            f"{method.name} takes proximal steps and no gradients, so there is nothing to clip: give it steps=, or "
            "wrap another method."
        )

    def clip(grad: Vector) -> Vector:
        return grad * jnp.minimum(1, norm / jnp.linalg.norm(grad))  # a gradient of length 0 stays: min{1, ∞} is 1

    return wrap(method, "clipped", local=lambda local: with_gradients(local, clip))
