"""Random clients on which the theorems are tried, with L and μ known; draw n takes seed n."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from fedlin import problems
from fedlin.plan import draw_steps
from fedlin.problems.logistic import Logistic
from fedlin.problems.quadratic import Quadratic

Array = NDArray[Any]
CLIENTS = 10  # m
DIM = 12  # d; one for all quadratics, so that claims share compiled programs
FASTEST = 10  # the largest τ_i


def steps(draw: int, clients: int = CLIENTS, rounds: int | None = None) -> NDArray[np.int32]:
    """τ_i uniform on {1, ..., 10}, once or anew every round."""
    return draw_steps(clients, 1, FASTEST, seed=draw, rounds=rounds)


@lru_cache(maxsize=64)
def quadratics(
    draw: int,
    kappa: float,
    dim: int = DIM,
    clients: int = CLIENTS,
    *,
    aligned: bool = False,
    shared: bool = False,
    identical: bool = False,
) -> Quadratic:
    """Every A_i has μ = 2, L = 2κ and the other eigenvalues log-uniform between; x_i ~ N(0, I) minimises f_i.

    `aligned` gives all A_i the same eigenvectors, so that f itself is as badly conditioned as its clients;
    `shared` gives all f_i one minimiser, seen from 0 mostly along f's flattest direction, where progress is slowest;
    `identical` makes them one function.
    """
    source = np.random.default_rng(draw)
    exponent = source.random((clients, dim))
    exponent[:, 0], exponent[:, -1] = 0, 1
    spectrum = 2 * kappa**exponent
    vectors = np.linalg.qr(source.standard_normal((clients, dim, dim)))[0]
    minimizers = source.standard_normal((clients, dim))
    if aligned or identical:
        vectors[:] = vectors[0]
    if identical:
        spectrum[:] = spectrum[0]
    A = np.einsum("ijk,ik,ilk->ijl", vectors, spectrum, vectors)
    if shared or identical:
        minimizers[:] = minimizers[0] + 5 * np.linalg.eigh(A.mean(axis=0))[1][:, 0]
    return problems.quadratic(A, np.einsum("ijk,ik->ij", A, minimizers))


@lru_cache(maxsize=16)
def flat_least_squares(draw: int, dim: int = DIM, rank: int = 5) -> Quadratic:
    """Least squares over 30 rows a client that all lie in a space of dimension `rank` < d: convex, PL, not strongly."""
    source = np.random.default_rng(draw)
    space = np.linalg.qr(source.standard_normal((dim, rank)))[0]
    X = source.standard_normal((CLIENTS, 30, rank)) @ space.T
    truth = source.standard_normal((CLIENTS, dim))
    y = np.einsum("inj,ij->in", X, truth) + 0.5 * source.standard_normal((CLIENTS, 30))
    return problems.regression(X, y, reduction="mean")


@lru_cache(maxsize=32)
def logistic(draw: int, l2: float = 0.0, nonconvex: float = 0.0, dim: int = 10) -> Logistic:
    """40 rows a client around a centre of its own, labelled by the logistic model of a truth of its own.

    Labels are drawn, not decided, and clients disagree: no hyperplane separates them, so x* exists without l2.
    """
    source = np.random.default_rng(draw)
    X = 0.5 * source.standard_normal((CLIENTS, 1, dim)) + source.standard_normal((CLIENTS, 40, dim))
    truth = source.standard_normal((CLIENTS, dim))
    likely = expit(np.einsum("inj,ij->in", X, truth))
    y = np.where(source.random((CLIENTS, 40)) < likely, 1.0, -1.0)
    return problems.logistic(X, y, l2=l2, nonconvex=nonconvex)
