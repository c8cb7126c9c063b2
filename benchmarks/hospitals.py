"""Clients with very different numbers of rows, as hospitals are: FedLin on softmax regression beside a NumPy loop.

`python -m benchmarks.hospitals` prints the seconds of 100 rounds, the least of some repeats taken in turns: wall time,
and CPU time, which other programs disturb less.
"""

import json
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
from scipy.special import softmax as probabilities

import fedlin
from benchmarks.reference import Gradient, Work
from benchmarks.reference import fedlin as plain_fedlin

SIZES = (1538, 1100, 820, 560, 390, 260, 160, 90, 50, 20, 10, 2)  # rows of each hospital
FEATURES, CLASSES, STEPS, ROUNDS, L2 = 33, 3, 5, 100, 1e-3


def rows(seed: int = 0) -> tuple[list[Any], list[Any]]:
    """Standardised features of every hospital and its labels."""
    draw = np.random.default_rng(seed)
    X = [draw.standard_normal((n, FEATURES)) for n in SIZES]
    W = draw.standard_normal((FEATURES, CLASSES))
    return X, [np.argmax(part @ W + draw.gumbel(size=(len(part), CLASSES)), axis=1) for part in X]


def gradient(X: list[Any], y: list[Any]) -> Gradient:
    """f_i(W) = mean over rows of log Σ_c exp(w_cᵀa) - w_yᵀa + (l2/2)‖W‖²."""
    hits = [np.eye(CLASSES)[labels] for labels in y]

    def of_client(i: int, x: Any) -> Any:
        p = probabilities(X[i] @ x.reshape(FEATURES, CLASSES), axis=1)
        return (X[i].T @ (p - hits[i])).ravel() / len(X[i]) + L2 * x

    return of_client


def measure(repeats: int = 5) -> dict[str, dict[str, float]]:
    """Seconds of 100 rounds: NumPy, and ours measured in every round and in none, all clients weighed alike."""
    X, y = rows()
    problem = fedlin.problems.softmax(X, y, L2)
    eta = 0.5 / problem.smoothness / STEPS
    plan = fedlin.Plan(STEPS, eta)
    work = Work(gradient(X, y), np.full(len(SIZES), STEPS), np.full(len(SIZES), eta))
    start = np.zeros(FEATURES * CLASSES)

    def ours(every: int) -> Callable[[], Any]:
        return lambda: fedlin.simulate(fedlin.fedlin(), problem, plan, ROUNDS, iterates=False, measure_every=every).x

    ways = {
        "NumPy": lambda: next(islice(plain_fedlin(work, start), ROUNDS - 1, None)),
        "measured in every round": ours(1),
        "not measured": ours(0),
    }
    models = {name: way() for name, way in ways.items()}  # compiles
    for name, model in models.items():
        np.testing.assert_allclose(model, models["NumPy"], rtol=1e-8, atol=1e-10, err_msg=name)
    clocks = {"wall": time.perf_counter, "cores": time.process_time}
    least = {clock: dict.fromkeys(ways, float("inf")) for clock in clocks}
    for _ in range(repeats):
        for name, way in ways.items():
            began = {clock: read() for clock, read in clocks.items()}
            way()
            for clock, read in clocks.items():
                least[clock][name] = min(least[clock][name], read() - began[clock])
    for taken in least.values():
        taken.update({f"{name} over NumPy": taken[name] / taken["NumPy"] for name in ways if name != "NumPy"})
    return least


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
