"""A ResNet-18 with group normalisation in Flax, on images of CIFAR-10's shape: memory and time of a round."""

import argparse
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import fedlin

WIDTHS = (1, 2, 4, 8)  # times as many channels as at first, two blocks each


class Block(nnx.Module):
    """Two convolutions beside a path that skips them."""

    def __init__(self, channels: int, out: int, stride: int, rngs: nnx.Rngs) -> None:
        conv = partial(nnx.Conv, use_bias=False, rngs=rngs)
        self.first = conv(channels, out, (3, 3), strides=stride)
        self.second = conv(out, out, (3, 3))
        self.norms = nnx.List([nnx.GroupNorm(out, num_groups=8, rngs=rngs) for _ in range(2)])
        self.skip = conv(channels, out, (1, 1), strides=stride) if channels != out or stride > 1 else None

    def __call__(self, images: jax.Array) -> jax.Array:
        inner = nnx.relu(self.norms[0](self.first(images)))
        inner = self.norms[1](self.second(inner))
        return nnx.relu(inner + (images if self.skip is None else self.skip(images)))


class ResNet18(nnx.Module):
    """K. He et al., Deep Residual Learning for Image Recognition, CVPR 2016, as usual for images of 32×32."""

    def __init__(self, rngs: nnx.Rngs, width: int = 64, classes: int = 10) -> None:
        self.stem = nnx.Conv(3, width, (3, 3), use_bias=False, rngs=rngs)
        self.norm = nnx.GroupNorm(width, num_groups=8, rngs=rngs)
        blocks, channels = [], width
        for level, times in enumerate(WIDTHS):
            for stride in (1 if level == 0 else 2, 1):
                blocks.append(Block(channels, times * width, stride, rngs))
                channels = times * width
        self.blocks = nnx.List(blocks)
        self.head = nnx.Linear(channels, classes, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        images = nnx.relu(self.norm(self.stem(images)))
        for block in self.blocks:
            images = block(images)
        return self.head(images.mean((1, 2)))


def make_problem(clients: int, images: int, width: int, batch: int) -> Any:
    """Clients with random images, which serve for time; the loss as for any Flax model."""
    draw = np.random.default_rng(0)
    data = {
        "images": draw.standard_normal((clients, images, 32, 32, 3), np.float32),
        "labels": draw.integers(0, 10, (clients, images)).astype(np.int32),
    }
    structure, params = nnx.split(ResNet18(nnx.Rngs(0), width))

    def loss(params: Any, batch: Any) -> jax.Array:
        scores = jax.nn.log_softmax(nnx.merge(structure, params)(batch["images"]))
        return -jnp.mean(jnp.take_along_axis(scores, batch["labels"][:, None], axis=1))

    problem = fedlin.problems.from_loss(loss, params, data)
    return fedlin.problems.minibatch(problem, batch, replace=False)


def main() -> None:
    """Run FedAvg and print what a round took."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("clients", 100), ("cohort", 10), ("images", 50), ("width", 64), ("batch", 10), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    arguments = parser.parse_args()
    problem = make_problem(arguments.clients, arguments.images, arguments.width, arguments.batch)
    began = time.perf_counter()
    result = fedlin.simulate(
        fedlin.fedavg(),
        problem,
        fedlin.Plan(fedlin.epochs(problem, 1), 0.05),
        arguments.rounds,
        participation=arguments.cohort / arguments.clients,
        iterates=False,
    )
    memory = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0)
    print(
        f"{problem.dim:,} parameters, {arguments.cohort} of {arguments.clients} clients: "
        f"{result.seconds[-1] / arguments.rounds:.3f} s a round, {time.perf_counter() - began:.0f} s with compilation, "
        f"training loss {result.training_loss[-1]:.3f}, device peak {memory / 1e9:.1f} GB"
    )


if __name__ == "__main__":
    main()
