"""Compression layer by layer: each array by itself, in the order in which a model is flattened."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import fedlin
from fedlin import cast, identity, natural, per_layer, privacy, quantize, sign, top_k
from fedlin.compressors import Compressor
from fedlin.errors import ArgumentError
from fedlin.payloads import size
from fedlin.precision import precision

PARAMS = {
    "second": {"bias": np.zeros(3), "weights": np.zeros((4, 3))},
    "first": [np.zeros((2, 4)), np.zeros(0), np.zeros(())],
}
SIZES = (8, 1, 3, 12)  # "first" comes before "second", and an empty array has nothing to send
DIM = sum(SIZES)


def apply(compressor: Compressor, vector: Any, key: int = 0) -> Any:
    with precision(np.float64):
        return np.asarray(compressor(jax.random.key(key), jnp.asarray(vector)))


def some(count: int) -> Compressor:
    return top_k(max(1, count // 4))


def test_each_layer_is_encoded_by_itself() -> None:
    """As by hand, leaf by leaf; and every layer gets its share, however small its numbers."""
    draw = np.random.default_rng(0)
    tree = jax.tree.map(lambda leaf: 10.0 ** draw.integers(-9, 9) * draw.standard_normal(leaf.shape), PARAMS)
    with precision(np.float64):
        vector, restore = ravel_pytree(tree)
        expected = jax.tree.map(
            lambda leaf: apply(some(leaf.size), leaf.ravel()).reshape(leaf.shape) if leaf.size else leaf, tree
        )
        found = restore(jnp.asarray(apply(per_layer(PARAMS, some), vector)))
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert all(np.any(leaf) for leaf in jax.tree.leaves(found) if leaf.size)
    whole = restore(jnp.asarray(apply(top_k(7), vector)))
    assert not all(np.any(leaf) for leaf in jax.tree.leaves(whole) if leaf.size)


@pytest.mark.parametrize(
    "compressor", [per_layer(PARAMS, some), per_layer(PARAMS, sign()), per_layer(PARAMS, cast("float16"))], ids=repr
)
def test_the_worst_layer_bounds_the_whole(compressor: Compressor) -> None:
    """‖C(v) - v‖² ≤ (1 - 1/δ)‖v‖², met where the worst layer alone has entries."""
    assert compressor.delta is not None
    draw = np.random.default_rng(1)
    for _ in range(50):
        vector = draw.standard_normal(DIM) * draw.choice([0.0, 1.0, 1e3], DIM)
        error = apply(compressor, vector) - vector
        assert error @ error <= (1 - 1 / compressor.delta(DIM)) * (vector @ vector) * (1 + 1e-12)
    deltas = [part.delta(count) for part, count in zip(map(some, SIZES), SIZES, strict=True) if part.delta]
    assert per_layer(PARAMS, some).delta(DIM) == max(deltas)  # type: ignore[misc]


def test_unbiased_layers_are_unbiased_together() -> None:
    compressor = per_layer(PARAMS, quantize(2))
    assert compressor.delta is None
    assert compressor.omega is not None
    assert compressor.omega(DIM) == max(quantize(2).omega(count) for count in SIZES)  # type: ignore[misc]
    vector = np.random.default_rng(2).standard_normal(DIM)
    with precision(np.float64):
        keys = jax.random.split(jax.random.key(0), 20_000)
        draws = np.asarray(jax.vmap(lambda key: compressor(key, jnp.asarray(vector)))(keys))
    np.testing.assert_allclose(draws.mean(axis=0), vector, atol=0.05)
    errors = np.corrcoef(draws[:, 0], draws[:, 12])[0, 1]  # layers draw apart
    assert abs(errors) < 0.03


def test_bytes_are_the_layers_own() -> None:
    with precision(np.float64):
        payload = jax.eval_shape(per_layer(PARAMS, some).encode, jax.random.key(0), jnp.zeros(DIM))
    assert size(payload) == (8 * (2 + 1 + 1 + 3), 7)


def test_equal_layers_are_the_same_object_and_many_have_a_short_name() -> None:
    assert per_layer(PARAMS, some) is per_layer([np.zeros(count) for count in SIZES], some)
    assert per_layer(PARAMS, sign()).name == "per_layer(8: sign(), 1: sign(), 3: sign(), 12: sign())"
    many = [np.zeros(count) for count in range(1, 40)]
    names = {per_layer(many, one).name for one in (sign(), natural())}
    assert len(names) == 2
    assert all(name.startswith("per_layer(39 layers of 780 entries, ") for name in names)
    assert per_layer(PARAMS, identity()).lossless


def test_what_cannot_be_compressed_layer_by_layer_is_refused() -> None:
    with pytest.raises(ArgumentError, match="params = 'weights'"):
        per_layer("weights", sign())
    with pytest.raises(ArgumentError, match="compressor = 3"):
        per_layer(PARAMS, 3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="gives 4 for a layer of 8 entries"):
        per_layer(PARAMS, lambda count: 4)  # type: ignore[arg-type, return-value]
    with pytest.raises(ArgumentError, match="k = 2 is more than the model's 1 entries"):
        per_layer(PARAMS, top_k(2))
    with pytest.raises(ArgumentError, match="whole upload has to be"):
        per_layer(PARAMS, privacy.gaussian(1.0, 1.0))
    other = fedlin.problems.least_squares(clients=2, dim=3, samples=5)
    with pytest.raises(ArgumentError, match="params have 24 entries and the model 3"):
        fedlin.simulate(fedlin.fedlin(uplink=per_layer(PARAMS, sign())), other, fedlin.Plan(1, 0.1), 1)
