"""Randomness no one else can repeat: what makes noise for privacy the own of who adds it."""

import hashlib
import os
from pathlib import Path

import numpy as np

from fedlin.core import Method
from fedlin.engines.checkpoint import write_whole
from fedlin.errors import ArgumentError, CheckpointError

LENGTH = 16  # bytes
Words = tuple[np.uint32, ...]


def secret_words(secret: bytes | None, algorithm: Method, folder: Path | None, *, central: bool) -> Words:
    """The secret as given; else one of its own where the algorithm has this side add noise, and none elsewhere."""
    if secret is None:
        noised = any(mechanism is not None and mechanism.central == central for mechanism in algorithm.mechanisms)
        secret = own_secret(folder) if noised else b""
    return words(secret)


def fresh(secret: Words, about: bytes) -> Words:
    """The secret for one use: noise that came twice could be taken off by subtracting what it was added to.

    The use is told by all 32 bytes of a digest: whoever asks for noise may seek two uses of which a few bytes agree.
    """
    return (*secret, *words(hashlib.sha256(about).digest())) if secret else ()


def own_secret(folder: Path | None) -> bytes:
    """The secret kept in `folder`, drawn from the operating system the first time; a passing one without a folder."""
    if folder is None:
        return os.urandom(LENGTH)
    path = folder / "secret"
    if not path.exists():
        write_whole(path, os.urandom(LENGTH), mode=0o600)
    secret = path.read_bytes()
    if len(secret) != LENGTH:
        raise CheckpointError(
            f"{path} has {len(secret)} bytes and a secret {LENGTH}: the noise would be no secret. Remove the file: a "
            "new one is drawn."
        )
    return secret


def words(secret: bytes) -> Words:
    """The secret as numbers a key can be folded with.

    >>> words(bytes([1, 0, 0, 0, 2, 0, 0, 0]))
    (np.uint32(1), np.uint32(2))
    """
    if len(secret) % 4:
        raise ArgumentError(f"secret has {len(secret)} bytes: give a multiple of 4, such as os.urandom(16).")
    return tuple(np.frombuffer(secret, "<u4").astype(np.uint32))
