"""Stateless encoders of vectors, with exact bytes.

A compressor turns a vector into a payload and a payload decodes to a vector. For every compressor C and
vector v, E‖C(v) - v‖² ≤ (1 - 1/δ) ‖v‖² (a contraction, δ = `delta(d)`), or E C(v) = v with
E‖C(v) - v‖² ≤ ω ‖v‖² (unbiased, ω = `omega(d)`). The paper's δ for TOP-k is d/k.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import sqrt

import jax
import jax.numpy as jnp
import numpy as np

from fedlin.bit_codes import code_bits, pack_bits, round_to_powers
from fedlin.checks import one_of, positive, positive_integer, true_or_false
from fedlin.core import Key, Mechanism, Vector
from fedlin.errors import ArgumentError
from fedlin.payloads import Dense, Grid, Narrow, Packed, Payload, Powers, Sparse

_TOP = 15  # a cast's largest entry lands in [2¹⁴, 2¹⁵), below the range of float16 even when rounded up
_COUNTED = 96  # up to this many entries, counting for each who is larger beats a search for the k-th largest on a CPU


@dataclass(frozen=True)
class Compressor:
    """An encoder with what is known about it.

    Attributes:
        name: How it is written; a federation and checkpoints take two of equal names for the same.
        encode: (key, vector) to a payload, as traced code.
        delta: δ of the dimension, where C is a contraction.
        omega: ω of the dimension, where C is unbiased.
        check: Refuses a dimension it cannot serve.
        lossless: Whether C(v) = v.
        mechanism: What makes the vector private, where something does.
        uncompressed: Of a mechanism, the same without the compression that follows it.
        selects: Whether some of the entries are sent as they are, so that their values can be cast.
        shared: Whether it is to draw with a key that all clients have, and not with the client's own.
    """

    name: str
    encode: Callable[[Key, Vector], Payload]
    delta: Callable[[int], float] | None = None  # δ
    omega: Callable[[int], float] | None = None  # ω
    check: Callable[[int], None] = lambda dim: None
    lossless: bool = False
    mechanism: Mechanism | None = None
    uncompressed: "Compressor | None" = None
    selects: bool = False
    shared: bool = False

    def __repr__(self) -> str:
        return self.name

    @property
    def dense(self) -> "Compressor":
        """What leaves nothing out of a message: the identity, or the mechanism alone where it is private."""
        return self.uncompressed or (identity() if self.mechanism is None else self)

    def __call__(self, key: Key, vector: Vector) -> Vector:
        """Encode and decode at once: C(v)."""
        return self.encode(key, vector).decode()


@cache
def identity() -> Compressor:
    """No compression: δ = 1.

    Returns:
        The compressor that sends a vector as it is.

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

    Args:
        k: How many entries are sent, at most d.

    Returns:
        The compressor, biased.

    >>> import numpy as np
    >>> top_k(2)(None, np.array([3.0, -4.0, 1.0, 4.0])).tolist()
    [0.0, -4.0, 0.0, 4.0]
    """
    return _top_k(positive_integer("k", k))  # checked before the cache, to which 5.0 is 5 and True is 1


@cache
def _top_k(k: int) -> Compressor:
    def encode(key: Key, vector: Vector) -> Sparse:
        vector = jnp.asarray(vector)
        return _sparse(vector, _largest(vector, k))

    return Compressor(f"top_k({k})", encode, delta=lambda d: d / k, check=at_most("k", k), selects=True)


def rand_k(k: int, unbiased: bool = False, *, shared: bool = False) -> Compressor:
    """k entries drawn uniformly without replacement: δ = d/k, or ω = d/k - 1 where they are scaled by d/k.

    Args:
        k: How many entries are sent, at most d.
        unbiased: Whether they are scaled by d/k.
        shared: Whether all clients draw the same entries in a round, as secure sums need it: the places then tell
            nothing of anyone's data. The mean of many uploads is no better an estimate for it than one of them.

    Returns:
        The compressor.

    >>> rand_k(5).delta(20)
    4.0
    """
    return _rand_k(positive_integer("k", k), bool(unbiased), true_or_false("shared", shared))


@cache
def _rand_k(k: int, unbiased: bool, shared: bool) -> Compressor:
    def encode(key: Key, vector: Vector) -> Sparse:
        dim = vector.shape[0]
        sparse = replace(_sparse(vector, jax.random.permutation(key, dim)[:k]), shared=shared)
        return replace(sparse, values=sparse.values * (dim / k)) if unbiased else sparse

    check, suffix = at_most("k", k), ", shared=True" * shared
    if unbiased:
        name = f"rand_k({k}, unbiased=True{suffix})"
        return Compressor(name, encode, omega=lambda d: d / k - 1, check=check, shared=shared)
    return Compressor(f"rand_k({k}{suffix})", encode, delta=lambda d: d / k, check=check, selects=True, shared=shared)


def cast(dtype: str, inner: Compressor = identity()) -> Compressor:  # noqa: B008 - cached, and immutable
    """The entries `inner` keeps, rounded to "float32" or "float16": δ = δ_inner / (1 - ε²).

    Values are scaled by a power of two (exact, sent in two bytes), so that none overflows. An entry then errs by at
    most u of itself, or is below the range and errs by at most s of the largest: ε² = u² + d s², for float16 u = 2⁻¹¹
    and s = 2⁻²⁸. The vector decodes in its own precision, and what rounding took is in the link's memory.

    Args:
        dtype: "float32" or "float16".
        inner: A compressor that sends entries as they are: identity(), top_k(k) or rand_k(k).

    Returns:
        The compressor, biased.

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
        encoded = inner.encode(key, jnp.asarray(vector))
        assert isinstance(encoded, Dense | Sparse)
        exponent = jnp.frexp(jnp.max(jnp.abs(encoded.values)))[1] - _TOP
        # Rounded once, and in any program: XLA rounds twice on the way to float16, and may drop a cast there and back.
        unit = jax.lax.reduce_precision(jnp.ldexp(encoded.values, -exponent), kind.nexp, kind.nmant)
        payload = replace(encoded, values=unit.astype(dtype))
        return Narrow(payload, exponent.astype(jnp.int16), np.dtype(encoded.values.dtype))

    def delta(dim: int) -> float:
        assert inner.delta is not None
        return inner.delta(dim) / (1 - relative**2 - dim * absolute**2)

    name = f'cast("{dtype}")' if inner is identity() else f'cast("{dtype}", {inner})'
    return Compressor(name, encode, delta=delta, check=inner.check, shared=inner.shared)


