"""Rounds of a method on a generalised linear model, in coordinates in which its curvature is even.

Gradient steps are slow where features differ in scale or are correlated. Before the first round, and again after every
stage of rounds, each client sends G_i = Σ_j w_j s_j a_j a_jᵀ, where s_j is the largest curvature of row j's loss at
the present model. With P = Σ_i n_i/n G_i + diag(penalty) the generalised eigenproblem diag(penalty) v = ρ P v gives T
with TᵀPT = I and Tᵀ diag(penalty) T = diag(ρ): in u = T⁻¹w the curvature of f is at most about 1 in every direction,
whatever the units of the features were, and the penalty stays one number for each entry. Clients multiply their rows by
T once a stage; the rounds in between are those of the method, unchanged.

Step sizes. With τ_i local steps of η_i, FedLin's model moves by -M∇f, and M is at most Σ_i (n_i/n) η_i τ_i I. So
η_i = 1/τ_i is safe for f, and η_i ≤ 1/L_i for client i on its own. Clients that resemble each other allow up to τ_i
times as much: a fit starts there, and halves all steps after a stage in which the loss did not fall. Where the
curvature of the loss is bounded, FedLin's steps are halved no further than to the certified ones, which are proved to
converge whatever the clients.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh

from fedlin.algorithms import fedlin
from fedlin.core import Array, Method, Requirement
from fedlin.engines.simulation.simulate import simulate
from fedlin.engines.simulation.stop import Stop
from fedlin.plan import Plan
from fedlin.problems.problem import Problem
from fedlin.result import Result
from fedlin.theory.certified_steps import choose

STAGE = 30  # rounds after which the coordinates are chosen anew
FALL = 1e-3  # or once the gradient has shrunk to this share
LATEST = 5  # rounds at the end of a stage from which its rate is read
FULL = 1000  # features up to which clients send whole matrices; beyond, only their diagonals
SMALLEST = 2.0**-20  # share of the first step from which a smaller one makes no difference
SINGULAR = 1e-13  # added to a matrix with ones on its diagonal, where features depend on each other
SLACK = 1e-12  # share of the loss that is rounding
ROUNDING = 1e-14  # gradient norm in these coordinates below which there is nothing but rounding


class LinearModel(NamedTuple):
    """A loss of rows that depends on their scores a_jᵀW, with `outputs` scores a row."""

    problem: Callable[..., Problem]  # (X, y, l2=, row_weights=), a list entry for each client
    slope: Callable[
        [Array, Array], Array
    ]  # the derivative of a row's loss in its scores, (n, outputs), from these and y
    bend: Callable[[Array], Array]  # s_j, from the scores (n, outputs)
    curvature: tuple[float, float]  # the least and the largest that s_j can be, at any model
    outputs: int = 1


class ClientRows(NamedTuple):
    """The rows of every client: features, targets and weights, and the penalty of every feature."""

    X: list[Array]
    y: list[Array]
    weights: list[Array]
    penalty: Array

    @property
    def totals(self) -> Array:
        """The weight of each client."""
        return np.array([part.sum() for part in self.weights])


class Fit(NamedTuple):
    """The model W (features, outputs), everything measured, and how far it still is from the minimiser.

    `distance` is ‖u - u*‖ over max(1, ‖u‖), estimated from the last moves and the rate at which they shrink.
    """

    W: Array
    result: Result
    distance: float


class Coordinates(NamedTuple):
    """w = T u, and the penalty ρ of every entry of u."""

    T: Array
    inverse: Array
    rho: Array


def fit_linear_model(
    model: LinearModel,
    rows: ClientRows,
    start: Array,
    algorithm: Method,
    tau: Array,
    *,
    step: float | None,
    rounds: int,
    tol: float,
    seed: int,
) -> Fit:
    """Play rounds until the model is within `tol` of the minimiser, or `rounds` of them.

    A given `step` is kept: η_i = step/τ_i, at most 1/L_i. None starts with the longest steps and halves them as needed.
    """
    W, parts, distance = start, list[Result](), np.inf
    longest = first_longest = float(tau.max()) if step is None else step
    shortest = SMALLEST * longest
    goal = 0.0  # the gradient norm at which the model should be near enough
    features = W.shape[0]
    numbers = features * (features + 1) // 2 if features <= FULL else features  # of a symmetric matrix, or a diagonal
    while True:
        curvatures = [_curvature(model, *client, W) for client in zip(rows.X, rows.weights, strict=True)]
        coordinates = rescale(np.average(curvatures, axis=0, weights=rows.totals), rows.penalty)
        eta = _step_sizes(curvatures, coordinates, tau, longest)
        if longest < first_longest and algorithm is fedlin():
            proved = _certified(model, rows, coordinates, tau)
            eta = proved / tau if longest <= proved else eta
        if Requirement.ONE_STEP_SIZE in algorithm.requires:
            eta = np.full_like(eta, eta.min())
        u = _flat(_applied(coordinates.inverse, W))
        problem = model.problem(
            [_times(X, coordinates.T) for X in rows.X],
            rows.y,
            l2=np.repeat(coordinates.rho, model.outputs),
            row_weights=rows.weights,
        )
        problem = problem.weighted(rows.totals).without_search()
        if known := model.curvature[0] == model.curvature[1] and coordinates.T.ndim == 2:
            nearest = 0.9 * tol  # f has curvature 1 in every direction, so that the gradient is u - u*
        else:
            first = float(np.linalg.norm(_applied(coordinates.T.T, _gradient(model, rows, W))))
            nearest = max(min(goal, first / 2), FALL * first)
        played = simulate(
            algorithm,
            problem,
            Plan(tau, eta),
            min(STAGE, rounds - sum(part.rounds for part in parts)),
            x0=u,
            seed=seed,
            stop=Stop(grad_norm=max(nearest, ROUNDING)),
            iterates=True,
            measure_every=1,
        )
        parts.append(played)
        rate, moved = _rate(played)
        slack = SLACK * abs(played.loss[0])
        fell = played.status != "diverged" and rate < 1 and played.loss[-1] <= played.loss[0] + slack
        settled = played.grad_norm[-1] <= ROUNDING * max(1.0, float(np.linalg.norm(played.x)))
        if fell or settled:
            W = _applied(coordinates.T, played.x.reshape(W.shape))
            left = played.grad_norm[-1] if known else moved * rate / (1 - rate)
            distance = 0.0 if settled else left / max(1.0, float(np.linalg.norm(played.x)))
            goal = 0.9 * tol / distance * played.grad_norm[-1] if distance > 0 else 0.0
        elif step is None:
            longest /= 2
        done = distance <= tol
        stuck = not fell and not settled and (step is not None or longest < shortest)
        if done or stuck or sum(part.rounds for part in parts) >= rounds:
            result = _joined(parts, W, "stopped" if done else "done", 8 * numbers * len(rows.X))
            return Fit(W, result, float(distance))


def rescale(curvature: Array, penalty: Array) -> Coordinates:
    """T with Tᵀ(G + diag(penalty))T = I and Tᵀ diag(penalty) T = diag(ρ); T is a vector where G is a diagonal.

    >>> scaled = rescale(np.array([[4.0, 0.0], [0.0, 0.0]]), np.array([0.0, 1.0]))
    >>> (scaled.T.T @ np.diag([4.0, 1.0]) @ scaled.T).round(9).tolist(), scaled.rho.round(9).tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [0.0, 1.0])
    """
    diagonal = curvature if curvature.ndim == 1 else np.diag(curvature)
    size = np.sqrt(diagonal + penalty)
    size = np.where(size > 0, size, 1.0)
    share = np.minimum(penalty / size**2, 1.0)
    if curvature.ndim == 1:
        return Coordinates(1 / size, size, share)
    even = curvature / np.outer(size, size) + np.diag(share + SINGULAR)
    rho, V = eigh(np.diag(share), even)
    return Coordinates(V / size[:, None], (V.T @ even) * size, np.clip(rho, 0.0, 1.0))


def _curvature(model: LinearModel, X: Array, weights: Array, W: Array) -> Array:
    """G_i of one client: the matrix, or its diagonal where there are too many features."""
    return _weighted_squares(X, weights * model.bend(X @ W) / weights.sum())


def _weighted_squares(X: Array, weights: Array) -> Array:
    """Σ_j w_j a_j a_jᵀ, or its diagonal where there are too many features."""
    return np.asarray(X.T @ (weights[:, None] * X) if X.shape[1] <= FULL else weights @ X**2)


def _gradient(model: LinearModel, rows: ClientRows, W: Array) -> Array:
    """∇f(W), the mean of what every client computes of its own rows."""
    sums = sum(
        X.T @ (weights[:, None] * model.slope(X @ W, y))
        for X, y, weights in zip(rows.X, rows.y, rows.weights, strict=True)
    )
    return np.asarray(sums / rows.totals.sum() + rows.penalty[:, None] * W)


def _step_sizes(curvatures: Sequence[Array], at: Coordinates, tau: Array, longest: float) -> Array:
    """η_i = longest/τ_i, at most 1/L_i where a client takes more than one step."""
    alone = np.maximum(_largest(curvatures, at), ROUNDING)
    return np.where(tau > 1, np.minimum(longest / tau, 1 / alone), longest / tau)


def _certified(model: LinearModel, rows: ClientRows, at: Coordinates, tau: Array) -> float:
    """η̄ of the certified steps η_i = η̄/τ_i in the coordinates; 0 where the curvature of the loss has no bound."""
    least, most = model.curvature
    if not np.isfinite(most):
        return 0.0
    clients = list(zip(rows.X, rows.weights, strict=True))
    smoothness = _largest([_weighted_squares(X, most * weights / weights.sum()) for X, weights in clients], at).max()
    convexity = min(_least(_weighted_squares(X, least * weights / weights.sum()), at) for X, weights in clients)
    kappa = smoothness / convexity if convexity > 0 else np.inf
    return float(choose(kappa, tau, rows.totals / rows.totals.sum()).eta_bar / smoothness)


def _least(curvature: Array, at: Coordinates) -> float:
    """μ_i of a client in the coordinates: at least the least penalty."""
    if curvature.ndim == 1:
        return float(at.rho.min())
    return float(eigh(at.T.T @ curvature @ at.T + np.diag(at.rho), eigvals_only=True)[0])


def _largest(curvatures: Sequence[Array], at: Coordinates) -> Array:
    """L_i of every client in the coordinates: the largest eigenvalue of Tᵀ(G_i + diag(penalty))T."""
    stacked = np.stack(curvatures)
    if stacked.ndim == 2:
        # The trace bounds the largest eigenvalue of what is known by its diagonal alone.
        return np.asarray(stacked @ at.T**2 + at.rho.max())
    return np.asarray(np.linalg.eigvalsh(at.T.T @ stacked @ at.T + np.diag(at.rho))[:, -1])


def _times(X: Array, T: Array) -> Array:
    """X T, where T may be a diagonal."""
    return X @ T if T.ndim == 2 else X * T


def _applied(T: Array, u: Array) -> Array:
    """T u, where T may be a diagonal."""
    return T @ u if T.ndim == 2 else T[:, None] * u


def _flat(W: Array) -> Array:
    return np.ascontiguousarray(W).reshape(-1)


def _rate(played: Result) -> tuple[float, float]:
    """The factor by which the gradient shrinks in a late round, and the length of the last move."""
    count = min(LATEST, played.rounds)
    if count == 0:
        return 0.0, 0.0
    before, now = played.grad_norm[-1 - count], played.grad_norm[-1]
    moved = float(np.linalg.norm(played.iterates[-1] - played.iterates[-2]))
    return (float(now / before) ** (1 / count) if before > 0 else 0.0), moved


def _joined(parts: Sequence[Result], W: Array, status: Any, exchanged: int) -> Result:
    """One Result of all stages; the matrices sent before each count as bytes of its first round."""

    def chained(name: str) -> Array:
        arrays = [getattr(part, name) for part in parts]
        return np.concatenate([arrays[0][:1], *(array[1:] for array in arrays)])

    def summed(name: str, extra: int = 0) -> Array:
        total, chunks = 0, [np.zeros(1, getattr(parts[0], name).dtype)]
        for part in parts:
            chunks.append(getattr(part, name)[1:] + total + extra)
            total = chunks[-1][-1] if part.rounds else total
        return np.concatenate(chunks)

    sent = {name: summed(name, exchanged) for name in ("bytes_up", "bytes_down")}
    measured = {name: chained(name) for name in ("loss", "grad_norm")}
    rest = {name: summed(name) for name in ("gradients", "seconds")}
    return Result(parts[0].algorithm, status, _flat(W), {**measured, **sent, **rest}, seed=parts[0].seed)
