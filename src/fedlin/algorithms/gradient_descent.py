"""Gradient descent on f, the centralised baseline: one gradient of every client a round."""

from typing import NamedTuple

from fedlin.algorithms.factory import factory
from fedlin.core import Algorithm, Central, Local, Message, Phase, Vector


class GradientDescentServer(NamedTuple):
    """The model is all there is."""

    x: Vector  # x̄_t


@factory()
def gradient_descent() -> Algorithm[GradientDescentServer, None]:
    """x̄ ← x̄ - Σ w_i η_i ∇f_i(x̄): gradient descent when all η_i are equal. The plan's τ is not used.

    >>> gradient_descent().name
    'gradient_descent'
    """

    def step(state: None, x: Vector, local: Local) -> tuple[None, Message]:
        return None, x - local.eta * local.oracle.grad(x, local.key)

    def average(state: GradientDescentServer, x: Vector, central: Central) -> GradientDescentServer:
        return GradientDescentServer(x)

    return Algorithm(
        "gradient_descent",
        GradientDescentServer,
        lambda x: None,
        (Phase("step", lambda state: state.x, step, average),),
    )
