"""FedAvg: local gradient steps, then the mean of the models.

B. McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017.
"""

from typing import NamedTuple

from fedlin.algorithms.factory import factory
from fedlin.core import Algorithm, Central, Local, Message, Phase, Vector


class FedAvgServer(NamedTuple):
    """The model is all there is."""

    x: Vector  # x̄_t


@factory()
def fedavg() -> Algorithm[FedAvgServer, None]:
    """x ← x - η_i ∇f_i(x), τ_i times from x̄; x̄ ← mean of the clients' models.

    >>> fedavg() is fedavg()
    True
    """

    def move_locally(state: None, x: Vector, local: Local) -> tuple[None, Message]:
        return None, local.descend(x)

    def average_models(state: FedAvgServer, x: Vector, central: Central) -> FedAvgServer:
        return FedAvgServer(x)

    return Algorithm(
        "fedavg",
        FedAvgServer,
        lambda x: None,
        (Phase("model", lambda state: state.x, move_locally, average_models),),
    )
