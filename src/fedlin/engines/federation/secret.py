"""Randomness no one else can repeat: what makes a client's noise its own."""

import os
from pathlib import Path

import numpy as np

from fedlin.engines.checkpoint import write_whole
from fedlin.errors import ArgumentError, CheckpointError

LENGTH = 16  # bytes


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


def words(secret: bytes) -> tuple[np.uint32, ...]:
    """The secret as numbers a key can be folded with.

    >>> words(bytes([1, 0, 0, 0, 2, 0, 0, 0]))
    (np.uint32(1), np.uint32(2))
    """
    if len(secret) % 4:
        raise ArgumentError(f"secret has {len(secret)} bytes: give a multiple of 4, such as os.urandom(16).")
    return tuple(np.frombuffer(secret, "<u4").astype(np.uint32))
