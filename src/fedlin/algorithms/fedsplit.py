"""FedSplit: Peaceman-Rachford splitting, with exact proximal steps or a few gradient steps in their place.

R. Pathak, M. Wainwright, FedSplit: An Algorithmic Framework for Fast Federated Optimization, NeurIPS 2020;
as in the FedLin paper's Appendix on FedSplit.
"""

from typing import NamedTuple

from fedlin.algorithms.factory import factory
from fedlin.algorithms.model_only import ModelOnly
from fedlin.checks import nonnegative, one_of, positive, positive_integer
from fedlin.core import Algorithm, Central, Local, Message, Phase, Requirement, Vector


class FedSplitClient(NamedTuple):
    """The client's centred model."""

    z: Vector  # z_i


@factory(smoothness=positive, strong_convexity=nonnegative)
def fedsplit(
    steps: int | None = None,
    start: str = "u",
    smoothness: float | None = None,
    strong_convexity: float | None = None,
) -> Algorithm[ModelOnly, FedSplitClient]:
    """y_i ≈ prox_{s f_i}(2x̄ - z_i); z_i ← z_i + 2(y_i - x̄); x̄ ← mean of z_i, with s the plan's η_i.

    The plan's τ is not used.

    Args:
        steps: e, the gradient steps of size 2/(L + μ + 2/s) in place of the exact proximal operator,
            which is used unless given.
        start: Where these steps begin: "u" for 2x̄ - z_i, "model" for x̄.
        smoothness: L; the problem's unless given.
        strong_convexity: μ; the problem's unless given.

    Returns:
        The method.

    >>> fedsplit(steps=3, start="model").name
    'fedsplit'
    """
    one_of("start", start, ("u", "model"))
    if steps is not None:
        positive_integer("steps", steps)

    def split(state: FedSplitClient, x: Vector, local: Local) -> tuple[FedSplitClient, Message]:
        u = 2 * x - state.z
        s = local.eta
        if steps is None:
            y = local.oracle.prox(u, s)
        else:
            assert smoothness is not None
            assert strong_convexity is not None
            y = local.descend(
                u if start == "u" else x,
                pull=1 / s,
                center=u,
                steps=steps,
                eta=2 / (smoothness + strong_convexity + 2 / s),
            )
        change = 2 * (y - x)
        return FedSplitClient(state.z + change), change

    def average(state: ModelOnly, change: Vector, central: Central) -> ModelOnly:
        # x̄ is the mean of all z_i, and the absent have not changed theirs.
        return ModelOnly(state.x + central.participation * change)

    return Algorithm(
        "fedsplit",
        ModelOnly,
        FedSplitClient,
        (Phase("split", lambda state: state.x, split, average),),
        requires=frozenset(
            [
                Requirement.OWN_MODEL,
                Requirement.MEAN_UPLOAD,
                Requirement.PROX if steps is None else Requirement.PLAIN_STEPS,
            ]
        ),
    )
