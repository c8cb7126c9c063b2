"""FedCOMGATE: local steps with gradient tracking, whose moves are compressed on the way up.

F. Haddadpour, M. M. Kamani, A. Mokhtari, M. Mahdavi, Federated Learning with Compression: Unified Analysis and Sharp
Guarantees, AISTATS 2021, Algorithm 3. The authors' code (FedTorch, `fedgate.py`) differs from it: there δ_i moves by
the client's own direction before quantising, less the mean after. Then the δ_i no longer sum to zero, every round's
error of quantising stays in their sum, and the method comes to rest where ∇f(x) is that sum's mean, not at x*.
"""

from fedlin.algorithms.factory import factory
from fedlin.algorithms.tracked import tracked_descent
from fedlin.algorithms.unbiased import unbiased
from fedlin.checks import positive
from fedlin.compressors import Compressor
from fedlin.core import Method


@factory(server_step=positive)
def fedcomgate(compressor: Compressor, server_step: float = 1.0) -> Method:
    """Local steps along ∇f_i - δ_i; x ← x - γητ Δ, δ_i ← δ_i + Δ_i - Δ, Δ_i = Q(the mean direction), Δ the mean of Δ_i.

    At x* with δ_i = ∇f_i(x*) nobody moves and there is nothing to quantise, so an unbiased Q of small variance leads
    there exactly. The δ_i begin at zero, so that the first rounds are FedAvg's and may lead away from x*. They learn at
    full pace (DIANA with α = 1), so the error they keep grows with ω: Q needs ω well below 1. Without compression it is
    SCAFFOLD's option II, at half the bytes up.

    Args:
        compressor: Q, unbiased.
        server_step: γ.

    Returns:
        The method.

    >>> from fedlin.compressors import quantize
    >>> fedcomgate(quantize(4)).name
    'fedcomgate(quantize(4))'
    """
    quantiser = unbiased(compressor, "FedCOMGATE")
    return tracked_descent(f"fedcomgate({compressor})", quantiser, server_step, from_gradients=False)
