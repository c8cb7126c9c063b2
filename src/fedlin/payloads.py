"""Encoded vectors, as they go on the wire: their arrays decode to a vector, and their bytes are known from shapes.

A payload is any class with `decode`, `size` and `validate` that JAX knows as a pytree of arrays
(`jax.tree_util.register_dataclass`). Its arrays travel as they are, and whatever else it holds both sides know.
"""

from dataclasses import dataclass, replace
from functools import partial
from math import ceil, comb, log2
from typing import Any, NamedTuple, Protocol, TypeGuard, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from fedlin.bit_codes import check_codes, code_bits, unpack_bits, unpacked, used_bits
from fedlin.core import Array, Message, Vector
from fedlin.errors import NotFiniteError, WireError


class Size(NamedTuple):
    """Bytes of a message, values and indices apart.

    Attributes:
        values: Bytes of values.
        indices: Bytes of indices.
    """

    values: int
    indices: int

    @property
    def total(self) -> int:
        """All bytes of the message."""
        return self.values + self.indices


class Symbols(NamedTuple):
    """A message for an entropy coder: whole numbers below `alphabet`, and bits in which there is no pattern to find.

    Attributes:
        codes: The whole numbers.
        alphabet: One more than the largest possible code.
        other: How many bits are sent as they are.
    """

    codes: Array
    alphabet: int
    other: float


@runtime_checkable
class Payload(Protocol):
    """An encoded vector; a class that inherits from this one needs `decode` alone.

    It may also have `paper_bits()` and `symbols()`, by which `fedlin.count_bits` counts bits in other ways than on the
    wire; see `paper_bits` and `symbols` in this module for what is taken where it has none.
    """

    def decode(self) -> Vector:
        """The vector, as traced code."""

    def size(self) -> Size:
        """The bytes that travel, from shapes alone; all count as values unless the class says otherwise."""
        return Size(sum(map(array_bytes, jax.tree.leaves(self))), 0)

    def validate(self) -> None:
        """Refuse, by a `WireError`, arrays that no encoder makes: called on NumPy arrays that came over the network.

        Their shapes and types are right and their numbers finite already.
        """


@partial(jax.tree_util.register_dataclass, data_fields=["values"], meta_fields=[])
@dataclass(frozen=True)
class Dense:
    """Every entry, as it is.

    Attributes:
        values: The entries, (d,).
    """

    values: jax.Array

    def decode(self) -> Vector:
        """The vector itself."""
        return self.values

    def size(self) -> Size:
        """d values, no index."""
        return Size(array_bytes(self.values), 0)

    def validate(self) -> None:
        """Any finite numbers will do."""


@partial(jax.tree_util.register_dataclass, data_fields=["values", "indices"], meta_fields=["dim", "shared"])
@dataclass(frozen=True)
class Sparse:
    """k values and the k places they belong to.

    Attributes:
        values: The values, (k,).
        indices: Their places, (k,).
        dim: d.
        shared: Whether all clients of a round have the same places, which then reveal nothing of their data.
    """

    values: jax.Array
    indices: jax.Array
    dim: int
    shared: bool = False

    def decode(self) -> Vector:
        """The vector that is zero elsewhere."""
        return jnp.zeros(self.dim, self.values.dtype).at[self.indices].set(self.values, unique_indices=True)

    def size(self) -> Size:
        """k values and k indices of the smallest unsigned integer type that counts to d."""
        return Size(array_bytes(self.values), array_bytes(self.indices))

    def paper_bits(self) -> float:
        """32 bits a value, ⌈log₂ d⌉ an index."""
        return float_bits(self.values) + self.values.size * ceil(log2(self.dim))

    def symbols(self) -> Symbols:
        """Indices are a set, which enumerative coding writes in log₂ of the number of sets; values have no pattern."""
        count = self.values.size
        return Symbols(np.zeros(0, int), 1, 8 * array_bytes(self.values) + ceil(log2(comb(self.dim, count))))

    def validate(self) -> None:
        """Refuse an index that is no entry's, or that stands twice."""
        indices: Any = self.indices
        if indices.max() >= self.dim or np.unique(indices).size != indices.size:
            raise WireError(f"a sparse payload has an index beyond its {self.dim} entries, or the same one twice.")


