"""Train a small network written as plain JAX functions on a pytree, over clients of different sizes."""

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fedlin


def predict(params: Any, inputs: jax.Array) -> jax.Array:
    """One hidden layer."""
    hidden = jnp.tanh(inputs @ params["hidden"] + params["shift"])
    return jnp.dot(hidden, params["output"])


def loss(params: Any, batch: Any) -> jax.Array:
    """Mean squared error: clients of different sizes need a mean over rows."""
    return jnp.mean((predict(params, batch["inputs"]) - batch["targets"]) ** 2)


def clients(count: int) -> list[dict[str, Any]]:
    """Each client sees its own stretch of one sine wave."""
    draw = np.random.default_rng(0)
    spans = [draw.uniform(i, i + 1, (20 + 5 * i, 1)) * 6 / count - 3 for i in range(count)]
    return [{"inputs": span, "targets": np.sin(2 * span[:, 0])} for span in spans]


def main() -> None:
    """Compare FedLin with FedAvg."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    rounds = parser.parse_args().rounds
    draw = np.random.default_rng(1)
    params = {
        "hidden": draw.standard_normal((1, 32), dtype=np.float32),
        "shift": draw.standard_normal(32, dtype=np.float32),
        "output": draw.standard_normal(32, dtype=np.float32) / 6,
    }
    problem = fedlin.problems.from_loss(loss, params, clients(8))
    for method in (fedlin.fedlin(), fedlin.fedavg()):
        result = fedlin.simulate(method, problem, fedlin.Plan(tau=10, eta=0.02), rounds)
        print(f"{result.algorithm}: loss {result.loss[0]:.4f} -> {result.loss[-1]:.4f}")
        trained = problem.params(result.x)  # the pytree again
        print(f"  at 0.5 it says {predict(trained, jnp.array([[0.5]]))[0]:.3f}; the sine is {np.sin(1.0):.3f}")


if __name__ == "__main__":
    main()
