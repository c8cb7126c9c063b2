"""Masks: streams of uniform whole numbers that two ends derive from one secret, and whole numbers that stand for reals.

A key follows from a secret and a context by HKDF (RFC 5869, SHA-256), a stream from the key by AES-256 in counter mode,
as GCM has it (NIST SP 800-38D; its tag is left away): processors make many blocks of it at a time, and no other cipher
is as fast. A key makes one stream, so that the nonce is zero.
"""

from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.ciphers import AEADEncryptionContext, Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import GCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray
from scipy.special import ndtri

Words = NDArray[np.unsignedinteger]
PIECE = 1 << 18  # bytes of a stream that are made at a time
_ZEROS = memoryview(bytes(PIECE))
LARGEST = 1 << 62  # of a sum of fixed-point numbers, so that no sum of 64 bits can overflow


def derive_key(secret: bytes, purpose: str, context: bytes) -> bytes:
    """32 bytes that follow from a secret, for one purpose in one context."""
    return HKDF(SHA256(), 32, salt=None, info=purpose.encode() + b"\0" + context).derive(secret)


def add_mask(total: Words, key: bytes, *, subtract: bool = False) -> None:
    """Add the stream of a key to whole numbers in place, modulo 2^b, or take it off again.

    >>> words = np.arange(3, dtype=np.uint64)
    >>> add_mask(words, bytes(32))
    >>> add_mask(words, bytes(32), subtract=True)
    >>> words.tolist()
    [0, 1, 2]
    """
    stream, width = _stream(key), total.dtype.itemsize
    combine = np.subtract if subtract else np.add
    # Piece by piece through one small buffer: memory that is fresh every time costs more than the cipher.
    buffer = bytearray(PIECE)
    words = np.frombuffer(buffer, f"<u{width}")
    for first in range(0, total.size, PIECE // width):
        part = total[first : first + PIECE // width]
        stream.update_into(_ZEROS[: part.nbytes], buffer)
        combine(part, words[: part.size], out=part)


def _stream(key: bytes) -> AEADEncryptionContext:
    """What turns zeros into the stream of a key."""
    return Cipher(AES256(key), GCM(bytes(12))).encryptor()


def normal_stream(key: bytes) -> Callable[[int], NDArray[np.float64]]:
    """Draws so many standard normal numbers at a time from the stream of a key; none is beyond 8.3.

    >>> bool(abs(normal_stream(bytes(32))(10_000).std() - 1) < 0.03)
    True
    """
    stream = _stream(key)

    def draw(count: int) -> NDArray[np.float64]:
        words = np.frombuffer(stream.update(bytes(8 * count)), "<u8")
        return np.asarray(ndtri(((words >> np.uint64(12)) + 0.5) * 2.0**-52))  # 52 bits: neither 0 nor 1 comes

    return draw


def scale_exponent(sites: int, heaviest: float, bound: float) -> int:
    """k such that whole numbers w_i u_ij 2^k, |u_ij| ≤ `bound`, of so many sites add up to at most 2⁶².

    >>> k = scale_exponent(10, 3.0, 100.0)
    >>> 10 * 3.0 * 100.0 * 2.0**k <= LARGEST < 10 * 3.0 * 100.0 * 2.0 ** (k + 1)
    True
    """
    fraction, exponent = np.frexp(sites * heaviest * bound)
    return 62 - int(exponent) + int(fraction == 0.5)


def to_signed(sums: Words) -> NDArray[np.signedinteger]:
    """Whole numbers modulo 2^b as those between -2^(b-1) and 2^(b-1)."""
    return sums.view(f"i{sums.dtype.itemsize}")
