"""Gradient descent on f, the centralised baseline: one gradient of every client a round."""

from fedlin.algorithms.factory import factory
from fedlin.algorithms.model_only import ModelOnly, take_mean
from fedlin.core import Algorithm, Local, Message, Phase, Vector


@factory()
def gradient_descent() -> Algorithm[ModelOnly, None]:
    """x̄ ← x̄ - Σ w_i η_i ∇f_i(x̄): gradient descent when all η_i are equal. The plan's τ is not used.

    Returns:
        The method.

    >>> gradient_descent().name
    'gradient_descent'
    """

    def step(state: None, x: Vector, local: Local) -> tuple[None, Message]:
        return None, x - local.eta * local.oracle.grad(x, local.key)

    return Algorithm(
        "gradient_descent",
        ModelOnly,
        lambda x: None,
        (Phase("step", lambda state: state.x, step, take_mean),),
    )
