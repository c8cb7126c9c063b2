"""FedPAQ: FedAvg whose local moves are compressed on the way up.

A. Reisizadeh et al., FedPAQ: A Communication-Efficient Federated Learning Method with Periodic Averaging and
Quantization, AISTATS 2020, Algorithm 1.
"""

from fedlin.algorithms.factory import factory
from fedlin.algorithms.model_only import ModelOnly
from fedlin.compressors import Compressor
from fedlin.core import Algorithm, Central, Local, Message, Phase, Vector
from fedlin.links import encoding_key, plain, private


@factory()
def fedpaq(compressor: Compressor) -> Algorithm[ModelOnly, None]:
    """x̄ ← x̄ + mean of Q(x_i - x̄), x_i after τ_i steps of size η_i from x̄; a private Q makes it a private FedAvg.

    Args:
        compressor: Q, unbiased.

    Returns:
        The method.

    >>> from fedlin.compressors import quantize
    >>> fedpaq(quantize(4)).name
    'fedpaq(quantize(4))'
    """

    link = plain(compressor)

    def move_locally(state: None, x: Vector, local: Local) -> tuple[None, Message]:
        return None, link.send(encoding_key(link, local, local.key), None, local.descend(x) - x)[0]

    def average_moves(state: ModelOnly, move: Vector, central: Central) -> ModelOnly:
        return ModelOnly(state.x + link.receive(None, move, central)[0])

    return Algorithm(
        f"fedpaq({compressor})",
        ModelOnly,
        lambda x: None,
        (Phase("model", lambda state: state.x, move_locally, average_moves),),
        check=compressor.check,
        mechanisms=private(link),
    )
