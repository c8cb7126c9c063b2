"""The paper's two scalar clients: f_1 = ½(x-3)², f_2 = (x-50)² (Section 2)."""

import numpy as np

from fedlin import problems
from fedlin.problems.quadratic import Quadratic

X_STAR = 103 / 3


def two_clients() -> Quadratic:
    """L = 2, μ = 1.

    >>> two_clients().minimizer.round(3).tolist()
    [34.333]
    """
    return problems.quadratic(np.array([[[1.0]], [[2.0]]]), np.array([[3.0], [100.0]]))
