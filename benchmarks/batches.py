"""Many runs of W1 as one batch against one run after another."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import fedlin
from benchmarks.workloads import w1


def measure(members: int = 64, rounds: int = 500, repeats: int = 5) -> dict[str, Any]:
    """Step sizes from half the plan's to the plan's; medians, taken in turns so that a busy machine slows both."""
    work = w1(True)
    plans = [fedlin.Plan(work.plan.tau, np.asarray(work.plan.eta) * scale) for scale in np.linspace(0.5, 1, members)]

    def together() -> None:
        fedlin.simulate_many(fedlin.fedlin(), work.problem, plans, rounds, iterates=False)

    def apart() -> None:
        for plan in plans:
            fedlin.simulate(fedlin.fedlin(), work.problem, plan, rounds, iterates=False)

    def seconds(play: Callable[[], None]) -> float:
        began = time.perf_counter()
        play()
        return time.perf_counter() - began

    pairs = [(seconds(together), seconds(apart)) for _ in range(repeats + 1)][1:]  # the first ones compile
    batch, single = np.median(pairs, axis=0)
    return {
        "figure": f"{members} runs of W1, {rounds} rounds",
        "together": float(batch),
        "apart": float(single),
        "times faster": float(np.median([b / a for a, b in pairs])),
    }
