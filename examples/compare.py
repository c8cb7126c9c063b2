"""Compare methods on a quadratic of your own: where each one ends, and what it cost to get there."""

import argparse

import numpy as np

import fedlin

METHODS = [fedlin.fedavg(), fedlin.scaffold(), fedlin.fedlin(), fedlin.compressed(4)]


def quadratic() -> fedlin.problems.Problem:
    """f_i(x) = ½ xᵀA_i x - b_iᵀx for ten clients: put your own A (clients, d, d) and b (clients, d) here."""
    draw = np.random.default_rng(0)
    X = draw.standard_normal((10, 60, 20))
    A = np.matmul(X.transpose(0, 2, 1), X) / 60
    return fedlin.problems.quadratic(A, 3 * draw.standard_normal((10, 20)))


def main() -> None:
    """All methods with the same local steps and step sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=400)
    rounds = parser.parse_args().rounds
    problem = quadratic()
    tau = fedlin.draw_steps(problem.clients, 2, 20, seed=0)
    plan = fedlin.theory.strongly_convex(problem, tau)  # η_i = 1/(6Lτ_i), Theorem 1
    print(f"{problem}: L = {problem.smoothness:.3g}, κ = {problem.condition:.3g}")
    print(f"{'method':<16}{'gap':>10}{'distance²':>12}{'bytes':>12}{'gradients':>12}")
    for method in METHODS:
        result = fedlin.simulate(method, problem, plan, rounds)
        sent, gradients = result.bytes[-1], result.gradients[-1]
        name = result.algorithm.split("(")[0]
        print(f"{name:<16}{result.gap[-1]:>10.1e}{result.distance[-1]:>12.1e}{sent:>12,}{gradients:>12,}")


if __name__ == "__main__":
    main()
