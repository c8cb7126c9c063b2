"""Many clients in one process: logistic regression of 20 rows and 20 features, ten local steps, float32.

A round's time per client from 10³ to 10⁶ of them, and a cohort of 1,000 drawn from 10⁶ against a federation of 1,000,
in memory and in chunks from a memory-mapped file. Ways are timed in turns, so that a busy machine slows all alike, and
ratios are of the same turn.
"""

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

import fedlin
from benchmarks.growth import line
from fedlin import Plan, problems, simulate
from fedlin.problems import Problem

ROWS, FEATURES, STEPS = 20, 20, 10
MOST, COHORT = 10**6, 1000


def federation(clients: int, folder: str | None = None) -> Problem:
    """Logistic clients whose minimiser nobody searches for; in files of `folder`, mapped, where one is given."""
    draw = np.random.default_rng(0)
    shape = (clients, ROWS, FEATURES)
    if folder is None:
        X: Any = draw.standard_normal(shape, np.float32)
    else:
        path = f"{folder}/X.npy"
        written = np.lib.format.open_memmap(path, "w+", np.float32, shape)
        for first in range(0, clients, 10_000):
            part = written[first : first + 10_000]
            part[:] = draw.standard_normal(part.shape, np.float32)
        written.flush()
        X = np.load(path, mmap_mode="r")
    y = np.where(draw.random(shape[:2], np.float32) < 0.5, np.float32(-1), np.float32(1))
    return problems.logistic(X, y, l2=0.1).without_search()


def seconds(problem: Problem, rounds: int, **options: Any) -> float:
    """Seconds a round, measures included, compilation not."""
    run = simulate(fedlin.fedlin(), problem, Plan(STEPS, 0.01), rounds, iterates=False, **options)
    return float(run.seconds[-1]) / rounds


def medians(ways: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """The times of every way, in turns; the first turn, which compiles, is left out."""
    turns = [{name: way() for name, way in ways.items()} for _ in range(repeats + 1)]
    return {name: [turn[name] for turn in turns[1:]] for name in ways}


def growth(repeats: int, most: int = MOST) -> dict[str, Any]:
    """All clients in every round: seconds a round, and what that is for each client."""
    instances = {count: federation(count) for count in (10**3, 10**4, 10**5, 10**6) if count <= most}
    ways = {f"{m:,}": partial(seconds, problem, max(1, 10**5 // m)) for m, problem in instances.items()}
    times = {name: np.array(values) for name, values in medians(ways, repeats).items()}
    each = {name: values / int(name.replace(",", "")) for name, values in times.items()}
    seconds_a_round = {name: float(np.median(values)) for name, values in times.items()}
    return {
        "seconds a round": seconds_a_round,
        "straight line": line([float(m) for m in instances], list(seconds_a_round.values())),
        "per client over that of 1,000": {name: float(np.median(t / each["1,000"])) for name, t in each.items()},
    }


def cohorts(repeats: int, most: int = MOST, rounds: int = 1000) -> dict[str, Any]:
    """A cohort drawn from very many clients against a federation of its size, each measured as often as by default."""
    few, many = federation(COHORT), federation(most)
    drawn = {"participation": COHORT / most}
    with tempfile.TemporaryDirectory() as folder:
        mapped = federation(most, folder)
        times = medians(
            {
                "federation": partial(seconds, few, rounds),
                "cohort": partial(seconds, many, rounds, **drawn),
                "federation in chunks": partial(seconds, few, rounds, chunk=COHORT),
                "cohort in chunks": partial(seconds, mapped, rounds, chunk=COHORT, **drawn),
            },
            repeats,
        )
    pairs = {"cohort": "federation", "cohort in chunks": "federation in chunks"}
    ratios = {way: np.divide(times[way], times[base]) for way, base in pairs.items()}
    return {
        "seconds a round": {way: float(np.median(values)) for way, values in times.items()},
        "ratio": {way: float(np.median(values)) for way, values in ratios.items()},
        "range": {way: [float(values.min()), float(values.max())] for way, values in ratios.items()},
    }


def measure(repeats: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Both."""
    say("a million clients, and a cohort of them")
    return {"cohorts": cohorts(repeats), "clients": growth(repeats)}
