"""A new method, from its paper to its guarantee checked: Nesterov's accelerated gradient, with the server's memory.

Y. Nesterov, Introductory Lectures on Convex Optimization, 2004, Section 2.2, the scheme with constant momentum
β = (√κ - 1)/(√κ + 1) and η = 1/L: f(x_t) - f* ≤ ½(L + μ)(1 - 1/√κ)^t ‖x_0 - x*‖².
"""

import argparse
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

import fedlin
from fedlin.algorithms.factory import factory
from fedlin.checks import nonnegative
from fedlin.core import Central, Local, Message, Phase, Requirement, Vector


class AcceleratedServer(NamedTuple):
    """The model, and the point the next gradient is taken at."""

    x: Vector  # x_t; every server's state has an x, which is what is measured
    y: Vector  # y_t


@factory(momentum=nonnegative)  # a number: a new one needs no new program
def accelerated(momentum: float) -> fedlin.Algorithm[AcceleratedServer, None]:
    """x⁺ = y - η∇f(y); y⁺ = x⁺ + β(x⁺ - x): one gradient of every client a round."""

    def send_gradient(state: None, y: Vector, local: Local) -> tuple[None, Message]:
        return None, local.oracle.grad(y, local.key)

    def step(state: AcceleratedServer, gradient: Vector, central: Central) -> AcceleratedServer:
        x = state.y - central.eta * gradient
        return AcceleratedServer(x, x + momentum * (x - state.x))

    return fedlin.Algorithm(
        "accelerated",
        lambda x: AcceleratedServer(x, x),
        lambda x: None,
        (Phase("gradient", lambda state: state.y, send_gradient, step),),
        requires=frozenset([Requirement.OWN_MODEL]),  # y belongs to x, so nobody may put another x in its place
    )


def guarantee(problem: fedlin.problems.Problem, rounds: int, distance0: float) -> Any:
    """The bound after 0, 1, ... rounds."""
    scale = (problem.smoothness + problem.strong_convexity) / 2 * distance0
    return scale * (1 - 1 / sqrt(problem.condition)) ** np.arange(rounds + 1)


def main() -> None:
    """Run it beside gradient descent and hold it to its bound in every round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    draw = np.random.default_rng(0)
    scales = np.geomspace(1, 100, 30)
    problem = fedlin.problems.quadratic(
        [np.diag(draw.permutation(scales)) for _ in range(8)], draw.normal(size=(8, 30))
    )
    plan = fedlin.Plan(tau=1, eta=1 / problem.smoothness)
    root = sqrt(problem.condition)
    method = accelerated((root - 1) / (root + 1))
    for one in (fedlin.gradient_descent(), method):
        print(fedlin.simulate(one, problem, plan, rounds))
    result = fedlin.simulate(method, problem, plan, rounds)
    bound = guarantee(problem, rounds, result.distance[0])
    assert (result.gap <= bound).all()
    print(f"below its bound in all {rounds} rounds: {result.gap[-1]:.1e} against {bound[-1]:.1e}")


if __name__ == "__main__":
    main()
