"""pfl-research's CIFAR-10 benchmark: 1,000 users of 50 images, 50 drawn a round, one pass in batches of 10, dropout.

Reads CIFAR-10's binary files (data_batch_1.bin to data_batch_5.bin, test_batch.bin) from the folder FEDLIN_DATA, or
from cifar-10-batches-bin in it; where they are not, images of that shape are drawn at random, and it says so.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fedlin

LAYOUT = ("NHWC", "HWIO", "NHWC")


def read(name: str, count: int) -> dict[str, Any] | None:
    """Images, each channel with mean 0 and deviation 1, and labels: 3,073 bytes an image, its label first."""
    home = Path(os.environ.get("FEDLIN_DATA", "../shared/data"))
    folders = [folder for folder in (home, home / "cifar-10-batches-bin") if (folder / "test_batch.bin").is_file()]
    if not folders:
        return None
    content = b"".join(path.read_bytes() for path in sorted(folders[0].glob(name)))
    rows = np.frombuffer(content, np.uint8).reshape(-1, 3073)[:count]
    images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).astype(np.float32) / 255
    normal = (images - [0.491, 0.482, 0.447]) / [0.247, 0.243, 0.262]
    return {"images": normal.astype(np.float32), "labels": rows[:, 0].astype(np.int32)}


def draw(count: int, seed: int) -> dict[str, Any]:
    """Images of the same shape that show nothing."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 10, count).astype(np.int32)
    return {"images": random.standard_normal((count, 32, 32, 3), np.float32), "labels": labels}


def drop(array: jax.Array, share: float, key: jax.Array | None) -> jax.Array:
    """Each entry zero with this probability, the others scaled up; as it is without a key."""
    if key is None:
        return array
    return jnp.where(jax.random.bernoulli(key, 1 - share, array.shape), array / (1 - share), 0)


def scores(params: Any, images: Any, key: Any = None) -> Any:
    """Two convolutions, a pool, and two dense layers, with dropout where there is a key."""
    for name in ("first", "second"):
        images = jax.lax.conv_general_dilated(images, params[name], (1, 1), "VALID", dimension_numbers=LAYOUT)
        images = jax.nn.relu(images + params[f"{name}_bias"])
    images = jax.lax.reduce_window(images, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    one, two = (None, None) if key is None else jax.random.split(key)
    neurons = drop(images, 0.25, one).reshape(len(images), -1)
    neurons = jax.nn.relu(neurons @ params["dense"] + params["dense_bias"])
    return drop(neurons, 0.5, two) @ params["scores"] + params["scores_bias"]


def loss(params: Any, batch: Any, key: Any = None) -> Any:
    """The mean cross-entropy."""
    chances = jax.nn.log_softmax(scores(params, batch["images"], key))
    return -jnp.mean(jnp.take_along_axis(chances, batch["labels"][:, None], axis=1))


def accuracy(params: Any, batch: Any) -> Any:
    """The share of images whose class has the highest score."""
    return jnp.mean(jnp.argmax(scores(params, batch["images"]), axis=1) == batch["labels"])


def main() -> None:
    """Train, and print the accuracy as it grows."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("rounds", 1500), ("users", 1000), ("cohort", 50), ("images", 50), ("test", 10_000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    arguments = parser.parse_args()
    train, test = read("data_batch_*.bin", arguments.users * arguments.images), read("test_batch.bin", arguments.test)
    print("CIFAR-10 itself" if train and test else "random images of CIFAR-10's shape: FEDLIN_DATA holds no CIFAR-10")
    if train is None or test is None:
        train, test = draw(arguments.users * arguments.images, 0), draw(arguments.test, 1)
    users = {
        name: values.reshape(arguments.users, arguments.images, *values.shape[1:]) for name, values in train.items()
    }
    shapes = {"first": (3, 3, 3, 32), "second": (3, 3, 32, 64), "dense": (14 * 14 * 64, 128), "scores": (128, 10)}
    glorot = jax.nn.initializers.glorot_uniform()
    params = {name: glorot(jax.random.key(i), shape) for i, (name, shape) in enumerate(shapes.items())}
    params |= {f"{name}_bias": jnp.zeros(shape[-1]) for name, shape in shapes.items()}
    problem = fedlin.problems.minibatch(fedlin.problems.from_loss(loss, params, users), 10, replace=False)
    plan = fedlin.Plan(fedlin.epochs(problem, 1), 0.1)
    options: dict[str, Any] = {"participation": arguments.cohort / arguments.users, "iterates": False, "progress": True}
    result = fedlin.simulate(
        fedlin.fedavg(), problem, plan, arguments.rounds, metrics={"accuracy": accuracy}, test=test, every=10, **options
    )
    print(f"{result!r}\nbest accuracy {np.nanmax(result.accuracy):.4f} after round {result.best_round}")


if __name__ == "__main__":
    main()