@partial(jax.tree_util.register_dataclass, data_fields=["payload", "exponent"], meta_fields=["dtype"])
@dataclass(frozen=True)
class Narrow:
    """Values of fewer bits and the power of two that keeps them in range: entry = value · 2^exponent.

    Attributes:
        payload: The values of fewer bits.
        exponent: The exponent of the power of two.
        dtype: The precision of the vector.
    """

    payload: Dense | Sparse
    exponent: jax.Array
    dtype: np.dtype

    def decode(self) -> Vector:
        """The vector in its own precision."""
        values = jnp.ldexp(self.payload.values.astype(self.dtype), self.exponent)
        return replace(self.payload, values=values).decode()

    def size(self) -> Size:
        """The narrow values, their indices, and two bytes of exponent."""
        values, indices = self.payload.size()
        return Size(values + array_bytes(self.exponent), indices)

    def paper_bits(self) -> float:
        """The narrow values at their own size, and the exponent."""
        return paper_bits(self.payload) + 8 * array_bytes(self.exponent)

    def symbols(self) -> Symbols:
        """Those of the narrow payload."""
        inner = symbols(self.payload)
        return inner._replace(other=inner.other + 8 * array_bytes(self.exponent))

    def validate(self) -> None:
        """Refuse an exponent that makes an entry infinite, and what the narrow payload refuses."""
        self.payload.validate()
        # In NumPy, which has double precision whatever JAX is set to.
        with np.errstate(over="ignore"):
            wide = np.ldexp(np.asarray(self.payload.values).astype(self.dtype), np.asarray(self.exponent))
        if not np.all(np.isfinite(wide)):
            raise NotFiniteError("the message holds an exponent beyond all finite numbers.")


@partial(jax.tree_util.register_dataclass, data_fields=["scale", "codes"], meta_fields=["dim", "bits", "levels"])
@dataclass(frozen=True)
class Packed:
    """One scale and a code of a few bits for every entry: entry = scale · (code - levels) / levels.

    Attributes:
        scale: The scale.
        codes: The packed codes, uint8.
        dim: d.
        bits: Bits of a code.
        levels: Half the number of steps.
    """

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
        return Size(array_bytes(self.scale) + array_bytes(self.codes), 0)

    def paper_bits(self) -> float:
        """One float and a whole number of bits a code."""
        return float_bits(self.scale) + self.dim * self.bits

    def symbols(self) -> Symbols:
        """The codes, and the scale as it is."""
        return Symbols(unpacked(self.codes, self.dim, self.bits), 2**self.bits, 8 * array_bytes(self.scale))

    def validate(self) -> None:
        """Refuse a code that stands for no level."""
        check_codes(self.codes, self.dim, self.bits, self.levels)


@partial(jax.tree_util.register_dataclass, data_fields=["codes"], meta_fields=["dim", "levels", "bound", "dtype"])
@dataclass(frozen=True)
class Grid:
    """A code of a few bits for every entry, in steps that all share: entry = bound · (code - levels) / levels.

    So the sum of many is in the sum of their codes.

    Attributes:
        codes: The packed codes, uint8.
        dim: d.
        levels: Half the number of steps.
        bound: The largest magnitude of an entry.
        dtype: The precision of the entries.
    """

    codes: jax.Array
    dim: int
    levels: int
    bound: float
    dtype: str

    @property
    def bits(self) -> int:
        """Of one code."""
        return code_bits(self.levels)

    def decode(self) -> Vector:
        """Unpack the codes and scale them."""
        codes = unpack_bits(self.codes, self.dim, self.bits)
        return (codes - self.levels).astype(self.dtype) * (self.bound / self.levels)

    def size(self) -> Size:
        """⌈d · bits / 8⌉ bytes of codes."""
        return Size(array_bytes(self.codes), 0)

    def paper_bits(self) -> float:
        """A whole number of bits a code."""
        return self.dim * self.bits

    def symbols(self) -> Symbols:
        """The codes."""
        return Symbols(unpacked(self.codes, self.dim, self.bits), 2**self.bits, 0)

    def validate(self) -> None:
        """Refuse a code that stands for no level."""
        check_codes(self.codes, self.dim, self.bits, self.levels)


