"""Gradients with Gaussian noise around any problem."""

import copy
from typing import TypeVar

import jax
import numpy as np

from fedlin.checks import instance_of, nonnegative
from fedlin.core import Key, Vector
from fedlin.errors import ArgumentError
from fedlin.problems.objective import Data, Objective, Sampling, Slope
from fedlin.problems.problem import Problem

P = TypeVar("P", bound=Problem)


def _gaussian(objective: Objective, data: Data, deviation: Data, x: Vector, key: Key) -> Slope:
    noise: Vector = deviation * jax.random.normal(key, x.shape, x.dtype)
    return Slope(objective.grad(data, x) + noise)


GAUSSIAN = Sampling(_gaussian, "noisy", origin=(__name__, "GAUSSIAN"))


def noisy(problem: P, variance: float) -> P:
    """Every gradient a client takes gets independent N(0, variance) noise in each entry: σ² = d · variance.

    Args:
        problem: the problem, with exact gradients.
        variance: of the noise in each entry.

    Returns:
        The same problem with noisy gradients; what is measured has no noise.

    >>> from fedlin.problems.regression import least_squares
    >>> noisy(least_squares(clients=2, dim=3, samples=5), 0.1).sampling is not None
    True
    """
    instance_of("problem", problem, Problem, "a fedlin Problem")
    deviation = np.sqrt(nonnegative("variance", variance))
    return with_sampling(problem, GAUSSIAN, np.full(problem.clients, deviation, problem.dtype))


def with_sampling(problem: P, sampling: Sampling, noise: Data) -> P:
    """The same problem with a noisy oracle, if it has none yet."""
    if problem.sampling is not None:
        raise ArgumentError(f"{problem!r} has a noisy oracle already: wrap the exact problem instead.")
    other = copy.copy(problem)
    other.sampling, other.noise = sampling, noise
    return other
