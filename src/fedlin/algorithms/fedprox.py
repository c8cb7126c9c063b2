"""FedProx: local steps pulled back to the global model; FedAvg is FedProx without the pull.

T. Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020. The deterministic form of the
FedLin paper's equation for FedProx, with client-specific τ_i and η_i.
"""

from typing import NamedTuple

from fedlin.algorithms.factory import factory
from fedlin.checks import nonnegative
from fedlin.core import Algorithm, Central, Local, Message, Phase, Vector


class FedProxServer(NamedTuple):
    """The model is all there is."""

    x: Vector  # x̄_t


@factory(beta=nonnegative)
def fedprox(beta: float) -> Algorithm[FedProxServer, None]:
    """x ← x - η_i(∇f_i(x) + β(x - x̄)), τ_i times from x̄; x̄ ← mean of the clients' models.

    >>> fedprox(0.5).name
    'fedprox'
    """

    def move_locally(state: None, x: Vector, local: Local) -> tuple[None, Message]:
        return None, local.descend(x, pull=beta)

    def average_models(state: FedProxServer, x: Vector, central: Central) -> FedProxServer:
        return FedProxServer(x)

    return Algorithm(
        "fedprox",
        FedProxServer,
        lambda x: None,
        (Phase("model", lambda state: state.x, move_locally, average_models),),
    )