def quantize(levels: int, *, bound: float | None = None) -> Compressor:
    """Random dithering (QSGD): |v_j|/‖v‖ rounded at random to a multiple of 1/s, s = `levels`, unbiased.

    ω = min(d/s², √d/s). Alistarh et al., QSGD, NeurIPS 2017, Lemma 3.1. With a `bound` B in the place of ‖v‖ the steps
    are B/s for every vector and every client, so that secure sums can add up the codes; the error of an entry is below
    B/s whatever ‖v‖ is, and there is no ω.

    Args:
        levels: s, how many magnitudes above zero there are.
        bound: B, the largest magnitude of an entry; a larger one is sent as B, which alone is biased.

    Returns:
        The compressor, unbiased.

    >>> quantize(4).omega(16)
    1.0
    >>> import jax, numpy as np
    >>> quantize(4, bound=2.0)(jax.random.key(0), np.array([0.5, -2.0, 9.0])).tolist()
    [0.5, -2.0, 2.0]
    """
    levels = positive_integer("levels", levels)
    return _quantize(levels) if bound is None else _quantize_within(levels, positive("bound", bound))


@cache
def _quantize_within(levels: int, bound: float) -> Compressor:
    def encode(key: Key, vector: Vector) -> Grid:
        vector = jnp.asarray(vector)
        scaled = jnp.clip(vector / bound, -1, 1) * levels
        codes = jnp.floor(scaled + jax.random.uniform(key, vector.shape, vector.dtype)).astype(jnp.int32)
        # Rounding in the sum may pass the last level by one.
        codes = jnp.minimum(codes + levels, 2 * levels)
        return Grid(pack_bits(codes, code_bits(levels)), vector.shape[0], levels, bound, vector.dtype.name)

    return Compressor(f"quantize({levels}, bound={bound:g})", encode)


@cache
def _quantize(levels: int) -> Compressor:
    bits = code_bits(levels)

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
def _nearest(levels: int) -> Compressor:
    def encode(key: Key, vector: Vector) -> Packed:
        vector = jnp.asarray(vector)
        largest = jnp.max(jnp.abs(vector))
        codes = jnp.round(vector / jnp.where(largest > 0, largest, 1) * levels).astype(jnp.int32)
        return _pack(largest, levels + codes, code_bits(levels), levels)

    def delta(dim: int) -> float:
        return 1 / (1 - min(1 - 1 / dim, (dim - 1) / (4 * levels**2)))

    return Compressor(f"nearest({levels})", encode, delta=delta)


def nearest(levels: int) -> Compressor:
    """Every entry rounded to the nearest multiple of M/s, M the largest magnitude and s = `levels`; deterministic.

    The largest entry is exact and any other errs by M/(2s) at most, and never by more than itself:
    ‖C(v) - v‖² ≤ min{1 - 1/d, (d - 1)/(4s²)} ‖v‖². With s = 2^{b-1} - 1 an entry takes b bits. Where `quantize` has
    steps of ‖v‖/s, these are smaller by about √d, at the price of a bias, which links remember.

    Args:
        levels: s, how many magnitudes above zero there are.

    Returns:
        The compressor, biased.

    >>> import numpy as np
    >>> nearest(2)(None, np.array([4.0, -1.5, 0.5])).tolist()
    [4.0, -2.0, 0.0]
    """
    return _nearest(positive_integer("levels", levels))


