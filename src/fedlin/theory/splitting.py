"""The round of FedSplit on quadratics as an affine map of (z_1, ..., z_m): whether it converges, and where to."""

import numpy as np
from numpy.typing import NDArray

from fedlin.checks import one_of
from fedlin.problems.quadratic import Quadratic

Array = NDArray[np.float64]


def inner_step(problem: Quadratic, s: float) -> float:
    """2/(L + μ + 2/s): the best step for f_i + ‖x - u‖²/(2s) when only L and μ are known.

    Args:
        problem: A quadratic.
        s: The proximal parameter.

    Returns:
        The step size a.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic(np.array([[[1.0]], [[4.0]]]), np.ones((2, 1)))
    >>> inner_step(problem, s=0.5)
    0.2222222222222222
    """
    return 2 / (problem.smoothness + problem.strong_convexity + 2 / s)


def round_map(problem: Quadratic, s: float, steps: int, start: str) -> Array:
    """The matrix of the linear part of a round, (md, md), with `steps` inner gradient steps.

    The inner steps leave y = prox + R^e (first - prox) with R = I - a(A_i + I/s): what the inner descent
    started from is never quite forgotten, and the sign of R^e decides which way the remainder pushes.

    Args:
        problem: A quadratic.
        s: The proximal parameter.
        steps: e, the inner gradient steps.
        start: Where they begin: "u" for 2x̄ - z_i, "model" for x̄.

    Returns:
        The matrix, (md, md).

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> problem = quadratic(np.array([[[1.0]], [[4.0]]]), np.ones((2, 1)))
    >>> round_map(problem, s=0.5, steps=2, start="model").shape
    (2, 2)
    """
    one_of("start", start, ("u", "model"))
    m, d = problem.clients, problem.dim
    a = inner_step(problem, s)
    mean = np.kron(problem.weights, np.eye(d))  # z ↦ x̄
    rows = []
    for i, A in enumerate(problem.data.A):
        own = np.zeros((d, m * d))
        own[:, i * d : (i + 1) * d] = np.eye(d)  # z ↦ z_i
        u = 2 * mean - own
        prox = np.linalg.solve(A + np.eye(d) / s, u / s)
        remainder = np.linalg.matrix_power(np.eye(d) - a * (A + np.eye(d) / s), steps)
        first = u if start == "u" else mean
        y = prox + remainder @ (first - prox)
        rows.append(own + 2 * (y - mean))
    return np.concatenate(rows)


def spectral_radius(matrix: Array) -> float:
    """The largest magnitude of an eigenvalue: below 1 the map converges from everywhere.

    Args:
        matrix: The matrix of a linear map.

    Returns:
        The spectral radius.

    >>> import numpy as np
    >>> spectral_radius(np.diag([0.5, -2.0]))
    2.0
    """
    return float(np.max(np.abs(np.linalg.eigvals(matrix))))