@partial(jax.tree_util.register_dataclass, data_fields=["codes"], meta_fields=["dim", "dtype"])
@dataclass(frozen=True)
class Powers:
    """The sign and the exponent of every entry, packed: entry = ±2^exponent, or zero.

    Attributes:
        codes: The packed signs and exponents, uint8.
        dim: d.
        dtype: The precision of the entries; an exponent has 11 bits in double precision and 8 in single.
    """

    codes: jax.Array
    dim: int
    dtype: str

    def decode(self) -> Vector:
        """The sign and the exponent back in their places of the number, its fraction zero."""
        kind = np.finfo(self.dtype)
        unsigned = np.dtype(f"uint{kind.bits}")
        codes = unpack_bits(self.codes, self.dim, 1 + kind.nexp).astype(unsigned)
        vector: Vector = jax.lax.bitcast_convert_type(codes << unsigned.type(kind.nmant), np.dtype(self.dtype))
        return vector

    def size(self) -> Size:
        """⌈12d/8⌉ bytes in double precision, ⌈9d/8⌉ in single."""
        return Size(array_bytes(self.codes), 0)

    def paper_bits(self) -> float:
        """9 bits an entry, a sign and the exponent of a 32-bit float."""
        return 9 * self.dim

    def symbols(self) -> Symbols:
        """Sign and exponent of every entry as one code."""
        bits = 1 + np.finfo(self.dtype).nexp
        return Symbols(unpacked(self.codes, self.dim, bits), 2**bits, 0)

    def validate(self) -> None:
        """Refuse the exponent by which IEEE 754 writes infinity."""
        bits = 1 + np.finfo(self.dtype).nexp
        exponents = used_bits(self.codes, self.dim * bits).reshape(self.dim, bits)[:, 1:]
        if np.any(np.all(exponents == 1, axis=1)):
            raise NotFiniteError("the message holds an exponent beyond all finite numbers.")


_known_types: dict[type, bool] = {}  # whether it is a payload's: looking for a protocol's methods takes long


def is_payload(node: object) -> TypeGuard[Payload]:
    """Whether a node of a message is an encoded vector."""
    known = _known_types.get(type(node))
    if known is None:
        known = _known_types[type(node)] = isinstance(node, Payload)
    return known


def decode(message: Message) -> Message:
    """The message with every payload in it decoded.

    Args:
        message: A pytree of arrays and payloads.

    Returns:
        The same pytree with a vector in place of every payload.
    """
    return jax.tree.map(lambda n: n.decode() if is_payload(n) else n, message, is_leaf=is_payload)


def size(message: Message) -> Size:
    """Exact bytes of a message, from shapes alone: works on arrays and on abstract shapes.

    Args:
        message: A pytree of arrays and payloads.

    Returns:
        The bytes.
    """
    nodes = jax.tree.leaves(message, is_leaf=is_payload)
    sizes = [n.size() if is_payload(n) else Size(array_bytes(n), 0) for n in nodes]
    return Size(sum(s.values for s in sizes), sum(s.indices for s in sizes))


def float_bits(array: Any) -> float:
    """32 bits an entry, or its own size where that is less."""
    return float(array.size * min(32, 8 * np.dtype(array.dtype).itemsize))


def paper_bits(message: Message) -> float:
    """Bits as most papers count them: numbers as 32-bit floats or their own size if less, and what payloads say.

    >>> paper_bits(np.zeros(10))
    320.0
    """
    nodes = jax.tree.leaves(message, is_leaf=is_payload)
    return float(sum(n.paper_bits() if hasattr(n, "paper_bits") else _own_bits(n) for n in nodes))


def _own_bits(node: object) -> float:
    return sum(map(float_bits, jax.tree.leaves(node)))


def symbols(node: object) -> Symbols:
    """What an entropy coder gets of a payload or an array, concrete; numbers as they are where nothing else is said."""
    if hasattr(node, "symbols"):
        known: Symbols = node.symbols()
        return known
    return Symbols(np.zeros(0, int), 1, 8 * sum(map(array_bytes, jax.tree.leaves(node))))


def validate(message: Message) -> None:
    """Refuse a message that came over the network if one of its payloads refuses its arrays."""
    for node in jax.tree.leaves(message, is_leaf=is_payload):
        if not is_payload(node):
            continue
        try:
            node.validate()
        except WireError:
            raise
        except ValueError as cause:
            raise WireError(f"a {type(node).__name__} payload is not as its encoder makes it: {cause}") from cause


def array_bytes(array: Any) -> int:
    """The bytes of an array, concrete or abstract."""
    return int(np.prod(array.shape, dtype=np.int64)) * int(np.dtype(array.dtype).itemsize)
