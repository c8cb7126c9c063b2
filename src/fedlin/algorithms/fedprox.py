"""FedProx: local steps pulled back to the global model; FedAvg is FedProx without the pull.

T. Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020. The deterministic form of the
FedLin paper's equation for FedProx, with client-specific τ_i and η_i.
"""

from fedlin.algorithms.factory import factory
from fedlin.algorithms.model_only import ModelOnly, take_mean
from fedlin.checks import nonnegative
from fedlin.core import Algorithm, Local, Message, Phase, Vector


@factory(beta=nonnegative)
def fedprox(beta: float) -> Algorithm[ModelOnly, None]:
    """x ← x - η_i(∇f_i(x) + β(x - x̄)), τ_i times from x̄; x̄ ← mean of the clients' models.

    Args:
        beta: β ≥ 0, how strongly a client is held to x̄.

    Returns:
        The method.

    >>> fedprox(0.5).name
    'fedprox'
    """

    def move_locally(state: None, x: Vector, local: Local) -> tuple[None, Message]:
        return None, local.descend(x, pull=beta)

    return Algorithm(
        "fedprox",
        ModelOnly,
        lambda x: None,
        (Phase("model", lambda state: state.x, move_locally, take_mean),),
    )
