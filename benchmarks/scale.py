"""Many clients in one process: 100,000 of 20×20, logistic, ten local steps; seconds a round and peak memory."""

import resource
import time

import numpy as np

import fedlin


def measure(clients: int = 100_000) -> dict[str, str]:
    """One row; run it in a process of its own, since peak memory is the process's."""
    draw = np.random.default_rng(0)
    X = draw.standard_normal((clients, 20, 20))
    y = np.where(draw.random((clients, 20)) < 0.5, -1.0, 1.0)
    problem = fedlin.problems.logistic(X, y, l2=0.1)
    rounds = 5
    plan = fedlin.Plan(tau=10, eta=0.01)
    result = fedlin.simulate(fedlin.fedlin(), problem, plan, rounds)
    return {
        "clients": f"{clients:,}",
        "seconds a round": f"{result.seconds[-1] / rounds:.3f}",
        "peak memory": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB",
    }


if __name__ == "__main__":
    began = time.perf_counter()
    print(measure(), f"{time.perf_counter() - began:.1f} s in all")
