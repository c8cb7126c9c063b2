"""Symmetric matrices as messages: an isometry, contractions with the δ they claim, and what a receiver refuses."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedlin
from fedlin import cast, identity, low_rank, rand_k, symmetric, top_k
from fedlin.algorithms.compressed_scaffnew import PatternEntries
from fedlin.errors import FedLinError, WireError
from fedlin.matrices import MatrixCompressor, from_triangle, to_triangle
from fedlin.payloads import size, validate
from fedlin.precision import precision

DIM = 6
SOURCE = np.random.default_rng(2)


def matrices() -> list[Any]:
    """Random ones; one whose diagonal is a little larger than the rest, at which an unscaled TOP-k fails; and zero."""
    random = [(M + M.T) / 2 for M in SOURCE.standard_normal((5, DIM, DIM))]
    return [*random, np.ones((DIM, DIM)) + 1e-6 * np.eye(DIM), np.zeros((DIM, DIM))]


def test_a_triangle_has_the_norm_of_its_matrix_and_gives_it_back() -> None:
    with precision(np.float64):
        for M in matrices():
            vector = to_triangle(jnp.asarray(M))
            assert vector.shape == (DIM * (DIM + 1) // 2,)
            assert float(jnp.linalg.norm(vector)) == pytest.approx(np.linalg.norm(M), abs=1e-14)
            np.testing.assert_allclose(from_triangle(vector, DIM), M, atol=1e-15)


@pytest.mark.parametrize("compressor", [low_rank(2), symmetric(top_k(6))], ids=str)
def test_contractions_keep_what_their_delta_promises(compressor: MatrixCompressor) -> None:
    assert compressor.delta is not None
    left = 1 - 1 / compressor.delta(DIM)
    with precision(np.float64):
        encode = jax.jit(compressor)
        for M in matrices():
            sent = np.asarray(encode(jax.random.key(0), jnp.asarray(M)))
            np.testing.assert_allclose(sent, sent.T, atol=1e-13)
            assert np.sum((sent - M) ** 2) <= left * np.sum(M**2) + 1e-12


def test_bytes_follow_from_shapes() -> None:
    with precision(np.float64):
        expected = {
            low_rank(2): (2 * DIM * 8 + 2, 0),
            low_rank(2, cast("float16")): (2 * DIM * 2 + 2 + 2, 0),
            symmetric(top_k(4)): (4 * 8, 4),
            symmetric(identity()): (21 * 8, 0),
        }
        for compressor, bytes_ in expected.items():
            assert size(jax.eval_shape(compressor.encode, jax.random.key(0), matrices()[0])) == bytes_


def test_a_receiver_refuses_what_no_encoder_makes() -> None:
    with precision(np.float64):
        M = jnp.asarray(matrices()[0])
        made = [compressor.encode(jax.random.key(0), M) for compressor in (low_rank(1), symmetric(rand_k(3)))]
    rank, triangle = jax.tree.map(np.asarray, made)
    validate([rank, triangle])
    with pytest.raises(WireError, match="neither -1 nor 1"):
        validate(replace(rank, signs=np.array([2], np.int8)))
    with pytest.raises(WireError, match="twice"):
        validate(replace(triangle, payload=replace(triangle.payload, indices=np.zeros(3, np.uint8))))
    entries: Any = PatternEntries(np.zeros(2), np.uint8(7), 5, 3, 7)  # type: ignore[arg-type]
    with pytest.raises(WireError, match="beyond the 7"):
        validate(entries)


def test_what_is_no_contraction_of_vectors_is_refused() -> None:
    for wrong in (fedlin.quantize(3), "top_k(3)", low_rank(1)):
        with pytest.raises(FedLinError, match="not a contraction of vectors"):
            symmetric(wrong)  # type: ignore[arg-type]