@cache
def sign() -> Compressor:
    """Scaled sign, (‖v‖₁/d) sign(v): one bit an entry and one scale; a contraction with δ ≤ d.

    Karimireddy et al., Error Feedback Fixes SignSGD, ICML 2019. Zero counts as positive.

    Returns:
        The compressor, biased.

    >>> import numpy as np
    >>> sign()(None, np.array([1.0, -3.0])).tolist()
    [2.0, -2.0]
    """

    def encode(key: Key, vector: Vector) -> Packed:
        vector = jnp.asarray(vector)
        scale = jnp.mean(jnp.abs(vector))
        return _pack(scale, (vector >= 0).astype(jnp.int32), 1, 1)

    return Compressor("sign()", encode, delta=float)


@cache
def natural() -> Compressor:
    """Natural compression: |v_j| rounded at random to a power of two next to it, unbiased with ω = 1/8.

    2^e ≤ |v_j| ≤ 2^{e+1} goes up with probability |v_j|/2^e - 1, and sign and exponent are all that is sent. Below the
    least normal number it goes to that or to zero; above the largest power of two it stays there, which alone is
    biased. Horváth et al., Natural Compression for Distributed Deep Learning, 2019, Definition 1 and Theorem 1.

    Returns:
        The compressor, unbiased.

    >>> import jax, numpy as np
    >>> natural()(jax.random.key(0), np.array([4.0, -0.25, 0.0])).tolist()
    [4.0, -0.25, 0.0]
    """

    def encode(key: Key, vector: Vector) -> Powers:
        vector = jnp.asarray(vector)
        codes = round_to_powers(vector, jax.random.uniform(key, vector.shape, vector.dtype))
        return Powers(pack_bits(codes, 1 + np.finfo(vector.dtype).nexp), vector.shape[0], vector.dtype.name)

    return Compressor("natural()", encode, omega=lambda d: 1 / 8)


def index_dtype(dim: int) -> np.dtype:
    """The smallest unsigned integer type that holds the indices 0..dim-1.

    Args:
        dim: d.

    Returns:
        The type.

    >>> index_dtype(256), index_dtype(257)
    (dtype('uint8'), dtype('uint16'))
    """
    return np.min_scalar_type(dim - 1)


def _largest(vector: Vector, k: int) -> jax.Array:
    """Where the k entries of largest magnitude are, the lower index first among equals."""
    if vector.shape[0] <= _COUNTED:
        return _by_magnitude(vector)[:k]
    unsigned = np.dtype(f"uint{8 * vector.dtype.itemsize}")
    sizes = jax.lax.bitcast_convert_type(jnp.abs(vector), unsigned)  # ordered as the magnitudes are

    def settle(place: jax.Array, least: jax.Array) -> jax.Array:
        higher = least | (unsigned.type(1) << (top - place).astype(unsigned))
        return jnp.where(jnp.sum(sizes >= higher, dtype=jnp.int32) >= k, higher, least)

    # The k-th largest, bit by bit from the highest below the sign: to sort them all takes six times as long.
    top = 8 * unsigned.itemsize - 2
    least = jax.lax.fori_loop(0, top + 1, settle, unsigned.type(0))
    above, equal = sizes > least, sizes == least
    room = k - jnp.sum(above, dtype=jnp.int32)
    mask = above | (equal & (jnp.cumsum(equal, dtype=jnp.int32) <= room))
    return jnp.flatnonzero(mask, size=k)


def _by_magnitude(vector: Vector) -> jax.Array:
    """Indices from the largest magnitude to the smallest, by counting for each who is larger."""
    size = jnp.abs(vector)
    place = jnp.arange(vector.shape[0])
    own, other = size[:, None], size[None, :]
    ahead = (own > other) | ((own == other) & (place[:, None] < place[None, :]))
    rank = jnp.sum(ahead, axis=0, dtype=jnp.int32)
    return jnp.zeros_like(rank).at[rank].set(place.astype(jnp.int32))


def _sparse(vector: Vector, order: jax.Array) -> Sparse:
    return Sparse(vector[order], order.astype(index_dtype(vector.shape[0])), vector.shape[0])


def _pack(scale: jax.Array, codes: jax.Array, bits: int, levels: int) -> Packed:
    return Packed(scale, pack_bits(codes, bits), codes.shape[0], bits, levels)


def at_most(name: str, k: int) -> Callable[[int], None]:
    """A check that refuses a dimension below k.

    Args:
        name: The argument's name, for the error.
        k: The number that a dimension may not be below.

    Returns:
        The check, for `Compressor.check`.
    """

    def check(dim: int) -> None:
        if k > dim:
            raise ArgumentError(f"{name} = {k} is more than the model's {dim} entries: give a {name} from 1 to {dim}.")

    return check
