"""The problems that claims are tried on, by the number of the draw.

Draw n takes seed n for its data and for its numbers of local steps, so every claim that names a draw means the same
instance. The least squares is that of the paper's Section 7, the logistic regression that of its appendix. The small
problems, on which the theorems are tried, are our own; L and μ of all are known.
"""

import os
from functools import lru_cache
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from fedlin import problems
from fedlin.claims.claim import Setting
from fedlin.claims.common.algorithm1 import Gradients
from fedlin.core import Array, Scalar, Vector
from fedlin.data import read
from fedlin.experiments.experiment_file import DATA
from fedlin.plan import draw_steps
from fedlin.problems.logistic import Logistic
from fedlin.problems.problem import Problem
from fedlin.problems.quadratic import Quadratic

CLIENTS = 10  # m of the small problems
DIM = 12  # d of the small quadratics; one for all, so that claims share compiled programs
FASTEST = 10  # the largest τ_i on the small problems
SCALAR_MINIMIZER = 103 / 3  # x* of `two_clients`


def draws(setting: Setting, quick: int = 2) -> range:
    """The numbers of the draws: all that were asked for, `quick` at most on a quick run."""
    return range(setting.pick(setting.draws, min(setting.draws, quick)))


# The paper's own instances.


@lru_cache(maxsize=16)
def least_squares(draw: int, alpha: float = 10.0) -> Quadratic:
    """20 clients with 500 rows of 100 features; kept, since several figures share it."""
    return problems.least_squares(clients=20, dim=100, samples=500, alpha=alpha, seed=draw)


def least_squares_steps(draw: int) -> NDArray[np.int32]:
    """τ_i uniform on {2, ..., 100} for the 20 clients."""
    return draw_steps(20, 2, 100, seed=draw)


@lru_cache(maxsize=24)
def logistic(draw: int) -> Logistic:
    """10 clients, f_i the sum over 500 rows of 100 features, labels drawn by the logistic model of x ~ N(0, I)."""
    source = np.random.default_rng(draw)
    A = source.standard_normal((10, 500, 100))
    x = source.standard_normal(100)
    labels = np.where(source.random((10, 500)) < expit(A @ x), 1.0, -1.0)
    return problems.logistic(A, labels, reduction="sum")


def logistic_steps(draw: int) -> NDArray[np.int32]:
    """τ_i uniform on {2, ..., 50} for the 10 clients."""
    return draw_steps(10, 2, 50, seed=draw)


def two_clients() -> Quadratic:
    """f_1 = ½(x-3)², f_2 = (x-50)² of Section 2: L = 2, μ = 1.

    >>> two_clients().minimizer.round(3).tolist()
    [34.333]
    """
    return problems.quadratic(np.array([[[1.0]], [[2.0]]]), np.array([[3.0], [100.0]]))


# Small problems.


def steps(draw: int, clients: int = CLIENTS, rounds: int | None = None) -> NDArray[np.int32]:
    """τ_i uniform on {1, ..., 10}, once or anew every round."""
    return draw_steps(clients, 1, FASTEST, seed=draw, rounds=rounds)


def steps_by_round(draw: int, rounds: int, varying: bool = False) -> NDArray[np.int32]:
    """As `steps`, a row a round: drawn anew where `varying`, else alike, so that both are runs of one program."""
    return steps(draw, rounds=rounds) if varying else np.tile(steps(draw), (rounds, 1))


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


