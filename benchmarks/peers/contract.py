"""What a contestant is given, and what it prints: a task from a file, and one line of JSON.

It runs as `python -m benchmarks.peers.with_NAME TASK METHOD ROUNDS BEGUN`, in an environment that need not have fedlin.
"""

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.process import peak

Array = NDArray[Any]


class Task(NamedTuple):
    """Least squares (½‖X_i x - y_i‖²) or logistic regression (mean over rows, and l2), from x = 0."""

    loss: str
    X: Array  # (m, n, d)
    y: Array  # (m, n)
    l2: float
    tau: Array  # (m,)
    eta: Array  # (m,)

    def write(self, path: str) -> None:
        """Into a file for another process."""
        np.savez(path, **self._asdict())


def read(path: str) -> Task:
    """What `write` wrote."""
    with np.load(path) as file:
        return Task(str(file["loss"]), file["X"], file["y"], float(file["l2"]), file["tau"], file["eta"])


class Clock:
    """Seconds a round; the first round is counted from the start of the process, with all imports."""

    def __init__(self, begun: float) -> None:
        self.begun = begun
        self.first = float("nan")
        self.seconds: list[float] = []
        self.last = time.perf_counter()

    def start(self) -> None:
        """What was done since the last lap is not a round's."""
        self.last = time.perf_counter()

    def lap(self, rounds: int = 1) -> None:
        """As many rounds have ended."""
        now = time.perf_counter()
        if self.first != self.first:
            self.first = time.time() - self.begun
        else:
            self.seconds.append((now - self.last) / rounds)
        self.last = time.perf_counter()


Play = Callable[[Task, str, int, Clock], Array]


def run(play: Play, package: str) -> None:
    """Play the rounds asked for and print what came of it; `play` returns the last model."""
    path, method, rounds, begun = sys.argv[1:]
    clock = Clock(float(begun))
    x = play(read(path), method, int(rounds), clock)
    result = {
        "version": version(package),
        "first": clock.first,
        "seconds": clock.seconds,
        "peak": peak(),
        "x": np.asarray(x, np.float64).tolist(),
    }
    print("\n" + json.dumps(result), flush=True)
