"""Accelerated and second-order methods in plain NumPy, step by step as their papers write them, to compare against.

Like `reference`, they import nothing from the package. Coins, masks and compressed values are given, so that both sides
draw the same: `counts[r]` is the number of local steps of round r, `compress(r, j, v, which)` what device j makes of v.
Each returns the models after every round, row 0 the start.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Gradient = Callable[[int, Array], Array]
Hessian = Callable[[int, Array], Array]
Compress = Callable[[int, int, Array, int], Array]


def pattern(dim: int, clients: int, sparsity: int) -> Array:
    """d rows with s ones each, dealt to the columns one after another."""
    ones = np.zeros((dim, clients))
    k = 0
    for i in range(dim):
        for _ in range(sparsity):
            ones[i, k] = 1
            k = (k + 1) % clients
    return ones


def compressed_scaffnew(
    grad: Gradient, x0: Array, n: int, s: int, gamma: float, p: float, counts: Sequence[int], orders: Sequence[Array]
) -> Array:
    """`orders[r][i]` is the column of the pattern that client i takes in round r."""
    d = len(x0)
    chi = n * (s - 1) / (s * (n - 1))
    ones = pattern(d, n, s)
    x = np.tile(x0, (n, 1))
    h = np.zeros((n, d))
    models = [x0]
    for count, order in zip(counts, orders, strict=True):
        for _ in range(count):
            x = np.array([x[i] - gamma * (grad(i, x[i]) - h[i]) for i in range(n)])
        masks = np.array([ones[:, order[i]] for i in range(n)])
        assert np.all(masks.sum(axis=0) == s)
        mean = (masks * x).sum(axis=0) / s
        for i in range(n):
            h[i] = h[i] + p * chi / gamma * masks[i] * (mean - x[i])
        x = np.tile(mean, (n, 1))
        models.append(mean)
    return np.array(models)


def tamuna(
    grad: Gradient,
    x0: Array,
    n: int,
    s: int,
    gamma: float,
    p: float,
    counts: Sequence[int],
    cohorts: Sequence[Array],
    orders: Sequence[Array],
) -> Array:
    """`cohorts[r]` are the clients of round r, and `orders[r][j]` the column of the pattern that the j-th takes."""
    d = len(x0)
    eta = p * n * (s - 1) / (s * (n - 1))
    h = np.zeros((n, d))
    mean = x0
    models = [x0]
    for count, cohort, order in zip(counts, cohorts, orders, strict=True):
        ones = pattern(d, len(cohort), s)
        ends = {}
        for i in cohort:
            x = mean
            for _ in range(count):
                x = x - gamma * grad(i, x) + gamma * h[i]
            ends[i] = x
        masks = {i: ones[:, column] for i, column in zip(cohort, order, strict=True)}
        mean = np.sum([masks[i] * ends[i] for i in cohort], axis=0) / s
        for i in cohort:
            h[i] = h[i] + eta / gamma * masks[i] * (mean - ends[i])
        np.testing.assert_allclose(h.sum(axis=0), 0, atol=1e-9 * (1 + np.abs(h).max()))
        models.append(mean)
    return np.array(models)


def marina(grad: Gradient, x0: Array, n: int, gamma: float, full: Sequence[bool], compress: Compress) -> Array:
    """`full[r]` says whether round r sends gradients; the first does."""
    x = x0
    g = np.mean([grad(i, x) for i in range(n)], axis=0)
    models = [x]
    for r in range(1, len(full) + 1):
        before, x = x, x - gamma * g
        models.append(x)
        if r == len(full):
            break
        if full[r]:
            g = np.mean([grad(i, x) for i in range(n)], axis=0)
        else:
            g = np.mean([g + compress(r, i, grad(i, x) - grad(i, before), 0) for i in range(n)], axis=0)
    return np.array(models)


def locodl(
    grad: Gradient,
    x0: Array,
    n: int,
    gamma: float,
    p: float,
    rho: float,
    mu: float,
    omega: float,
    counts: Sequence[int],
    compress: Compress,
) -> Array:
    """f_i - (μ/4)‖x‖² at the clients and (μ/4)‖y‖² at everyone."""
    d = len(x0)
    x, y = np.tile(x0, (n, 1)), x0.copy()
    u, v = np.zeros((n, d)), np.zeros(d)
    models = [y]
    for r, count in enumerate(counts):
        for _ in range(count):
            x = np.array([x[i] - gamma * (grad(i, x[i]) - mu / 2 * x[i]) + gamma * u[i] for i in range(n)])
            y = y - gamma * (mu / 2 * y) + gamma * v
        sent = np.array([compress(r, i, x[i] - y, 0) for i in range(n)])
        mean = sent.sum(axis=0) / (2 * n)
        step = p * rho / (gamma * (1 + 2 * omega))
        x = np.array([(1 - rho) * x[i] + rho * (y + mean) for i in range(n)])
        u = np.array([u[i] + step * (mean - sent[i]) for i in range(n)])
        y = y + rho * mean
        v = v + step * mean
        np.testing.assert_allclose(u.sum(axis=0) + n * v, 0, atol=1e-9 * (1 + np.abs(u).max()))
        models.append(y)
    return np.array(models)


def adiana(
    grad: Gradient,
    x0: Array,
    n: int,
    eta: float,
    mu: float,
    alpha: float,
    q: float,
    moves: Sequence[bool],
    compress: Compress,
) -> Array:
    """`moves[r]` says whether the anchor moves in round r."""
    theta_2 = 0.5
    theta_1 = min(1 / 4, np.sqrt(eta * mu / q))
    gamma = 0.5 * eta / (theta_1 + eta * mu)
    beta = 1 - gamma * mu
    z = y = w = x0
    h = np.zeros((n, len(x0)))
    models = [y]
    for r, moved in enumerate(moves):
        x = theta_1 * z + theta_2 * w + (1 - theta_1 - theta_2) * y
        g = h.mean(axis=0) + np.mean([compress(r, i, grad(i, x) - h[i], 0) for i in range(n)], axis=0)
        h = h + alpha * np.array([compress(r, i, grad(i, w) - h[i], 1) for i in range(n)])
        before, y = y, x - eta * g
        z = beta * z + (1 - beta) * x + gamma / eta * (y - x)
        w = before if moved else w
        models.append(y)
    return np.array(models)


def gradskip(
    grad: Gradient, x0: Array, n: int, gamma: float, p: float, counts: Sequence[int], rests: Sequence[Array]
) -> Array:
    """`rests[r][i]` is the step of round r, from 1 on, at which client i comes to rest; beyond the round if never."""
    d = len(x0)
    x = np.tile(x0, (n, 1))
    h = np.zeros((n, d))
    models = [x0]
    for count, rest in zip(counts, rests, strict=True):
        for t in range(1, count + 1):
            for i in range(n):
                slope = grad(i, x[i])
                hat = slope if t >= rest[i] else h[i]
                x[i] = x[i] - gamma * (slope - hat)
                h[i] = hat
        mean = np.mean([x[i] - gamma / p * h[i] for i in range(n)], axis=0)
        for i in range(n):
            h[i] = h[i] + p / gamma * (mean - x[i])
        x = np.tile(mean, (n, 1))
        models.append(mean)
    return np.array(models)


def low_rank(matrix: Array, rank: int) -> Array:
    """The nearest matrix of that rank, from singular values."""
    left, values, right = np.linalg.svd(matrix)
    result: Array = (left[:, :rank] * values[:rank]) @ right[:rank]
    return result


def top_k_symmetric(matrix: Array, k: int) -> Array:
    """The k entries on and above the diagonal that take most from the Frobenius norm, those above it twice."""
    d = len(matrix)
    places = [(i, j) for i in range(d) for j in range(i, d)]
    weight = [abs(matrix[i, j]) * (1 if i == j else 2**0.5) for i, j in places]
    kept = np.zeros_like(matrix)
    for place in np.argsort(-np.array(weight), kind="stable")[:k]:
        i, j = places[place]
        kept[i, j] = kept[j, i] = matrix[i, j]
    return kept


def fednl(
    loss: Callable[[Array], float],
    grad: Gradient,
    hessian: Hessian,
    x0: Array,
    n: int,
    mu: float,
    rounds: int,
    compress: Callable[[Array], Array],
    shift: bool = False,
    zero: bool = False,
    line_search: bool = False,
) -> Array:
    """FedNL with option 1, or with option 2 if `shift`; from H_i = 0 if `zero`."""
    x = x0
    H = [np.zeros((len(x0), len(x0))) if zero else hessian(i, x0) for i in range(n)]
    models = [x]
    for r in range(rounds):
        slope = np.mean([grad(i, x) for i in range(n)], axis=0)
        mean = np.mean(H, axis=0)
        if shift:
            mean = mean + np.mean([np.linalg.norm(hessian(i, x) - H[i]) for i in range(n)]) * np.eye(len(x))
        values, vectors = np.linalg.eigh(mean)
        move = -(vectors * (1 / np.maximum(values, mu))) @ vectors.T @ slope
        length = 1.0
        least = loss(x) * (1 + 4 * np.finfo(float).eps)  # as far as a loss is known
        while line_search and loss(x + length * move) > least + 0.25 * length * slope @ move:
            length /= 2
        if zero or r > 0:  # the first round has sent whole Hessians already
            H = [H[i] + compress(hessian(i, x) - H[i]) for i in range(n)]
        x = x + length * move
        models.append(x)
    return np.array(models)


def fednl_pp(
    grad: Gradient,
    hessian: Hessian,
    x0: Array,
    n: int,
    cohorts: Sequence[Sequence[int]],
    compress: Callable[[Array], Array],
    zero: bool = False,
) -> Array:
    """FedNL-PP; who has not answered yet counts for nothing."""
    d = len(x0)
    H, error, g = np.zeros((n, d, d)), np.zeros(n), np.zeros((n, d))
    x = x0
    models = [x]
    for r, cohort in enumerate(cohorts):
        for i in cohort:
            true = hessian(i, x)
            H[i] = true if r == 0 and not zero else H[i] + compress(true - H[i])
            error[i] = np.linalg.norm(true - H[i])
            g[i] = (H[i] + error[i] * np.eye(d)) @ x - grad(i, x)
        x = np.linalg.solve(H.mean(axis=0) + error.mean() * np.eye(d), g.mean(axis=0))
        models.append(x)
    return np.array(models)


def to_nearest(v: Array, levels: int | None) -> Array:
    """Every entry at the nearest of `levels` multiples of the largest magnitude's share; v itself without levels."""
    if levels is None:
        return v
    unit = np.max(np.abs(v)) / levels
    return np.asarray(np.rint(v / unit) * unit)


def fedlin_newton(
    grad: Gradient,
    hessian: Hessian,
    x0: Array,
    tau: NDArray[np.int64],
    eta: Array,
    rounds: int,
    levels: int | None = None,
) -> Array:
    """Changes of gradients, mean gradients, and moves up and down all go as `to_nearest` has them."""
    n, x = len(tau), x0
    known = [np.zeros_like(x0) for _ in range(n)]  # the gradients, as the server knows them
    models = [x0]
    for _ in range(rounds):
        known = [known[i] + to_nearest(grad(i, x) - known[i], levels) for i in range(n)]
        g = to_nearest(np.mean(known, axis=0), levels)
        moves = []
        for i in range(n):
            y = x
            for _ in range(tau[i]):
                y = y - eta[i] * np.linalg.inv(hessian(i, y)) @ (grad(i, y) - grad(i, x) + g)
            moves.append(to_nearest(y - x, levels))
        x = x + to_nearest(np.mean(moves, axis=0), levels)
        models.append(x)
    return np.array(models)
