"""Whole numbers of a few bits: packed into bytes one after another, and checked when they come over a network."""

from math import ceil, log2

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedlin.core import Vector
from fedlin.errors import WireError


def pack_bits(codes: jax.Array, bits: int) -> jax.Array:
    """Codes of `bits` bits one after another, in ⌈d · bits / 8⌉ bytes.

    Args:
        codes: Whole numbers from 0 to 2^bits - 1, (d,).
        bits: Bits of a code.

    Returns:
        The bytes, uint8.
    """
    shifts = np.arange(bits - 1, -1, -1, dtype=np.int32)
    flags = (codes[:, None] >> shifts[None]) & 1
    return jnp.packbits(flags.astype(jnp.uint8).ravel())


def unpack_bits(packed: jax.Array, dim: int, bits: int) -> jax.Array:
    """The `dim` codes that `pack_bits` packed.

    Args:
        packed: The bytes, uint8.
        dim: d, how many codes there are.
        bits: Bits of a code.

    Returns:
        The codes, (d,).
    """
    flags = jnp.unpackbits(packed, count=dim * bits).reshape(dim, bits)
    places = (1 << np.arange(bits - 1, -1, -1)).astype(np.int32)
    return jnp.sum(flags.astype(jnp.int32) * places[None], axis=1, dtype=jnp.int32)


def code_bits(levels: int) -> int:
    """The bits of a code for -levels to levels.

    Args:
        levels: The largest code.

    Returns:
        How many bits, at least 2.

    >>> code_bits(1), code_bits(127), code_bits(128)
    (2, 8, 9)
    """
    return max(2, ceil(log2(2 * levels + 1)))


def unpacked(codes: ArrayLike, dim: int, bits: int) -> NDArray[np.int64]:
    """The codes, in NumPy."""
    places = 1 << np.arange(bits - 1, -1, -1)
    return np.asarray(used_bits(codes, dim * bits).reshape(dim, bits) @ places)


def check_codes(codes: ArrayLike, dim: int, bits: int, levels: int) -> None:
    """Refuse packed codes beyond 2 · levels, as they may come over a network."""
    if np.any(unpacked(codes, dim, bits) > 2 * levels):
        raise WireError(f"a packed payload has a code beyond the {2 * levels + 1} that there are.")


def used_bits(codes: ArrayLike, used: int) -> NDArray[np.uint8]:
    """The bits in use, if those that only fill the last byte are zero."""
    flags = np.unpackbits(np.asarray(codes))
    if np.any(flags[used:]):
        raise WireError(f"a packed payload has bits beyond the {used} it needs.")
    return flags[:used]


def round_to_powers(vector: Vector, draws: Vector) -> jax.Array:
    """Sign and exponent of every entry as one whole number, the exponent one higher where the draw in [0, 1) says so.

    The fraction of a number is how far it lies on the way from one power of two to the next, and in a number too
    small for an exponent of its own, how far from zero: so one comparison serves all.

    Args:
        vector: The vector, (d,).
        draws: A number in [0, 1) for each entry.

    Returns:
        The whole numbers, (d,).
    """
    kind = np.finfo(vector.dtype)
    unsigned = np.dtype(f"uint{kind.bits}")
    bits = jax.lax.bitcast_convert_type(vector, unsigned)
    exponent = bits >> unsigned.type(kind.nmant)  # with the sign above it
    fraction = bits & unsigned.type(2**kind.nmant - 1)
    last = 2**kind.nexp - 2  # the next exponent stands for infinity
    full = exponent & unsigned.type(2**kind.nexp - 1) >= unsigned.type(last)
    up = (draws < fraction.astype(vector.dtype) * 2.0**-kind.nmant) & ~full
    codes: jax.Array = exponent.astype(jnp.int32) + up.astype(jnp.int32)
    return codes
