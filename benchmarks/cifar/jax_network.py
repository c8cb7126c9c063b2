"""The network in JAX: two convolutions, a pool, dropout, a layer of 128, dropout, and the scores of ten classes."""

from typing import Any

import jax
import jax.numpy as jnp

LAYOUT = ("NHWC", "HWIO", "NHWC")


def scores(params: Any, images: Any, key: Any = None) -> Any:
    """The scores of every image; with a key a quarter of the pixels and half of the neurons are dropped."""
    for name in ("first", "second"):
        images = jax.lax.conv_general_dilated(images, params[name], (1, 1), "VALID", dimension_numbers=LAYOUT)
        images = jax.nn.relu(images + params[f"{name}_bias"])
    images = jax.lax.reduce_window(images, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    first, second = (None, None) if key is None else jax.random.split(key)
    neurons = drop(images, 0.25, first).reshape(len(images), -1)
    neurons = jax.nn.relu(neurons @ params["dense"] + params["dense_bias"])
    return drop(neurons, 0.5, second) @ params["scores"] + params["scores_bias"]


def drop(array: Any, share: float, key: Any) -> Any:
    """Each entry zero with this probability, the others scaled up."""
    if key is None:
        return array
    return jnp.where(jax.random.bernoulli(key, 1 - share, array.shape), array / (1 - share), 0)


def loss(params: Any, batch: Any, key: Any = None) -> Any:
    """The mean cross-entropy."""
    found = jax.nn.log_softmax(scores(params, batch["images"], key))
    return -jnp.mean(jnp.take_along_axis(found, batch["labels"][:, None], axis=1))


def accuracy(params: Any, batch: Any) -> Any:
    """The share of images whose class has the highest score."""
    return jnp.mean(jnp.argmax(scores(params, batch["images"]), axis=1) == batch["labels"])
