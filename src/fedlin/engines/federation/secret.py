"""Randomness no one else can repeat: what makes a client's noise its own."""

import os
from pathlib import Path

import numpy as np

from fedlin.errors import ArgumentError

LENGTH = 16  # bytes


def own_secret(folder: Path | None) -> bytes:
    """The secret kept in `folder`, drawn from the operating system the first time; a passing one without a folder."""
    if folder is None:
        return os.urandom(LENGTH)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "secret"
    if not path.exists():
        # Written whole under another name first: a crash leaves either no secret or a complete one.
        draft = folder / f"secret.{os.getpid()}"
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(os.urandom(LENGTH))
        draft.replace(path)
    return path.read_bytes()


def words(secret: bytes) -> tuple[np.uint32, ...]:
    """The secret as numbers a key can be folded with.

    >>> words(bytes([1, 0, 0, 0, 2, 0, 0, 0]))
    (np.uint32(1), np.uint32(2))
    """
    if len(secret) % 4:
        raise ArgumentError(f"secret has {len(secret)} bytes: give a multiple of 4, such as os.urandom(16).")
    return tuple(np.frombuffer(secret, "<u4").astype(np.uint32))
