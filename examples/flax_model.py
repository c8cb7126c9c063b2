"""Train a Flax NNX model on handwritten digits, two digits a client."""

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from sklearn.datasets import load_digits

import fedlin


class Network(nnx.Module):
    """Two layers."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(64, 32, rngs=rngs)
        self.output = nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        return self.output(nnx.relu(self.hidden(images)))


def main() -> None:
    """Run FedLin with mini-batches and print the accuracy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels / 16).astype(np.float32)
    clients = [(images[own], labels[own]) for own in (np.isin(labels, [i, (i + 1) % 10]) for i in range(10))]

    structure, params = nnx.split(Network(nnx.Rngs(0)))  # what is learned, apart from what is not

    def loss(params: Any, batch: Any) -> jax.Array:
        inputs, targets = batch
        scores = nnx.log_softmax(nnx.merge(structure, params)(inputs))
        return -jnp.mean(jnp.take_along_axis(scores, targets[:, None], axis=1))

    problem = fedlin.problems.from_loss(loss, params, clients)
    batches = fedlin.problems.minibatch(problem, 16)
    result = fedlin.simulate(fedlin.fedlin(same_batch=True), batches, fedlin.Plan(tau=5, eta=0.1), rounds)
    model = nnx.merge(structure, problem.params(result.x))
    accuracy = np.mean(np.argmax(model(jnp.asarray(images)), axis=1) == labels)
    print(f"loss {result.loss[0]:.3f} -> {result.loss[-1]:.3f}, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
