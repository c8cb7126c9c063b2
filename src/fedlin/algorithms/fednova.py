"""FedNova: local moves normalised by their number of steps before they are averaged.

J. Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization,
NeurIPS 2020, with gradient descent as the local solver, as in the FedLin paper's Section 2.
"""

from fedlin.algorithms.factory import factory
from fedlin.algorithms.model_only import ModelOnly
from fedlin.core import Algorithm, Central, Local, Message, Phase, Requirement, Vector


@factory()
def fednova() -> Algorithm[ModelOnly, None]:
    """x̄ ← x̄ + τ_eff · mean of (x_{i,τ_i} - x̄)/τ_i, τ_eff the mean of τ_i: one η for all clients.

    Returns:
        The method.

    >>> sorted(fednova().requires)
    [<Requirement.PLAIN_STEPS: 'local steps that are η_i times a gradient'>,
     <Requirement.ONE_STEP_SIZE: 'one step size for all clients'>]
    """

    def move_locally(state: None, x: Vector, local: Local) -> tuple[None, Message]:
        tau = local.tau.astype(x.dtype)
        return None, ((local.descend(x) - x) / tau, tau)

    def average_moves(state: ModelOnly, message: tuple[Vector, Vector], central: Central) -> ModelOnly:
        move, tau_eff = message  # the mean of τ_i is τ_eff
        return ModelOnly(state.x + tau_eff * move)

    return Algorithm(
        "fednova",
        ModelOnly,
        lambda x: None,
        (Phase("model", lambda state: state.x, move_locally, average_moves),),
        requires=frozenset([Requirement.ONE_STEP_SIZE, Requirement.PLAIN_STEPS]),
    )
