"""The same script on whatever device JAX finds: seconds a round, and agreement with an independent loop."""

import time

import jax
import numpy as np

import fedlin
from benchmarks.workloads import Workload, numpy_round, w1, w2


def main(rounds: int = 200) -> None:
    """Print one line a workload."""
    print(f"JAX {jax.__version__} on {jax.devices()[0]}")
    for work in (w1(True), w1(False), w2()):
        result = fedlin.simulate(fedlin.fedlin(), work.problem, work.plan, rounds)
        began = time.perf_counter()
        fedlin.simulate(fedlin.fedlin(), work.problem, work.plan, rounds)
        seconds = (time.perf_counter() - began) / rounds
        print(f"{work.name}: {seconds * 1e6:.0f} µs a round, differs from the loop by {difference(work, result):.1e}")


def difference(work: Workload, result: fedlin.Result, rounds: int = 3) -> float:
    """The largest difference to the NumPy loop over a few rounds, relative to the model."""
    x = work.problem.start
    for _ in range(rounds):
        x = numpy_round(work, x)
    return float(np.max(np.abs(result.iterates[rounds] - x)) / np.max(np.abs(x)))


if __name__ == "__main__":
    main()
