"""The problems on which all methods are compared: two of real data, two that a seed draws."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from fedlin import problems
from fedlin.claims.common.instances import data_file
from fedlin.claims.common.published import dealt_a9a
from fedlin.core import Array
from fedlin.data.download import idx_rows
from fedlin.problems.problem import Problem

A9A, SPARSE, STIFF, DIGITS = "a9a", "sparse binary", "κ = 1000", "MNIST"
MNIST_FILES = ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")


class Battle(NamedTuple):
    """A problem and where every method starts."""

    problem: Problem
    start: Array


def fednl_setting(rows: int = 407) -> Battle | None:
    """That of FedNL's authors: a9a, 80 clients of 407 rows, l2 = 10⁻³, from x* + 0.1 in every entry."""
    problem = dealt_a9a(rows)
    return None if problem is None else Battle(problem, problem.minimizer + 0.1)


def sparse_binary(clients: int = 20, rows: int = 100, dim: int = 300, seed: int = 0) -> Battle:
    """Like w8a: 300 columns of zeros and ones, a dozen ones a row, three labels in a hundred positive; l2 = 10⁻³.

    A column's frequency falls as one over its rank, and each client prefers columns of its own.
    """
    source = np.random.default_rng(seed)
    often = 12 / np.arange(1, dim + 1) / np.sum(1 / np.arange(1, dim + 1))
    taste = source.lognormal(0.0, 0.5, (clients, 1, dim))
    X = (source.random((clients, rows, dim)) < np.minimum(often * taste, 0.9)).astype(float)
    score = X @ source.normal(0.0, 1.5, dim)
    threshold = np.quantile(score + 0.5 * source.logistic(size=score.shape), 0.97)
    y = np.where(source.random(score.shape) < expit(2 * (score - threshold)), 1.0, -1.0)
    problem = problems.logistic(X, y, l2=1e-3)
    return Battle(problem, np.zeros(problem.dim))


def stiff(clients: int = 10, rows: int = 80, dim: int = 40, kappa: float = 1000.0, seed: int = 0) -> Battle:
    """Logistic regression with κ = L/l2 = 1000, columns of scales from 1 to 1/30, and a truth for each client."""
    source = np.random.default_rng(seed)
    X = source.standard_normal((clients, rows, dim)) * np.geomspace(1, 1 / 30, dim)
    truth = source.standard_normal((clients, dim)) / np.geomspace(1, 1 / 30, dim) ** 0.5
    y = np.where(source.random((clients, rows)) < expit(np.einsum("ind,id->in", X, truth)), 1.0, -1.0)
    fit = max(float(np.linalg.norm(part, 2) ** 2) for part in X) / (4 * rows)
    problem = problems.logistic(X, y, l2=fit / (kappa - 1))
    return Battle(problem, np.zeros(dim))


def digits(clients: int = 10, every: int = 5, seed: int = 0) -> Battle | None:
    """Softmax regression on every fifth of the 10,000 test images of MNIST, as means of 4 × 4 pixels; l2 = 10⁻².

    The images are sorted by digit and split into twenty parts, two a client, so that most of a client's show two
    digits.
    """
    paths = [data_file(name) for name in MNIST_FILES]
    if any(path is None for path in paths):
        return None
    images, labels = (idx_rows(path)[::every] for path in paths if path is not None)
    order = np.argsort(labels, kind="stable")
    parts = np.random.default_rng(seed).permutation(2 * clients).reshape(clients, 2)
    parts_of_rows = np.split(order, 2 * clients)
    pooled = images.reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4)).reshape(-1, 49) / 255
    chosen = [np.concatenate([parts_of_rows[part] for part in pair]) for pair in parts]
    problem = problems.softmax(pooled[np.array(chosen)], labels[np.array(chosen)], l2=1e-2, classes=10)
    return Battle(problem, np.zeros(problem.dim))


Maker = Callable[[], Battle | None]
MAKERS: Mapping[str, Maker] = {A9A: fednl_setting, SPARSE: sparse_binary, STIFF: stiff, DIGITS: digits}
BATTLES: Mapping[str, Maker] = {name: cache(make) for name, make in MAKERS.items()}
# Where methods are tuned on other rows, since each look takes passes over all of them: a quarter of each client's.
TUNED_ON: Mapping[str, Maker] = {**BATTLES, A9A: partial(fednl_setting, 102)}
