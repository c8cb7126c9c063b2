"""Find what each method of claim open-models takes the fewest bytes with: prints `TUNED` for its table.

`python -m benchmarks.tune_bytes [PROBLEM [METHOD ...]]` tunes all methods on all problems, or those named.
"""

import sys
from itertools import product

import numpy as np

from fedlin.claims.common.bytes_methods import (
    PROBLEMS,
    REAL,
    STEPS,
    Choice,
    instance,
    local_steps,
    methods,
    most_rounds,
    plan,
)
from fedlin.claims.open_models import GOALS, spent
from fedlin.engines.messages import message_sizes
from fedlin.engines.simulation.simulate import simulate
from fedlin.engines.simulation.stop import Stop
from fedlin.problems.problem import Problem

Cost = tuple[float, ...]


def best(name: str, method: str) -> tuple[Choice, Cost]:
    """The choice with the fewest bytes to the last goal, then to those before, then with the least gap."""
    problem = instance(name, 1 if name == REAL else 100)
    assert problem is not None, "a9a.gz was not found: set FEDLIN_DATA to its folder"
    variants = methods()[method]
    grid = [Choice(*point) for point in product(variants, local_steps(method), STEPS)]
    costs: dict[Choice, Cost] = {}
    for choice in sorted(grid, key=lambda c: (c.tau != 16, c.step != 1.0)):  # what gets there first cuts the rest short
        least = min((cost[0] for cost in costs.values()), default=np.inf)
        costs[choice] = _cost(name, method, problem, choice, least)
    cheapest = min(costs, key=costs.__getitem__)
    return cheapest, costs[cheapest]


def _cost(name: str, method: str, problem: Problem, choice: Choice, least: float) -> Cost:
    """Bytes to every goal, the last first, and the least of the gap over its start; given up beyond `least` bytes."""
    algorithm = methods()[method][choice.variant]
    sizes = message_sizes(algorithm, problem).later
    each = problem.clients * sum(size.up.total + size.down.total for size in sizes)
    rounds = int(min(most_rounds(name, choice.tau), least // each + 1))
    stop = Stop(gap=GOALS[-1] * problem.gap(problem.start))
    steps = plan(method, problem, choice.tau, choice.step)
    run = simulate(algorithm, problem, steps, rounds, stop=stop, iterates=False)
    return (*(spent(run, goal) for goal in GOALS[::-1]), float(np.nanmin(run.gap) / run.gap[0]))


def main(name: str | None = None, *named: str) -> None:
    """Print a table that Python reads, with each cost as a comment."""
    for problem in PROBLEMS if name is None else (name,):
        print(f"    {problem!r}: {{", flush=True)
        for method in named or methods():
            choice, cost = best(problem, method)
            parts = " ".join(f"{part:.2g}" for part in cost)
            print(f"        {method!r}: Choice{tuple(choice)},  # {parts}", flush=True)
        print("    },")


if __name__ == "__main__":
    main(*sys.argv[1:])
