"""Find the steps at which each method of claim open-models takes the fewest bytes: prints `TUNED` for its table."""

import sys
from itertools import product

import numpy as np

from fedlin.claims.bytes_methods import METHODS, REAL, STEPS, TUNED, instance, local_steps, plan
from fedlin.claims.open_models import GOALS, spent
from fedlin.engines.simulate import simulate
from fedlin.engines.stop import Stop

ROUNDS = 4000


def best(problem_name: str, method: str, rounds: int = ROUNDS) -> tuple[int, float]:
    """The point of the grid with the fewest bytes to the last goal, then to those before, then with the least gap."""
    problem = instance(problem_name, 1 if problem_name == REAL else 100)
    assert problem is not None, "a9a.gz was not found: set FEDLIN_DATA to its folder"
    first = problem.gap(problem.start)

    def cost(point: tuple[int, float]) -> tuple[float, ...]:
        stop = Stop(gap=GOALS[-1] * first)
        run = simulate(METHODS[method], problem, plan(method, problem, *point), rounds, stop=stop, iterates=False)
        return (*(spent(run, goal) for goal in GOALS[::-1]), float(np.min(run.gap)))

    return min(product(local_steps(method, problem_name), STEPS), key=cost)


def main(wanted: list[str]) -> None:
    """Tune every method on every problem, or on those named."""
    for name in wanted or list(TUNED):
        print(f'    "{name}": {{')
        for method in TUNED[name]:
            print(f'        "{method}": {best(name, method)},', flush=True)
        print("    },")


if __name__ == "__main__":
    main(sys.argv[1:])
