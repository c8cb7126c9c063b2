"""Train an Equinox model on handwritten digits, two digits a client, sending a tenth of every gradient."""

import argparse
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

import fedlin


def main() -> None:
    """Run compressed FedLin and print the accuracy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels / 16).astype(np.float32)
    clients = [(images[own], labels[own]) for own in (np.isin(labels, [i, (i + 1) % 10]) for i in range(10))]

    network = eqx.nn.MLP(64, 10, width_size=32, depth=1, key=jax.random.key(0))
    params, static = eqx.partition(network, eqx.is_inexact_array)  # arrays, apart from functions and sizes

    def loss(params: Any, batch: Any) -> jax.Array:
        inputs, targets = batch
        scores = jax.nn.log_softmax(jax.vmap(eqx.combine(params, static))(inputs))
        return -jnp.mean(jnp.take_along_axis(scores, targets[:, None], axis=1))

    problem = fedlin.problems.from_loss(loss, params, clients)
    method = fedlin.fedlin(uplink=fedlin.top_k(problem.dim // 10))
    result = fedlin.simulate(method, problem, fedlin.Plan(tau=5, eta=0.05), rounds)
    trained: Any = eqx.combine(problem.params(result.x), static)
    accuracy = np.mean(np.argmax(jax.vmap(trained)(images), axis=1) == labels)
    print(f"loss {result.loss[0]:.3f} -> {result.loss[-1]:.3f}, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
