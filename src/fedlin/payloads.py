"""Encoded vectors, as they go on the wire: their arrays decode to a vector, and their bytes are known from shapes."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedlin.core import Message, Vector


class Size(NamedTuple):
    """Bytes of a message, values and indices apart."""

    values: int
    indices: int

    @property
    def total(self) -> int:
        """All bytes of the message."""
        return self.values + self.indices


@partial(jax.tree_util.register_dataclass, data_fields=["values"], meta_fields=[])
@dataclass(frozen=True)
class Dense:
    """Every entry, as it is."""

    values: jax.Array

    def decode(self) -> Vector:
        """The vector itself."""
        return self.values

    def size(self) -> Size:
        """d values, no index."""
        return Size(_bytes(self.values), 0)


@partial(jax.tree_util.register_dataclass, data_fields=["values", "indices"], meta_fields=["dim"])
@dataclass(frozen=True)
class Sparse:
    """k values and the k places they belong to."""

    values: jax.Array
    indices: jax.Array
    dim: int

    def decode(self) -> Vector:
        """The vector that is zero elsewhere."""
        return jnp.zeros(self.dim, self.values.dtype).at[self.indices].set(self.values, unique_indices=True)

    def size(self) -> Size:
        """k values and k indices of the smallest unsigned integer type that counts to d."""
        return Size(_bytes(self.values), _bytes(self.indices))


@partial(jax.tree_util.register_dataclass, data_fields=["payload", "exponent"], meta_fields=["dtype"])
@dataclass(frozen=True)
class Narrow:
    """Values of fewer bits and the power of two that keeps them in range: entry = value · 2^exponent."""

    payload: Dense | Sparse
    exponent: jax.Array
    dtype: np.dtype[Any]  # of the vector

    def decode(self) -> Vector:
        """The vector in its own precision."""
        values = jnp.ldexp(self.payload.values.astype(self.dtype), self.exponent)
        return replace(self.payload, values=values).decode()

    def size(self) -> Size:
        """The narrow values, their indices, and two bytes of exponent."""
        values, indices = self.payload.size()
        return Size(values + _bytes(self.exponent), indices)


@partial(jax.tree_util.register_dataclass, data_fields=["scale", "codes"], meta_fields=["dim", "bits", "levels"])
@dataclass(frozen=True)
class Packed:
    """One scale and a code of a few bits for every entry: entry = scale · (code - levels) / levels."""

    scale: jax.Array
    codes: jax.Array
    dim: int
    bits: int
    levels: int

    def decode(self) -> Vector:
        """Unpack the codes and scale them."""
        codes = unpack_bits(self.codes, self.dim, self.bits)
        if self.bits == 1:  # a sign: no code for zero
            return self.scale * (2 * codes - 1).astype(self.scale.dtype)
        return self.scale * ((codes - self.levels).astype(self.scale.dtype) / self.levels)

    def size(self) -> Size:
        """The scale and ⌈d · bits / 8⌉ bytes of codes."""
        return Size(_bytes(self.scale) + _bytes(self.codes), 0)


@partial(jax.tree_util.register_dataclass, data_fields=["codes"], meta_fields=["dim", "dtype"])
@dataclass(frozen=True)
class Powers:
    """The sign and the exponent of every entry, packed: entry = ±2^exponent, or zero."""

    codes: jax.Array
    dim: int
    dtype: str  # of the entries; its exponent has 11 bits in double precision and 8 in single

    def decode(self) -> Vector:
        """The sign and the exponent back in their places of the number, its fraction zero."""
        kind = np.finfo(self.dtype)
        unsigned = np.dtype(f"uint{kind.bits}")
        codes = unpack_bits(self.codes, self.dim, 1 + kind.nexp).astype(unsigned)
        vector: Vector = jax.lax.bitcast_convert_type(codes << unsigned.type(kind.nmant), np.dtype(self.dtype))
        return vector

    def size(self) -> Size:
        """⌈12d/8⌉ bytes in double precision, ⌈9d/8⌉ in single."""
        return Size(_bytes(self.codes), 0)


Payload = Dense | Sparse | Narrow | Packed | Powers


def is_payload(node: Any) -> bool:
    """Whether a node of a message is an encoded vector."""
    return isinstance(node, Payload)


def decode(message: Message) -> Message:
    """The message with every payload in it decoded."""
    return jax.tree.map(lambda n: n.decode() if is_payload(n) else n, message, is_leaf=is_payload)


def size(message: Message) -> Size:
    """Exact bytes of a message, from shapes alone: works on arrays and on abstract shapes."""
    nodes = jax.tree.leaves(message, is_leaf=is_payload)
    sizes = [n.size() if is_payload(n) else Size(_bytes(n), 0) for n in nodes]
    return Size(sum(s.values for s in sizes), sum(s.indices for s in sizes))


def pack_bits(codes: jax.Array, bits: int) -> jax.Array:
    """Codes of `bits` bits one after another, in ⌈d · bits / 8⌉ bytes."""
    shifts = np.arange(bits - 1, -1, -1, dtype=np.int32)
    flags = (codes[:, None] >> shifts[None]) & 1
    return jnp.packbits(flags.astype(jnp.uint8).ravel())


def unpack_bits(packed: jax.Array, dim: int, bits: int) -> jax.Array:
    """The `dim` codes that `pack_bits` packed."""
    flags = jnp.unpackbits(packed, count=dim * bits).reshape(dim, bits)
    places = (1 << np.arange(bits - 1, -1, -1)).astype(np.int32)
    return jnp.sum(flags.astype(jnp.int32) * places[None], axis=1, dtype=jnp.int32)


def _bytes(array: Any) -> int:
    return int(np.prod(array.shape, dtype=np.int64)) * int(np.dtype(array.dtype).itemsize)
