"""EF21: gradient descent on gradients of which only compressed changes are sent.

P. Richtárik, I. Sokolov, I. Fatkhullin, EF21: A New, Simpler, Theoretically Better, and Practically Faster
Error Feedback, NeurIPS 2021, Algorithm 2.
"""

from fedlin.algorithms.factory import factory
from fedlin.algorithms.linked_descent import linked_descent
from fedlin.compressors import Compressor
from fedlin.core import Method
from fedlin.links import innovation


@factory()
def ef21(compressor: Compressor) -> Method:
    """x ← x - η mean(g_i), g_i ← g_i + C(∇f_i(x) - g_i); the first gradients are sent in full. τ is not used.

    Args:
        compressor: C, any with a δ.

    Returns:
        The method.

    >>> from fedlin.compressors import top_k
    >>> ef21(top_k(2)).name
    'ef21(top_k(2))'
    """
    return linked_descent(f"ef21({compressor})", innovation(compressor), in_full=True)
