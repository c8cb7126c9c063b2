"""How much clients differ, in three numbers: the paper's C and D, and the clients' gradients where f has none."""

from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike

from fedlin.checks import instance_of
from fedlin.core import Vector
from fedlin.errors import UnknownError
from fedlin.layout import each_client
from fedlin.precision import precision
from fedlin.problems.objective import Data, Objective
from fedlin.problems.problem import Problem
from fedlin.theory.dissimilarity import dissimilarity


class Heterogeneity(NamedTuple):
    """NaN stands for what is not known: C and D of anything but a quadratic, the others where x* is not known.

    Attributes:
        C: C of Σ w_i ‖∇f_i(x)‖² ≤ C ‖∇f(x)‖² + D.
        D: The least D that goes with it.
        dissimilarity: Σ w_i ‖∇f_i(x*)‖²: zero if and only if all clients share the minimiser.
        relative: The same divided by Σ w_i ‖∇f_i(x_0)‖² at the start x_0: free of units.

    >>> Heterogeneity(np.nan, np.nan, 4.0, 0.5)
    Heterogeneity(C=unknown, D=unknown, dissimilarity=4, relative=0.5)
    """

    C: float
    D: float
    dissimilarity: float
    relative: float

    def __repr__(self) -> str:
        shown = (f"{name}={'unknown' if np.isnan(value) else f'{value:.6g}'}" for name, value in self._asdict().items())
        return f"Heterogeneity({', '.join(shown)})"


def heterogeneity(problem: Problem) -> Heterogeneity:
    """C and the least D of Σ w_i ‖∇f_i(x)‖² ≤ C ‖∇f(x)‖² + D (see `theory.dissimilarity`), and the left side at x*.

    Args:
        problem: The problem.

    Returns:
        The measures of how much its clients differ.

    >>> import numpy as np
    >>> from fedlin.problems import quadratic
    >>> heterogeneity(quadratic(np.ones((2, 1, 1)), np.array([[3.0], [1.0]])))
    Heterogeneity(C=2, D=1, dissimilarity=1, relative=0.2)
    """
    instance_of("problem", problem, Problem, "a Problem, for example problems.logistic(X, y)")
    try:
        C, D = dissimilarity(problem)
    except UnknownError:
        C = D = float("nan")
    optimum = problem.known_optimum
    if optimum is None:
        return Heterogeneity(C, D, float("nan"), float("nan"))
    here, start = (_mean_square(problem, x) for x in (np.asarray(optimum.x), problem.start))
    return Heterogeneity(C, D, here, here / start if start > 0 else float("nan"))


def _mean_square(problem: Problem, x: ArrayLike) -> float:
    """Σ w_i ‖∇f_i(x)‖²."""
    with precision(problem.dtype):
        gradients = np.asarray(_gradients(problem.objective, problem.pass_block)(problem.device_data, x))
    return float(problem.weights @ np.sum(gradients.astype(np.float64) ** 2, axis=1))


@cache
def _gradients(objective: Objective, block: int | None) -> Any:
    def run(data: Data, x: Vector) -> Vector:
        gradients: Vector = each_client(lambda client: objective.grad(client, x), block)(data)
        return gradients

    return jax.jit(run)
