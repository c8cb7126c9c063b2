"""FedLin with every message compressed: the links that did best when all sixteen combinations were measured.

On the paper's least squares with TOP-10 of 100 on all four messages, only changes of gradients (innovation) on the
way up reach x* at all; error feedback on the other three takes the fewest rounds, and innovation on all four is
the least sensitive to the step size.
"""

from dataclasses import replace

from fedlin.algorithms.factory import factory
from fedlin.algorithms.fedlin import fedlin
from fedlin.compressors import top_k
from fedlin.core import Method
from fedlin.links import error_feedback, innovation


@factory()
def compressed(k: int) -> Method:
    """FedLin whose gradients and models travel as k entries each, up and down, and which still reaches x*.

    Args:
        k: How many entries of a vector each message has.

    Returns:
        The method.

    >>> compressed(10).name
    'compressed(10)'
    """
    entries = top_k(k)
    feedback = error_feedback(entries)
    method = fedlin(uplink=innovation(entries), downlink=feedback, model_uplink=feedback, model_downlink=feedback)
    return replace(method, name=f"compressed({k})")
