"""K-GT: gradient tracking with local steps, here with a server that everyone can reach.

Y. Liu, T. Lin, A. Koloskova, S. U. Stich, Decentralized Gradient Tracking with Local Steps, 2023, Algorithm 1
(K-GT) on the complete graph.
"""

from fedlin.algorithms.factory import factory
from fedlin.algorithms.tracked import tracked_descent
from fedlin.checks import positive
from fedlin.compressors import identity
from fedlin.core import Method


@factory(server_step=positive)
def gradient_tracking(server_step: float = 1.0) -> Method:
    """y ← y - η(∇f_i(y) + c_i), τ times from x; z_i = (x - y)/(ητ); x ← x - η_s ητ z, c_i ← c_i - z_i + z, z the mean.

    It starts from c_i = ∇f(x_0) - ∇f_i(x_0), one exchange of gradients before the first round: so its first step is
    FedLin's. From c_i = 0, with everyone answering and equal η_i τ_i, it would be SCAFFOLD's option II.

    Args:
        server_step: η_s.

    Returns:
        The method.

    >>> gradient_tracking().name
    'gradient_tracking'
    """
    return tracked_descent("gradient_tracking", identity(), server_step, from_gradients=True)
