"""How time grows with clients, dimension, local steps and rounds, against a straight line; and the peak memory.

Every point is a process of its own: `python -m benchmarks.growth clients 1000` prints one.
"""

import json
import sys
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from scipy.optimize import nnls

import fedlin
from benchmarks import process
from fedlin.problems.logistic import Logistic
from fedlin.problems.rows import Sheet

REPEATS = 3
SIZES = {
    "clients": (10, 100, 1_000, 10_000, 100_000, 1_000_000),
    "dimension": (10, 100, 1_000, 10_000),
    "local steps": (1, 10, 100, 1_000),
    "rounds": (10, 100, 1_000, 10_000),
}
FIXED = {  # what does not grow
    "clients": {"rows": 20, "dimension": 20, "local steps": 10},
    "dimension": {"clients": 20, "rows": 100, "local steps": 10},
    "local steps": {"clients": 20, "rows": 100, "dimension": 20},
    "rounds": {"clients": 20, "rows": 100, "dimension": 20, "local steps": 10},
}
LEAST, MOST, LONG = 2, 1_000, 0.3  # rounds of a run, and the seconds it should take


def problem(clients: int, rows: int, dim: int) -> fedlin.problems.Problem:
    """Logistic regression in float32, with nothing computed beforehand."""
    draw = np.random.default_rng(0)
    X = draw.standard_normal((clients, rows, dim), np.float32)
    X /= np.float32(np.sqrt(dim))  # the same curvature whatever the dimension
    y = np.where(draw.random((clients, rows)) < 0.5, np.float32(-1), np.float32(1))
    ones = np.ones(clients, np.float32)
    sheet = (X, y, np.full_like(y, 1 / rows), np.full(clients, rows, np.int32), 0.1 * ones)
    made = Logistic(Sheet(*cast(Any, sheet)), 0.0)
    made.known_optimum = None  # not asked for, since solving for it takes longer than the rounds
    return made


def point(kind: str, size: int) -> dict[str, float]:
    """Seconds a round of FedLin with its measures (for "rounds", of the whole run), and the process's peak memory."""
    shape = {**FIXED[kind], kind: size}
    work = problem(shape["clients"], shape["rows"], shape["dimension"])
    plan = fedlin.Plan(shape["local steps"], 0.01)

    def play(rounds: int) -> float:
        return float(fedlin.simulate(fedlin.fedlin(), work, plan, rounds, iterates=False).seconds[-1])

    rounds = size if kind == "rounds" else min(MOST, max(LEAST, int(LONG * LEAST / play(LEAST))))
    play(rounds)  # compiles
    seconds = float(np.median([play(rounds) for _ in range(REPEATS)]))
    return {"size": size, "seconds": seconds if kind == "rounds" else seconds / rounds, "peak": process.peak()}


def line(sizes: list[float], seconds: list[float]) -> dict[str, float]:
    """The line a + b·size (a, b ≥ 0) with the least squares of relative errors, and the largest of these."""
    size, time = np.array(sizes), np.array(seconds)
    (offset, slope), _ = nnls(np.stack([1 / time, size / time], 1), np.ones(len(time)))
    relative = time / (offset + slope * size)
    return {
        "offset": float(offset),
        "slope": float(slope),
        "above": float(max(relative.max(), 1.0)),
        "below": float(min(relative.min(), 1.0)),
    }


def measure(say: Callable[[str], None]) -> dict[str, Any]:
    """Every curve, with its line; a size that fails is told."""
    seconds = {}
    for kind, sizes in SIZES.items():
        points: list[dict[str, Any]] = []
        for size in sizes:
            try:
                points.append(process.run([sys.executable, "-m", "benchmarks.growth", kind, str(size)]))
            except process.FailedError as error:
                points.append({"size": size, "failed": str(error)})
            say(f"growth with {kind}: {points[-1]}")
        done = [p for p in points if "seconds" in p]
        seconds[kind] = {
            "fixed": FIXED[kind],
            "points": points,
            **line([p["size"] for p in done], [p["seconds"] for p in done]),
        }
    return seconds


if __name__ == "__main__":
    print(json.dumps(point(sys.argv[1], int(sys.argv[2]))))
