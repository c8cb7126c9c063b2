"""What measuring the model after every round adds to a round."""

from typing import Any
from unittest.mock import patch

import jax.numpy as jnp
import numpy as np

import fedlin
from benchmarks.workloads import Workload
from fedlin.engines.program import program
from fedlin.problems.problem import Measures


def measure_nothing(objective: Any, data: Any, weights: Any, optimum: Any, x: Any, each: Any) -> Measures:
    """Stands in for the measures at the least cost that still tells a diverged model."""
    norm = jnp.linalg.norm(x)
    return Measures(norm, norm, norm, norm)


def seconds(work: Workload, rounds: int, repeats: int) -> float:
    """The median time of a round without compilation."""
    runs = [
        fedlin.simulate(fedlin.fedlin(), work.problem, work.plan, rounds, iterates=False) for _ in range(repeats + 1)
    ]
    return float(np.median([run.seconds[-1] for run in runs[1:]]) / rounds)


def cost(work: Workload, rounds: int, repeats: int = 5) -> dict[str, Any]:
    """Seconds a round with and without the measures."""
    program.cache_clear()
    with_measures = seconds(work, rounds, repeats)
    program.cache_clear()
    with patch("fedlin.engines.program.measure", measure_nothing):
        without = seconds(work, rounds, repeats)
    program.cache_clear()
    return {
        "figure": f"recording, {work.name}",
        "seconds a round": with_measures,
        "without measures": without,
        "share of a round": 1 - without / with_measures,
    }
