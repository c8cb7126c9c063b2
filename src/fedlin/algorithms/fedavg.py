"""FedAvg: local gradient steps, then the mean of the models.

B. McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017.
"""

from fedlin.algorithms.factory import factory
from fedlin.algorithms.model_only import ModelOnly, take_mean
from fedlin.core import Algorithm, Local, Message, Phase, Vector


@factory()
def fedavg() -> Algorithm[ModelOnly, None]:
    """x ← x - η_i ∇f_i(x), τ_i times from x̄; x̄ ← mean of the clients' models.

    Returns:
        The method.

    >>> fedavg() is fedavg()
    True
    """

    def move_locally(state: None, x: Vector, local: Local) -> tuple[None, Message]:
        return None, local.descend(x)

    return Algorithm(
        "fedavg",
        ModelOnly,
        lambda x: None,
        (Phase("model", lambda state: state.x, move_locally, take_mean),),
    )
