"""What measuring the model after every round adds to a round."""

from typing import Any
from unittest.mock import patch

import jax.numpy as jnp
import numpy as np

import fedlin
from benchmarks.workloads import Workload
from fedlin.columns import MEASURED, Measures
from fedlin.engines.simulation.program import program


def measure_nothing(objective: Any, optimum: Any, x: Any, look: Any) -> Measures:
    """Stands in for the measures at the least cost that still tells a diverged model."""
    return dict.fromkeys((column.name for column in MEASURED), jnp.linalg.norm(x))


def seconds(work: Workload, rounds: int) -> float:
    """The time of a round of a program compiled afresh, compilation left out."""
    program.cache_clear()
    run = fedlin.simulate(fedlin.fedlin(), work.problem, work.plan, rounds, iterates=False)
    return float(run.seconds[-1]) / rounds


def cost(work: Workload, rounds: int, repeats: int = 5) -> dict[str, Any]:
    """Seconds a round with and without the measures, medians, taken in turns so that a busy machine slows both."""
    pairs = []
    for _ in range(repeats):
        measured = seconds(work, rounds)
        with (
            patch("fedlin.engines.simulation.program.measure", measure_nothing),
            patch(
                "fedlin.engines.simulation.program.in_closed_form", lambda optimum: True
            ),  # so that no round makes a survey
        ):
            pairs.append((measured, seconds(work, rounds)))
    program.cache_clear()
    return {
        "figure": f"recording, {work.name}",
        "seconds a round": float(np.median([a for a, _ in pairs])),
        "without measures": float(np.median([b for _, b in pairs])),
        "share of a round": float(np.median([1 - b / a for a, b in pairs])),
    }
