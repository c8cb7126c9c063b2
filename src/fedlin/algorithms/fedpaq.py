"""FedPAQ: FedAvg whose local moves are compressed on the way up.

A. Reisizadeh et al., FedPAQ: A Communication-Efficient Federated Learning Method with Periodic Averaging and
Quantization, AISTATS 2020, Algorithm 1.
"""

from typing import NamedTuple

from fedlin.algorithms.factory import factory
from fedlin.compressors import Compressor
from fedlin.core import Algorithm, Central, Local, Message, Phase, Vector


class FedPAQServer(NamedTuple):
    """The model is all there is."""

    x: Vector  # x̄


@factory()
def fedpaq(compressor: Compressor) -> Algorithm[FedPAQServer, None]:
    """x̄ ← x̄ + mean of Q(x_i - x̄), x_i after τ_i steps of size η_i from x̄.

    >>> from fedlin.compressors import quantize
    >>> fedpaq(quantize(4)).name
    'fedpaq(quantize(4))'
    """

    def move_locally(state: None, x: Vector, local: Local) -> tuple[None, Message]:
        return None, compressor.encode(local.key, local.descend(x) - x)

    def average_moves(state: FedPAQServer, move: Vector, central: Central) -> FedPAQServer:
        return FedPAQServer(state.x + move)

    return Algorithm(
        f"fedpaq({compressor})",
        FedPAQServer,
        lambda x: None,
        (Phase("model", lambda state: state.x, move_locally, average_moves),),
        check=compressor.check,
    )
