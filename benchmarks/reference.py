"""Federated methods as a plain NumPy loop over clients and steps: what speed is measured against, and answers too."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Gradient = Callable[[int, Array], Array]


@dataclass(frozen=True)
class Work:
    """Client i takes τ_i steps of size η_i along its own gradient."""

    gradient: Gradient
    tau: Array
    eta: Array


def least_squares(X: Array, y: Array) -> Gradient:
    """f_i(x) = ½‖X_i x - y_i‖²."""
    return lambda i, x: np.asarray(X[i].T @ (X[i] @ x - y[i]))


def logistic(X: Array, y: Array, l2: float) -> Gradient:
    """f_i(x) = mean over rows of log(1 + exp(-y aᵀx)) + (l2/2)‖x‖²."""

    def gradient(i: int, x: Array) -> Array:
        slope = -y[i] / (1 + np.exp(y[i] * (X[i] @ x)))
        return np.asarray(slope @ X[i] / len(y[i]) + l2 * x)

    return gradient


def descend(work: Work, i: int, x: Array, shift: Array | float) -> Array:
    """Client i's steps y ← y - η_i(∇f_i(y) + shift)."""
    y = x.copy()
    for _ in range(work.tau[i]):
        y -= work.eta[i] * (work.gradient(i, y) + shift)
    return y


def fedlin(work: Work, x: Array) -> Iterator[Array]:
    """The model after every round of FedLin."""
    clients = range(len(work.tau))
    while True:
        own = [work.gradient(i, x) for i in clients]
        mean = np.mean(own, axis=0)
        x = np.mean([descend(work, i, x, mean - own[i]) for i in clients], axis=0)
        yield x


def fedavg(work: Work, x: Array) -> Iterator[Array]:
    """The model after every round of FedAvg."""
    while True:
        x = np.mean([descend(work, i, x, 0.0) for i in range(len(work.tau))], axis=0)
        yield x


def scaffold(work: Work, x: Array) -> Iterator[Array]:
    """The model after every round of SCAFFOLD: control variates by option II, from zero; server step 1."""
    own = np.zeros((len(work.tau), len(x)))  # c_i
    while True:
        mean = own.mean(axis=0)  # c
        ends = np.array([descend(work, i, x, mean - own[i]) for i in range(len(work.tau))])
        own += (x - ends) / (work.tau * work.eta)[:, None] - mean
        x = ends.mean(axis=0)
        yield x


METHODS: dict[str, Callable[[Work, Array], Iterator[Array]]] = {
    "FedLin": fedlin,
    "FedAvg": fedavg,
    "SCAFFOLD": scaffold,
}
