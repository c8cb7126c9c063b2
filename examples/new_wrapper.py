"""A new wrapper: momentum at the server, around any method that lets the server move its model.

T.-M. H. Hsu, H. Qi, M. Brown, Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification, 2019: with Δ = x - x', where the method would end the round with x', v ← βv + Δ and x ← x - v.
`fedlin.server_optimizer(method, optax.sgd(1.0, momentum=beta))` is the same; here β is a number of the method, so that
another one needs no new program and many run as one batch.
"""

import argparse
from typing import Any

import numpy as np

import fedlin
from fedlin.algorithms.factory import factory
from fedlin.algorithms.wrap import wrap
from fedlin.checks import real
from fedlin.core import Central, Vector


def below_one(name: str, value: Any) -> float:
    """What β may be."""
    return real(name, value, lambda beta: 0 <= beta < 1, "a number in [0, 1)")


@factory(beta=below_one)  # a number: a new one needs no new program, and neither do the wrapped method's own
def momentum(method: fedlin.Algorithm[Any, Any], beta: float) -> fedlin.Algorithm[Any, Any]:
    """v ← βv + (x - x'), x ← x - v."""

    def end_round(v: Vector, before: Vector, after: Vector, central: Central) -> tuple[Vector, Vector]:
        v = beta * v + before - after
        return v, before - v

    return wrap(method, "momentum", start=lambda x: 0 * x, end_round=end_round)


def main() -> None:
    """How many rounds it saves FedLin, all β in one compiled program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3000)
    rounds = parser.parse_args().rounds
    problem = fedlin.problems.least_squares(clients=8, dim=30, samples=60)
    plan = fedlin.theory.strongly_convex(problem, tau=[1, 2, 3, 4, 5, 6, 7, 8])
    betas = [0.0, 0.5, 0.8, 0.9]
    methods = [momentum(fedlin.fedlin(), beta) for beta in betas]
    for beta, result in zip(betas, fedlin.simulate_many(methods, problem, plan, rounds), strict=True):
        below = np.flatnonzero(result.gap <= 1e-10)
        reached = f"gap 1e-10 after {below[0]} rounds" if below.size else f"gap {result.gap[-1]:.1e} at the end"
        print(f"momentum {beta}: {reached}")
    try:
        momentum(fedlin.fedsplit(), 0.9)
    except fedlin.FedLinError as refusal:
        print(f"refused: {refusal}")


if __name__ == "__main__":
    main()
