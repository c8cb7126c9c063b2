"""The paper's Algorithm 1 in plain NumPy, played along the models that a run went through.

Every round is played again from the run's own model, so a fault in any of them shows by itself and rounding does not
add up. Nothing here comes from the engines, the methods or the links. Arrays are (clients, rounds, d).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from fedlin.core import Array
from fedlin.plan import Plan
from fedlin.problems.logistic import Logistic
from fedlin.problems.problem import Problem
from fedlin.problems.quadratic import Quadratic

Gradients = Callable[[Array], Array]  # ∇f_i at (clients, rounds, d) points, client by client
PLAYED = 1500
SMALL = 1e-4  # of the first move: a shorter one is near rounding and counts as this long
AGREE = 1e-5  # by how much a round may differ from Algorithm 1, relative to its length


class TopK(NamedTuple):
    """How gradients are sparsified on one way: k entries, with error feedback or without."""

    k: int
    feedback: bool


def departure(
    problem: Problem,
    plan: Plan,
    models: Array,
    up: TopK | None = None,
    down: TopK | None = None,
    gradients: Gradients | None = None,
    played: int = PLAYED,
) -> tuple[float, int]:
    """How far a run is from being Algorithm 1.

    Args:
        problem: What was minimised.
        plan: τ_i and η_i.
        models: The run's x̄_1, x̄_2, ...
        up: The clients' sparsification, line 11.
        down: The server's, line 14.
        gradients: ∇f_i, where the problem is neither quadratic nor logistic.
        played: How many rounds have their local steps taken: of a longer run the first half as many, and others at
            random, so that a fault in every so many rounds does not fall between them.

    Returns:
        The largest ‖x̄_{t+1} - Algorithm 1's‖ over the length of Algorithm 1's move, and the round it is found in. A
        move counts as at least SMALL times the first.
    """
    slopes = gradients or _gradients(problem)
    here, after = models[:-1], models[1:]
    rounds = len(here)
    if rounds == 0 or not np.all(np.isfinite(models)):
        return np.inf, rounds
    tau, eta = (np.broadcast_to(rows, (rounds, problem.clients)).T for rows in plan.rows(problem.clients, rounds))
    gradients_at_model = slopes(np.broadcast_to(here, (problem.clients, *here.shape)))
    mean = gradients_at_model.mean(axis=0) if up is None else _sparsified(gradients_at_model, up).mean(axis=0)
    g = mean if down is None else _sparsified(mean[None], down)[0]
    chosen = rounds_to_play(rounds, played)
    x = np.broadcast_to(here[chosen], (problem.clients, len(chosen), here.shape[1])).copy()
    shift = g[chosen] - gradients_at_model[:, chosen]
    for step in range(int(tau.max())):  # line 5
        step_sizes = np.where(np.less(step, tau[:, chosen]), eta[:, chosen], 0)
        x -= step_sizes[..., None] * (slopes(x) + shift)
    expected = x.mean(axis=0)  # line 9
    length = np.linalg.norm(expected - here[chosen], axis=1)
    apart = np.linalg.norm(expected - after[chosen], axis=1)
    share = apart / np.maximum(length, SMALL * length[0])
    worst = int(np.argmax(share))
    return float(share[worst]), int(chosen[worst]) + 1


def rounds_to_play(rounds: int, played: int) -> NDArray[np.int64]:
    """Which rounds of a run are played, in order."""
    if rounds <= played:
        return np.arange(rounds)
    early = played // 2
    late = np.random.default_rng(0).choice(np.arange(early, rounds), played - early, replace=False)
    return np.concatenate([np.arange(early), np.sort(late)])


def _sparsified(vectors: Array, link: TopK) -> Array:
    """What is sent of (senders, rounds, d) vectors, lines 11 to 15: everything in the first round."""
    sent = np.empty_like(vectors)
    memory = np.zeros_like(vectors[:, 0])
    sent[:, 0] = vectors[:, 0]
    rows = np.arange(len(vectors))[:, None]
    for t in range(1, vectors.shape[1]):
        total = vectors[:, t] + memory if link.feedback else vectors[:, t]
        largest = np.argsort(-np.abs(total), axis=1, kind="stable")[:, : link.k]
        sent[:, t] = 0
        sent[rows, t, largest] = total[rows, largest]
        memory = total - sent[:, t]
    return sent


def _gradients(problem: Problem) -> Gradients:
    if isinstance(problem, Quadratic):
        A, b = np.asarray(problem.data.A), np.asarray(problem.data.b)
        return lambda x: x @ A - b[:, None]  # A_i is symmetric
    assert isinstance(problem, Logistic)
    sheet = problem.sheet
    X, weight, l2 = np.asarray(sheet.X), np.asarray(sheet.weight * sheet.y), float(sheet.l2[0])
    signed = X * np.asarray(sheet.y)[..., None]

    def slopes(x: Array) -> Array:
        fit = -(weight[:, None] * expit(-(x @ signed.transpose(0, 2, 1)))) @ X
        return np.asarray(fit + l2 * x + 2 * problem.nonconvex * x / (1 + x**2) ** 2)

    return slopes
