"""Compare methods on a quadratic of your own: where each one ends, and what it cost to get there."""

import argparse

import numpy as np

import fedlin

METHODS = {
    "FedAvg": fedlin.fedavg(),
    "SCAFFOLD": fedlin.scaffold(),
    "FedLin": fedlin.fedlin(),
    "FedLin, 4 of 20 entries": fedlin.compressed(4),
}


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
    parser.add_argument("--out", help="a folder for the page with curves in rounds, bytes, gradient calls and seconds")
    arguments = parser.parse_args()
    problem = quadratic()
    tau = fedlin.draw_steps(problem.clients, 2, 20, seed=0)
    plan = fedlin.theory.strongly_convex(problem, tau)  # η_i = 1/(6Lτ_i), Theorem 1
    print(f"{problem}: L = {problem.smoothness:.3g}, κ = {problem.condition:.3g}")
    results = {name: fedlin.simulate(method, problem, plan, arguments.rounds) for name, method in METHODS.items()}
    compared = fedlin.compare(results, targets=[1e-2, 1e-6, 1e-10], title="Four methods on a quadratic")
    print(compared)
    if arguments.out:
        print(f"Page: {compared.write(arguments.out)}")


if __name__ == "__main__":
    main()
