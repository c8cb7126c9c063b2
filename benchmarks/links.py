"""Which link for which message: all sixteen ways to put TOP-10 of 100 on FedLin's four messages.

Rounds until the gap is 1e-10 of its start on the paper's least squares, the median over three draws, for every η̄:
`python -m benchmarks.links`, for minutes.
"""

from itertools import product
from typing import Any

import numpy as np

import fedlin
from fedlin.result import first

MESSAGES = ("uplink", "downlink", "model_uplink", "model_downlink")
LINKS = {"feedback": fedlin.error_feedback(fedlin.top_k(10)), "changes": fedlin.innovation(fedlin.top_k(10))}
STEPS = (1e-4, 2e-4, 4e-4, 8e-4)  # η̄
DRAWS, ROUNDS, GOAL = 3, 600, 1e-10


def rounds(names: tuple[str, ...]) -> list[float]:
    """For every step the median over draws; infinite where most did not get there."""
    links: dict[str, Any] = {message: LINKS[name] for message, name in zip(MESSAGES, names, strict=True)}
    members = list(product(STEPS, range(DRAWS)))
    runs = fedlin.simulate_many(
        fedlin.fedlin(**links),
        [fedlin.problems.least_squares(seed=draw) for _, draw in members],
        [fedlin.Plan.scaled(fedlin.draw_steps(20, 2, 100, seed=draw), step) for step, draw in members],
        ROUNDS,
        iterates=False,
    )
    reached = [first(run.gap, GOAL * run.gap[0]) for run in runs]
    taken = np.array([np.inf if count is None else count for count in reached])
    return [float(count) for count in np.median(taken.reshape(len(STEPS), DRAWS), axis=1)]


def main() -> None:
    """A line for each way, as comma-separated values."""
    print(*MESSAGES, *(f"η̄ = {step:g}" for step in STEPS), sep=", ")
    for names in product(LINKS, repeat=len(MESSAGES)):
        taken = (f"{count:.0f}" if np.isfinite(count) else f"over {ROUNDS}" for count in rounds(names))
        print(*names, *taken, sep=", ", flush=True)


if __name__ == "__main__":
    main()