@lru_cache(maxsize=64)
def even_quadratics(
    draw: int, kappa: float, dim: int = DIM, *, steep: int = 1, flat: int = 0, pull: float = 0.0
) -> Quadratic:
    """The theorems at their sharpest: diagonal A_i, with all entries of ∇f equal in size at the start.

    Every A_i has curvature μ = 2, in all but `steep` entries, where f has almost L = 2κ, and `flat` ones, where it is
    zero. So TOP-k leaves out the largest part of a gradient that it may, and progress is as slow as f's μ says. Client
    i pulls by ∇f_i(x*) ~ N(0, pull² I), and these sum to zero: f stays as it is however far its clients are apart.
    """
    source = np.random.default_rng(draw)
    curvature = np.full((CLIENTS, dim), 2.0)
    curvature[:, :steep] = 2 * kappa * source.uniform(0.9, 1, (CLIENTS, steep))
    curvature[0, :steep] = 2 * kappa
    if flat:
        curvature[:, -flat:] = 0
    mean = curvature.mean(axis=0)
    minimizer = np.where(mean > 0, 2 / np.where(mean > 0, mean, 1), 0) * source.choice((-1, 1), dim)
    minimizer = minimizer * source.uniform(0.9, 1.1, dim)  # equal but for ties, which rounding would decide
    pulls = source.standard_normal((CLIENTS, dim))
    pulls = pull * (pulls - pulls.mean(axis=0))
    return problems.quadratic(curvature[..., None] * np.eye(dim), mean_gradient_zero(curvature, minimizer) - pulls)


def mean_gradient_zero(curvature: Array, minimizer: Array) -> Array:
    """b_i = A_i x* for diagonal A_i, so that every client's gradient vanishes at x*."""
    return np.asarray(curvature * minimizer)


@lru_cache(maxsize=32)
def small_logistic(draw: int, l2: float = 0.0, nonconvex: float = 0.0, *, identical: bool = False) -> Logistic:
    """40 rows of 10 features a client around a centre of its own, labelled by the logistic model of a truth of its own.

    Labels are drawn, not decided, and clients disagree: no hyperplane separates them, so x* exists without l2.
    `identical` gives all clients the rows of the first.
    """
    source = np.random.default_rng(draw)
    X = 0.5 * source.standard_normal((CLIENTS, 1, 10)) + source.standard_normal((CLIENTS, 40, 10))
    truth = source.standard_normal((CLIENTS, 10))
    likely = expit(np.einsum("inj,ij->in", X, truth))
    y = np.where(source.random((CLIENTS, 40)) < likely, 1.0, -1.0)
    if identical:
        X[:], y[:] = X[0], y[0]
    return problems.logistic(X, y, l2=l2, nonconvex=nonconvex)


def wave(x: Vector, tilt: Vector) -> Scalar:
    """x² + 3 sin²x + c_i x: 8-smooth, and without the tilt PL with μ = 1/32 (Karimi et al., 2016) but not convex."""
    return jnp.sum(x**2 + 3 * jnp.sin(x) ** 2 + tilt * x)


@lru_cache(maxsize=16)
def waves(draw: int, tilt: float = 5.0) -> Problem:
    """Clients tilted by c_i ~ ±U(0, tilt) in pairs, so that the tilts cancel and f = x² + 3 sin²x is least at 0."""
    half = np.random.default_rng(draw).uniform(0, tilt, CLIENTS // 2)
    return problems.from_loss(
        wave,
        np.zeros(1),
        np.concatenate([half, -half]),
        smoothness=8.0,
        polyak_lojasiewicz=1 / 32,
        minimizer=np.zeros(1),
    )


def wave_gradients(problem: Problem) -> Gradients:
    """∇f_i of `waves` in NumPy."""
    tilt = np.asarray(problem.data)[:, None, None]
    return lambda x: 2 * x + 3 * np.sin(2 * x) + tilt


# Real data: in the folder that FEDLIN_DATA names; claims can do without.


def data_file(name: str) -> Path | None:
    """The path of a data file, or None where there is none."""
    folder = os.environ.get(DATA)
    path = Path(folder, name) if folder else None
    return path if path is not None and path.is_file() else None


@lru_cache(maxsize=4)
def a9a(part: int, clients: int, rows: int, l2: float) -> Logistic | None:
    """Logistic regression on the LIBSVM data set a9a, 123 features, as clients with `rows` consecutive rows each.

    `part` 0 takes the first clients · rows rows of the file, part 1 the next ones. None without the file.
    """
    path = data_file("a9a.gz")
    if path is None:
        return None
    table = read(path)
    taken = slice(part * clients * rows, (part + 1) * clients * rows)
    features = table.X[taken].toarray().reshape(clients, rows, -1)
    return problems.logistic(features, table.y[taken].reshape(clients, rows), l2=l2)
