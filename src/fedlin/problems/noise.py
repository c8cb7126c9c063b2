"""Noisy oracles around any problem: Gaussian noise, and mini-batches of a client's rows."""

import copy
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import jax
import numpy as np

from fedlin.checks import instance_of, nonnegative, positive_integer
from fedlin.core import Key, Vector
from fedlin.errors import ArgumentError
from fedlin.problems.objective import Data, Objective, Sampling
from fedlin.problems.problem import Problem

P = TypeVar("P", bound=Problem)


def _gaussian(objective: Objective, data: Data, deviation: Data, x: Vector, key: Key) -> Vector:
    noise: Vector = deviation * jax.random.normal(key, x.shape, x.dtype)
    return objective.grad(data, x) + noise


GAUSSIAN = Sampling(_gaussian, "noisy")


@cache
def _minibatch(take: Callable[[Data, Key, int], Data], grad: Callable[[Data, Vector], Vector], size: int) -> Sampling:
    def estimate(objective: Objective, data: Data, rows: Data, x: Vector, key: Key) -> Vector:
        return grad(take(rows, key, size), x)

    return Sampling(estimate, f"minibatch({size})", size)


def noisy(problem: P, variance: float) -> P:
    """Every gradient a client takes gets independent N(0, variance) noise in each entry: σ² = d · variance.

    >>> from fedlin.problems.regression import least_squares
    >>> noisy(least_squares(clients=2, dim=3, samples=5), 0.1).sampling is not None
    True
    """
    instance_of("problem", problem, Problem, "a fedlin Problem")
    deviation = np.sqrt(nonnegative("variance", variance))
    return _with(problem, GAUSSIAN, np.full(problem.clients, deviation, problem.dtype))


def minibatch(problem: P, size: int) -> P:
    """Every gradient a client takes is over `size` of its rows, drawn with replacement: unbiased.

    >>> from fedlin.problems.regression import least_squares
    >>> minibatch(least_squares(clients=2, dim=3, samples=5), 4).sampling is not None
    True
    """
    rows = instance_of("problem", problem, Problem, "a fedlin Problem").rows()
    return _with(problem, _minibatch(rows.take, rows.grad, positive_integer("size", size)), rows.data)


def _with(problem: P, sampling: Sampling, noise: Data) -> P:
    if problem.sampling is not None:
        raise ArgumentError(f"{problem!r} has a noisy oracle already: wrap the exact problem instead.")
    other = copy.copy(problem)
    other.sampling, other.noise = sampling, noise
    return other
