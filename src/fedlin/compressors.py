"""Stateless encoders of vectors, with exact bytes.

A compressor turns a vector into a payload and a payload decodes to a vector. For every compressor C and
vector v, E‖C(v) - v‖² ≤ (1 - 1/δ) ‖v‖² (a contraction, δ = `delta(d)`), or E C(v) = v with
E‖C(v) - v‖² ≤ ω ‖v‖² (unbiased, ω = `omega(d)`). The paper's δ for TOP-k is d/k.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from math import ceil, log2, sqrt
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedlin.checks import one_of, positive_integer
from fedlin.core import Key, Message, Vector
from fedlin.errors import ArgumentError

_TOP = 15  # a cast's largest entry lands in [2¹⁴, 2¹⁵), below the range of float16 even when rounded up
_COUNTED = 256  # up to this many entries, counting who is larger beats XLA's sort on a CPU by 1.5 to 4 times


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
        flags = jnp.unpackbits(self.codes, count=self.dim * self.bits).reshape(self.dim, self.bits)
        places = (1 << np.arange(self.bits - 1, -1, -1)).astype(np.int32)
        codes = jnp.sum(flags.astype(jnp.int32) * places[None], axis=1, dtype=jnp.int32)
        if self.bits == 1:  # a sign: no code for zero
            return self.scale * (2 * codes - 1).astype(self.scale.dtype)
        return self.scale * ((codes - self.levels).astype(self.scale.dtype) / self.levels)

    def size(self) -> Size:
        """The scale and ⌈d · bits / 8⌉ bytes of codes."""
        return Size(_bytes(self.scale) + _bytes(self.codes), 0)


Payload = Dense | Sparse | Narrow | Packed


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


@dataclass(frozen=True)
class Compressor:
    """An encoder with what is known about it; `check` refuses a dimension it cannot serve."""

    name: str
    encode: Callable[[Key, Vector], Payload]
    delta: Callable[[int], float] | None = None  # δ, where C is a contraction
    omega: Callable[[int], float] | None = None  # ω, where C is unbiased
    check: Callable[[int], None] = lambda dim: None
    lossless: bool = False
    selects: bool = False  # sends some of the entries as they are, so that their values can be cast

    def __repr__(self) -> str:
        return self.name

    def __call__(self, key: Key, vector: Vector) -> Vector:
        """Encode and decode at once: C(v)."""
        return self.encode(key, vector).decode()


@cache
def identity() -> Compressor:
    """No compression: δ = 1.

    >>> identity().delta(100)
    1.0
    """
    return Compressor(
        "identity()",
        lambda key, v: Dense(v),
        delta=lambda d: 1.0,
        omega=lambda d: 0.0,
        lossless=True,
        selects=True,
    )


def top_k(k: int) -> Compressor:
    """The k entries of largest magnitude, ties to the lower index; ‖C(v) - v‖² ≤ (1 - k/d) ‖v‖², δ = d/k.

    >>> import numpy as np
    >>> top_k(2)(None, np.array([3.0, -4.0, 1.0, 4.0])).tolist()
    [0.0, -4.0, 0.0, 4.0]
    """
    return _top_k(positive_integer("k", k))  # checked before the cache, to which 5.0 is 5 and True is 1


@cache
def _top_k(k: int) -> Compressor:
    def encode(key: Key, vector: Vector) -> Sparse:
        vector = jnp.asarray(vector)
        return _sparse(vector, _by_magnitude(vector)[:k])

    return Compressor(f"top_k({k})", encode, delta=lambda d: d / k, check=_at_most("k", k), selects=True)


def rand_k(k: int, unbiased: bool = False) -> Compressor:
    """k entries drawn uniformly without replacement; scaled by d/k if `unbiased` (then ω = d/k - 1).

    >>> rand_k(5).delta(20)
    4.0
    """
    return _rand_k(positive_integer("k", k), bool(unbiased))


@cache
def _rand_k(k: int, unbiased: bool) -> Compressor:
    def encode(key: Key, vector: Vector) -> Sparse:
        dim = vector.shape[0]
        kept = _sparse(vector, jax.random.permutation(key, dim)[:k])
        return Sparse(kept.values * (dim / k), kept.indices, dim) if unbiased else kept

    check = _at_most("k", k)
    if unbiased:
        return Compressor(f"rand_k({k}, unbiased=True)", encode, omega=lambda d: d / k - 1, check=check)
    return Compressor(f"rand_k({k})", encode, delta=lambda d: d / k, check=check, selects=True)


def cast(dtype: str, inner: Compressor = identity()) -> Compressor:  # noqa: B008 - cached, and immutable
    """The entries `inner` keeps, rounded to "float32" or "float16": δ = δ_inner / (1 - ε²).

    Values are scaled by a power of two (exact, sent in two bytes), so that none overflows. An entry then errs by at
    most u of itself, or is below the range and errs by at most s of the largest: ε² = u² + d s², for float16 u = 2⁻¹¹
    and s = 2⁻²⁸. The vector decodes in its own precision, and what rounding took is in the link's memory.

    >>> import numpy as np
    >>> cast("float16", top_k(2)).encode(None, np.array([1e6, 2.0, 3e-6], np.float32)).size()
    Size(values=6, indices=2)
    """
    one_of("dtype", dtype, ("float32", "float16"))
    if not isinstance(inner, Compressor) or not inner.selects:
        raise ArgumentError(
            f"inner = {inner!r} does not send entries as they are: give identity(), top_k(k) or rand_k(k)."
        )
    return _cast(dtype, inner)


@cache
def _cast(dtype: str, inner: Compressor) -> Compressor:
    kind = np.finfo(dtype)
    relative, absolute = 2.0 ** -(kind.nmant + 1), 2.0 ** (kind.minexp - _TOP + 1)  # u, s

    def encode(key: Key, vector: Vector) -> Narrow:
        kept = inner.encode(key, jnp.asarray(vector))
        assert isinstance(kept, Dense | Sparse)
        exponent = jnp.frexp(jnp.max(jnp.abs(kept.values)))[1] - _TOP
        # Rounded once, and in any program: XLA rounds twice on the way to float16, and may drop a cast there and back.
        unit = jax.lax.reduce_precision(jnp.ldexp(kept.values, -exponent), kind.nexp, kind.nmant)
        payload = replace(kept, values=unit.astype(dtype))
        return Narrow(payload, exponent.astype(jnp.int16), np.dtype(kept.values.dtype))

    def delta(dim: int) -> float:
        assert inner.delta is not None
        return inner.delta(dim) / (1 - relative**2 - dim * absolute**2)

    name = f'cast("{dtype}")' if inner is identity() else f'cast("{dtype}", {inner})'
    return Compressor(name, encode, delta=delta, check=inner.check)


def quantize(levels: int) -> Compressor:
    """Random dithering (QSGD): |v_j|/‖v‖ rounded at random to a multiple of 1/s, s = `levels`, unbiased.

    ω = min(d/s², √d/s). Alistarh et al., QSGD, NeurIPS 2017, Lemma 3.1.

    >>> quantize(4).omega(16)
    1.0
    """
    return _quantize(positive_integer("levels", levels))


@cache
def _quantize(levels: int) -> Compressor:
    bits = max(2, ceil(log2(2 * levels + 1)))

    def encode(key: Key, vector: Vector) -> Packed:
        largest = jnp.max(jnp.abs(vector))
        unit = vector / jnp.where(largest > 0, largest, 1)  # squares of large entries would overflow
        norm = jnp.linalg.norm(unit)
        scaled = jnp.abs(unit) / jnp.where(norm > 0, norm, 1) * levels
        low = jnp.floor(scaled)
        up = jax.random.uniform(key, vector.shape, vector.dtype) < scaled - low
        magnitude = low.astype(jnp.int32) + up.astype(jnp.int32)
        return _pack(largest * norm, levels + jnp.where(vector < 0, -magnitude, magnitude), bits, levels)

    return Compressor(f"quantize({levels})", encode, omega=lambda d: float(min(d / levels**2, sqrt(d) / levels)))


@cache
def sign() -> Compressor:
    """Scaled sign, (‖v‖₁/d) sign(v): one bit an entry and one scale; a contraction with δ ≤ d.

    Karimireddy et al., Error Feedback Fixes SignSGD, ICML 2019. Zero counts as positive.

    >>> import numpy as np
    >>> sign()(None, np.array([1.0, -3.0])).tolist()
    [2.0, -2.0]
    """

    def encode(key: Key, vector: Vector) -> Packed:
        vector = jnp.asarray(vector)
        scale = jnp.mean(jnp.abs(vector))
        return _pack(scale, (vector >= 0).astype(jnp.int32), 1, 1)

    return Compressor("sign()", encode, delta=float)


def index_dtype(dim: int) -> np.dtype[Any]:
    """The smallest unsigned integer type that holds the indices 0..dim-1.

    >>> index_dtype(256), index_dtype(257)
    (dtype('uint8'), dtype('uint16'))
    """
    return np.min_scalar_type(dim - 1)


def _by_magnitude(vector: Vector) -> jax.Array:
    """Indices from the largest magnitude to the smallest, the lower index first among equals."""
    size = jnp.abs(vector)
    if vector.shape[0] > _COUNTED:
        return jnp.argsort(-size, stable=True)
    place = jnp.arange(vector.shape[0])
    one, other = size[:, None], size[None, :]
    ahead = (one > other) | ((one == other) & (place[:, None] < place[None, :]))
    rank = jnp.sum(ahead, axis=0, dtype=jnp.int32)
    return jnp.zeros_like(rank).at[rank].set(place.astype(jnp.int32))


def _sparse(vector: Vector, order: jax.Array) -> Sparse:
    return Sparse(vector[order], order.astype(index_dtype(vector.shape[0])), vector.shape[0])


def _pack(scale: jax.Array, codes: jax.Array, bits: int, levels: int) -> Packed:
    shifts = np.arange(bits - 1, -1, -1, dtype=np.int32)
    flags = (codes[:, None] >> shifts[None]) & 1
    return Packed(scale, jnp.packbits(flags.astype(jnp.uint8).ravel()), codes.shape[0], bits, levels)


def _bytes(array: Any) -> int:
    return int(np.prod(array.shape, dtype=np.int64)) * int(np.dtype(array.dtype).itemsize)


def _at_most(name: str, k: int) -> Callable[[int], None]:
    def check(dim: int) -> None:
        if k > dim:
            raise ArgumentError(f"{name} = {k} is more than the model's {dim} entries: give a {name} from 1 to {dim}.")

    return check
