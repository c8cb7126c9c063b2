"""Symmetric matrices as messages, with exact bytes.

A symmetric matrix M is a vector of its d(d+1)/2 entries on and above the diagonal, those above it times √2: the norm of
the vector is then M's Frobenius norm, so that a compressor of vectors is one of matrices with the same δ. What has no
counterpart among vectors is a matrix of low rank.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from fedlin.checks import positive_integer
from fedlin.compressors import Compressor, at_most, identity
from fedlin.core import Key, Matrix, Vector
from fedlin.errors import ArgumentError, WireError
from fedlin.payloads import Payload, Size, Symbols, array_bytes, paper_bits, symbols


@partial(jax.tree_util.register_dataclass, data_fields=["payload"], meta_fields=["dim"])
@dataclass(frozen=True)
class Triangle:
    """A symmetric matrix as the vector of its upper triangle, encoded.

    Attributes:
        payload: The encoded vector.
        dim: d, the rows of the matrix.
    """

    payload: Payload
    dim: int

    def decode(self) -> Matrix:
        """The whole matrix."""
        return from_triangle(self.payload.decode(), self.dim)

    def size(self) -> Size:
        """That of the encoded vector."""
        return self.payload.size()

    def paper_bits(self) -> float:
        """Those of the encoded vector."""
        return paper_bits(self.payload)

    def symbols(self) -> Symbols:
        """Those of the encoded vector."""
        return symbols(self.payload)

    def validate(self) -> None:
        """Refuse what the encoded vector refuses."""
        self.payload.validate()


@partial(jax.tree_util.register_dataclass, data_fields=["payload", "signs"], meta_fields=["dim"])
@dataclass(frozen=True)
class LowRank:
    """Σ_r ± v_r v_rᵀ: the vectors v_r, each an eigenvector times the root of its eigenvalue's magnitude, and signs.

    Attributes:
        payload: The encoded vectors v_r, one after the other.
        signs: (R,), each -1 or 1.
        dim: d, the rows of the matrix.
    """

    payload: Payload  # of the R vectors one after the other
    signs: jax.Array  # (R,), each -1 or 1
    dim: int

    def decode(self) -> Matrix:
        """The matrix of rank R."""
        vectors = self.payload.decode().reshape(-1, self.dim)
        return (vectors.T * self.signs.astype(vectors.dtype)[None]) @ vectors

    def size(self) -> Size:
        """R d values and a byte for each sign."""
        values, indices = self.payload.size()
        return Size(values + array_bytes(self.signs), indices)

    def paper_bits(self) -> float:
        """R d values and a bit for each sign."""
        return paper_bits(self.payload) + self.signs.size

    def symbols(self) -> Symbols:
        """Those of the vectors, and a bit for each sign."""
        inner = symbols(self.payload)
        return inner._replace(other=inner.other + self.signs.size)

    def validate(self) -> None:
        """Refuse a sign that is none, and what the encoded vectors refuse."""
        self.payload.validate()
        if not np.all(np.abs(np.asarray(self.signs)) == 1):
            raise WireError("a payload of low rank has a sign that is neither -1 nor 1.")


@dataclass(frozen=True)
class MatrixCompressor:
    """An encoder of symmetric matrices, ‖C(M) - M‖² ≤ (1 - 1/δ)‖M‖² in the Frobenius norm.

    Attributes:
        name: How it is written; a federation and checkpoints take two of equal names for the same.
        encode: (key, matrix) to a payload, as traced code.
        delta: δ of the dimension d, where it is known.
        check: Refuses a dimension it cannot serve.
    """

    name: str
    encode: Callable[[Key, Matrix], Payload]
    delta: Callable[[int], float] | None = None
    check: Callable[[int], None] = lambda dim: None

    def __repr__(self) -> str:
        return self.name

    def __call__(self, key: Key, matrix: Matrix) -> Matrix:
        """Encode and decode at once: C(M)."""
        return self.encode(key, matrix).decode()


def low_rank(rank: int, values: Compressor = identity()) -> MatrixCompressor:  # noqa: B008 - cached, and immutable
    """The nearest matrix of rank R: the R eigenvalues of largest magnitude; δ = d/R.

    Args:
        rank: R, at most d.
        values: How the entries of its R vectors are sent, such as cast("float16").

    Returns:
        The compressor of symmetric matrices.

    >>> import numpy as np
    >>> low_rank(1)(None, np.diag([1.0, -4.0])).diagonal().tolist() == [0, -4]
    True
    """
    if not isinstance(values, Compressor):
        raise ArgumentError(f"values = {values!r} is not allowed: give a compressor such as cast('float16').")
    return _low_rank(positive_integer("rank", rank), values)


@cache
def _low_rank(rank: int, values: Compressor) -> MatrixCompressor:
    def encode(key: Key, matrix: Matrix) -> LowRank:
        eigenvalues, vectors = jnp.linalg.eigh(matrix)
        largest = jnp.argsort(-jnp.abs(eigenvalues), stable=True)[:rank]
        scaled = (vectors[:, largest] * jnp.sqrt(jnp.abs(eigenvalues[largest]))[None]).T
        signs = jnp.where(eigenvalues[largest] < 0, -1, 1).astype(jnp.int8)
        return LowRank(values.encode(key, scaled.ravel()), signs, matrix.shape[0])

    name = f"low_rank({rank})" if values.lossless else f"low_rank({rank}, {values})"
    delta = (lambda dim: dim / rank) if values.lossless else None
    return MatrixCompressor(name, encode, delta, at_most("rank", rank))


def symmetric(compressor: Compressor) -> MatrixCompressor:
    """A compressor of vectors on the upper triangle of a symmetric matrix; TOP-k keeps the k entries that matter most.

    Args:
        compressor: C, a contraction such as top_k(k) with k up to d(d+1)/2.

    Returns:
        The compressor of symmetric matrices.

    >>> import numpy as np
    >>> from fedlin.compressors import top_k
    >>> symmetric(top_k(1))(None, np.array([[2.0, 1.5], [1.5, 0.0]])).round(4).tolist()  # 1.5 counts twice
    [[0.0, 1.5], [1.5, 0.0]]
    """
    if not isinstance(compressor, Compressor) or compressor.delta is None:
        raise ArgumentError(
            f"compressor = {compressor!r} is not a contraction of vectors: give top_k(k), rand_k(k), cast(...) or "
            "identity()."
        )
    return _symmetric(compressor)


@cache
def _symmetric(compressor: Compressor) -> MatrixCompressor:
    def encode(key: Key, matrix: Matrix) -> Triangle:
        return Triangle(compressor.encode(key, to_triangle(matrix)), matrix.shape[0])

    def delta(dim: int) -> float:
        assert compressor.delta is not None
        return compressor.delta(triangle_size(dim))

    return MatrixCompressor(f"symmetric({compressor})", encode, delta, lambda dim: compressor.check(triangle_size(dim)))


def triangle_size(dim: int) -> int:
    """d(d+1)/2, the entries on and above the diagonal.

    Args:
        dim: d, the rows of the matrix.

    Returns:
        How many entries.

    >>> triangle_size(3)
    6
    """
    return dim * (dim + 1) // 2


def to_triangle(matrix: Matrix) -> Vector:
    """The upper triangle as a vector of the same norm.

    Args:
        matrix: A symmetric matrix, (d, d).

    Returns:
        The vector, (d(d+1)/2,).
    """
    matrix = jnp.asarray(matrix)
    rows, columns = np.triu_indices(matrix.shape[0])
    return matrix[rows, columns] * _scales(matrix.shape[0]).astype(matrix.dtype)


def from_triangle(vector: Vector, dim: int) -> Matrix:
    """The symmetric matrix whose upper triangle this is.

    Args:
        vector: What `to_triangle` returned, (d(d+1)/2,).
        dim: d.

    Returns:
        The matrix, (d, d).
    """
    rows, columns = np.triu_indices(dim)
    upper = jnp.zeros((dim, dim), vector.dtype).at[rows, columns].set(vector / _scales(dim).astype(vector.dtype))
    return upper + jnp.triu(upper, 1).T


def _scales(dim: int) -> np.ndarray:
    rows, columns = np.triu_indices(dim)
    return np.where(rows == columns, 1.0, np.sqrt(2.0))
