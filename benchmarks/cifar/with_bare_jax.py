"""FedAvg in JAX written for this network and no other: convolutions and pooling by hand, all users in one program."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.cifar.jax_network import accuracy, drop
from benchmarks.cifar.setting import Laps, Setting, contestant, initial_parameters


def convolve(images: Any, kernel: Any) -> Any:
    """Patches of 3×3 times the kernel as a matrix."""
    height, width = images.shape[1] - 2, images.shape[2] - 2
    parts = [images[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    return jnp.concatenate(parts, -1) @ kernel.reshape(-1, kernel.shape[-1])


@jax.custom_vjp
def pool(images: Any) -> Any:
    """The largest of each 2×2 window; its derivative goes to the first that attains it."""
    n, height, width, channels = images.shape
    return images.reshape(n, height // 2, 2, width // 2, 2, channels).max((2, 4))


def _forward(images: Any) -> Any:
    largest = pool(images)
    return largest, (images, largest)


def _backward(residuals: Any, slope: Any) -> Any:
    images, largest = residuals
    n, height, width, channels = images.shape
    windows = images.reshape(n, height // 2, 2, width // 2, 2, channels)
    taken, parts = jnp.zeros(largest.shape, bool), []
    for i in (0, 1):
        for j in (0, 1):
            hit = windows[:, :, i, :, j] == largest
            parts.append(jnp.where(hit & ~taken, slope, 0))
            taken |= hit
    rows = [jnp.stack(parts[:2], 3), jnp.stack(parts[2:], 3)]
    return (jnp.stack(rows, 2).reshape(images.shape),)


pool.defvjp(_forward, _backward)


def loss(params: Any, images: Any, labels: Any, key: Any) -> Any:
    """The mean cross-entropy, with dropout."""
    for name in ("first", "second"):
        images = jax.nn.relu(convolve(images, params[name]) + params[f"{name}_bias"])
    first, second = jax.random.split(key)
    neurons = drop(pool(images), 0.25, first).reshape(len(images), -1)
    neurons = jax.nn.relu(neurons @ params["dense"] + params["dense_bias"])
    chances = jax.nn.log_softmax(drop(neurons, 0.5, second) @ params["scores"] + params["scores_bias"])
    return -jnp.mean(jnp.take_along_axis(chances, labels[:, None], axis=1))


def play(setting: Setting, method: str, laps: Laps) -> dict[str, Any]:
    """Rounds in one program, as many as lie between two evaluations."""
    slope = jax.grad(loss)

    def client(params: Any, images: Any, labels: Any, key: Any) -> Any:
        order = jax.random.permutation(key, setting.images)

        def step(i: Any, params: Any) -> Any:
            rows = jax.lax.dynamic_slice(order, (i * setting.batch,), (setting.batch,))
            slopes = slope(params, images[rows], labels[rows], jax.random.fold_in(key, i))
            return jax.tree.map(lambda p, s: p - setting.eta * s, params, slopes)

        return jax.lax.fori_loop(0, setting.images // setting.batch, step, params)

    def play_round(number: Any, params: Any, images: Any, labels: Any) -> Any:
        key = jax.random.fold_in(jax.random.key(0), number)
        who = jax.random.choice(key, setting.users, (setting.cohort,), replace=False)
        keys = jax.random.split(key, setting.cohort)
        ends = jax.vmap(client, in_axes=(None, 0, 0, 0))(params, images[who], labels[who], keys)
        return jax.tree.map(lambda leaf: jnp.mean(leaf, 0), ends)

    @jax.jit
    def play_rounds(first: Any, params: Any, images: Any, labels: Any) -> Any:
        return jax.lax.fori_loop(
            first, first + setting.every, lambda t, params: play_round(t, params, images, labels), params
        )

    @jax.jit
    def evaluate(params: Any, images: Any, labels: Any) -> Any:
        blocks = (
            images.reshape(-1, min(1000, setting.test), *images.shape[1:]),
            labels.reshape(-1, min(1000, setting.test)),
        )
        return jnp.mean(jax.lax.map(lambda b: accuracy(params, {"images": b[0], "labels": b[1]}), blocks))

    params = jax.device_put(initial_parameters())
    data, test = jax.device_put((setting.users_data(), setting.test_data()))
    accuracies = []
    for first in range(0, setting.rounds, setting.every):
        params = play_rounds(np.int32(first), params, *data)
        accuracies.append(float(evaluate(params, *test)))
        laps.lap(setting.every)
    return {"jax": jax.__version__, "accuracy": accuracies[-1]}


if __name__ == "__main__":
    contestant(play)
