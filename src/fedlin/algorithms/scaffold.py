"""SCAFFOLD: local steps corrected by control variates that both sides remember.

S. P. Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML 2020,
Algorithm 1, with client-specific τ_i and η_i.
"""

from typing import NamedTuple

import jax

from fedlin.algorithms.factory import factory
from fedlin.checks import one_of, positive
from fedlin.core import Algorithm, Central, Local, Message, Phase, Requirement, Vector


class ScaffoldServer(NamedTuple):
    """The model and the mean control variate."""

    x: Vector  # x
    c: Vector  # c


class ScaffoldClient(NamedTuple):
    """The client's own control variate."""

    c: Vector  # c_i


@factory(server_step=positive)
def scaffold(option: int = 2, server_step: float = 1.0) -> Algorithm[ScaffoldServer, ScaffoldClient]:
    """y ← y - η_i(∇f_i(y) - c_i + c), τ_i times from x; x ← x + η_g mean(y - x); c_i by option I or II.

    Option I takes c_i⁺ = ∇f_i(x), a gradient more; option II takes c_i⁺ = c_i - c + (x - y)/(τ_i η_i).

    Args:
        option: 1 or 2, how a client renews c_i.
        server_step: η_g.

    Returns:
        The method.

    >>> scaffold().name
    'scaffold'
    """
    one_of("option", option, (1, 2))

    def move_locally(
        state: ScaffoldClient, message: tuple[Vector, Vector], local: Local
    ) -> tuple[ScaffoldClient, Message]:
        x, c = message
        y = local.descend(x, shift=c - state.c)
        if option == 1:
            fresh = local.oracle.grad(x, jax.random.fold_in(local.key, 1))
        else:
            fresh = state.c - c + (x - y) / (local.tau.astype(x.dtype) * local.eta)
        return ScaffoldClient(fresh), (y - x, fresh - state.c)

    def average(state: ScaffoldServer, message: tuple[Vector, Vector], central: Central) -> ScaffoldServer:
        move, change = message
        return ScaffoldServer(state.x + server_step * move, state.c + central.participation * change)

    return Algorithm(
        "scaffold",
        lambda x: ScaffoldServer(x, 0 * x),
        lambda x: ScaffoldClient(0 * x),
        (Phase("model", lambda state: (state.x, state.c), move_locally, average),),
        # Option II reads the gradients off the way that was gone.
        requires=frozenset([Requirement.MEAN_UPLOAD, *([Requirement.PLAIN_STEPS] if option == 2 else [])]),
    )
