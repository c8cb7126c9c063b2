"""A small transformer in Equinox that writes Python: one module of Python's own library a client, adapters if asked."""

import argparse
import sysconfig
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import fedlin

LENGTH, WIDTH, HEADS = 64, 64, 4


class Layer(eqx.Module):
    """Attention to what came before, and two dense layers; `down` and `up` are its adapter, which begins as nothing."""

    attention: eqx.nn.MultiheadAttention
    dense: eqx.nn.MLP
    norms: tuple[eqx.nn.LayerNorm, eqx.nn.LayerNorm]
    down: jax.Array
    up: jax.Array

    def __init__(self, key: jax.Array, rank: int = 4) -> None:
        one, two, three = jax.random.split(key, 3)
        self.attention = eqx.nn.MultiheadAttention(HEADS, WIDTH, key=one)
        self.dense = eqx.nn.MLP(WIDTH, WIDTH, 4 * WIDTH, 1, jax.nn.gelu, key=two)
        self.norms = (eqx.nn.LayerNorm(WIDTH), eqx.nn.LayerNorm(WIDTH))
        self.down = jax.random.normal(three, (WIDTH, rank)) / np.sqrt(WIDTH)
        self.up = jnp.zeros((rank, WIDTH))

    def __call__(self, rows: jax.Array) -> jax.Array:
        normed = jax.vmap(self.norms[0])(rows)
        rows = rows + self.attention(normed, normed, normed, mask=jnp.tril(jnp.ones((LENGTH, LENGTH), bool)))
        normed = jax.vmap(self.norms[1])(rows)
        return rows + jax.vmap(self.dense)(normed) + normed @ self.down @ self.up


class Transformer(eqx.Module):
    """The scores of the next byte at every place."""

    bytes_: jax.Array
    places: jax.Array
    layers: list[Layer]
    scores: eqx.nn.Linear

    def __init__(self, key: jax.Array, depth: int) -> None:
        one, two, three, *others = jax.random.split(key, 3 + depth)
        self.bytes_ = 0.02 * jax.random.normal(one, (256, WIDTH))
        self.places = 0.02 * jax.random.normal(two, (LENGTH, WIDTH))
        self.layers = [Layer(own) for own in others]
        self.scores = eqx.nn.Linear(WIDTH, 256, key=three)

    def __call__(self, text: jax.Array) -> jax.Array:
        rows = self.bytes_[text] + self.places
        for layer in self.layers:
            rows = layer(rows)
        return jax.vmap(self.scores)(rows)


def read(clients: int, pieces: int) -> np.ndarray:
    """Pieces of text of the longest modules, one more byte than is read at a time."""
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"), key=lambda path: -path.stat().st_size)
    size = pieces * (LENGTH + 1)
    texts = [np.frombuffer(path.read_bytes()[:size], np.uint8) for path in modules[:clients]]
    return np.stack(texts).reshape(clients, pieces, LENGTH + 1).astype(np.int32)


def main() -> None:
    """Train all of it, or adapters alone, and print what came of it and what travelled."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("rounds", 100), ("clients", 20), ("pieces", 100), ("depth", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--adapters", action="store_true", help="train adapters of rank 4 and nothing else")
    arguments = parser.parse_args()
    texts = read(arguments.clients, arguments.pieces + 10)
    train, test = texts[:, :-10], texts[:, -10:].reshape(-1, LENGTH + 1)
    params, static = eqx.partition(Transformer(jax.random.key(0), arguments.depth), eqx.is_inexact_array)

    def loss(params: Any, batch: jax.Array) -> jax.Array:
        scores = jax.vmap(eqx.combine(params, static))(batch[:, :-1])
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(scores), batch[:, 1:, None], axis=2))

    adapters = (lambda name: name.endswith(("down", "up"))) if arguments.adapters else None
    problem = fedlin.problems.minibatch(fedlin.problems.from_loss(loss, params, train, trainable=adapters), 10)
    plan = fedlin.Plan(5, 0.5 if arguments.adapters else 0.3)
    metrics: dict[str, Any] = {"test_loss": loss}
    result = fedlin.simulate(fedlin.fedavg(), problem, plan, arguments.rounds, metrics=metrics, test=test, every=10)
    print(
        f"{problem.dim:,} parameters travel; test loss {result.test_loss[0]:.3f} -> {result.test_loss[-1]:.3f}, "
        f"{result.bytes[-1] / 1e6:.1f} MB"
    )


if __name__ == "__main__":
    main()
