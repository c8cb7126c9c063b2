"""FedAc: local steps of an accelerated method, whose two sequences are averaged together.

H. Yuan, T. Ma, Federated Accelerated Stochastic Gradient Descent, NeurIPS 2020, Algorithm 1 with the
hyperparameters of FedAc-I.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fedlin.algorithms.factory import factory
from fedlin.checks import positive
from fedlin.core import Algorithm, Central, Key, Local, Phase, Requirement, Vector


class FedAcState(NamedTuple):
    """The two sequences; the model is the aggregated one."""

    x: Vector  # w^ag
    w: Vector  # w


@factory(strong_convexity=positive)
def fedac(strong_convexity: float | None = None) -> Algorithm[FedAcState, None]:
    """w^md = w/β + (1 - 1/β)w^ag, g = ∇f_i(w^md); w^ag ← w^md - ηg, w ← (1 - 1/α)w + w^md/α - γg; τ times, then means.

    γ = max(√(η/(μτ)), η), α = 1/(γμ), β = α + 1; μ is the problem's unless given. With τ = 1 it is Nesterov's method
    and takes O(√κ log 1/ε) rounds; with more local steps it drifts where clients differ, as FedAvg does.

    Args:
        strong_convexity: μ; the problem's unless given.

    Returns:
        The method.

    >>> fedac().name
    'fedac'
    """

    def move_locally(state: None, start: FedAcState, local: Local) -> tuple[None, FedAcState]:
        assert strong_convexity is not None
        eta = local.eta
        gamma = jnp.maximum(jnp.sqrt(eta / (strong_convexity * local.tau.astype(eta.dtype))), eta)  # γ
        pace = gamma * strong_convexity  # 1/α
        blend = pace / (1 + pace)  # 1/β

        def step(at: FedAcState, key: Key) -> FedAcState:
            middle = blend * at.w + (1 - blend) * at.x  # w^md
            grad = local.oracle.grad(middle, key)
            return FedAcState(middle - eta * grad, (1 - pace) * at.w + pace * middle - gamma * grad)

        return None, local.repeat(step, start)

    def average(state: FedAcState, mean: FedAcState, central: Central) -> FedAcState:
        return mean

    required = {
        Requirement.ONE_STEP_SIZE,
        Requirement.ONE_STEP_COUNT,
        Requirement.OWN_MODEL,
        Requirement.PLAIN_STEPS,
    }
    if strong_convexity is None:
        required.add(Requirement.STRONG_CONVEXITY)
    return Algorithm(
        "fedac",
        lambda x: FedAcState(x, x),
        lambda x: None,
        (Phase("model", lambda state: state, move_locally, average),),
        requires=frozenset(required),
    )
