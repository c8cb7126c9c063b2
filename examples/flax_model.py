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

    def accuracy(params: Any, batch: Any) -> jax.Array:
        return jnp.mean(jnp.argmax(nnx.merge(structure, params)(batch[0]), axis=1) == batch[1])

    method, plan, test = fedlin.fedlin(same_batch=True), fedlin.Plan(tau=5, eta=0.1), (images, labels)
    result = fedlin.simulate(method, batches, plan, rounds, metrics={"accuracy": accuracy}, test=test, every=10)
    loss_then, loss_now = result.training_loss[1], result.training_loss[-1]
    print(f"training loss {loss_then:.3f} -> {loss_now:.3f}, accuracy {result.accuracy[-1]:.3f}")


if __name__ == "__main__":
    main()
