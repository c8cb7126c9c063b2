"""DIANA: gradient descent on unbiased estimates of gradients, compressed as differences to a learned shift.

K. Mishchenko et al., Distributed Learning with Compressed Gradient Differences, 2019, Algorithm 1.
"""

from fedlin.algorithms.factory import factory
from fedlin.algorithms.linked_descent import linked_descent
from fedlin.algorithms.unbiased import unbiased
from fedlin.compressors import Compressor
from fedlin.core import Method
from fedlin.links import shifted


@factory()
def diana(compressor: Compressor, alpha: float) -> Method:
    """x ← x - η mean(h_i + C(∇f_i(x) - h_i)), h_i ← h_i + α C(∇f_i(x) - h_i), C unbiased. τ is not used.

    Args:
        compressor: C, unbiased.
        alpha: α, how fast h_i follows, in (0, 1]; 1/(1 + ω) suits every C.

    Returns:
        The method.

    >>> from fedlin.compressors import quantize
    >>> diana(quantize(4), 0.5).name
    'diana(quantize(4), alpha=0.5)'
    """
    link = shifted(unbiased(compressor, "DIANA"), alpha)
    # The shift starts at zero and needs no full message.
    return linked_descent(f"diana({compressor}, alpha={alpha})", link, in_full=False)
