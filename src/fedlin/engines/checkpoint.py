"""Checkpoints: written whole or not at all, and refused when damaged or when they belong to another run."""

import hashlib
import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedlin.checks import file_name, positive_integer, shown
from fedlin.errors import ArgumentError, CheckpointError, DamagedError, OtherRunError

_MAGIC = b"fedlin checkpoint 1\n"


@dataclass(frozen=True)
class Checkpoint:
    """Where to save, and after how many rounds each time.

    >>> Checkpoint("run.ckpt", every=10).every
    10
    """

    path: str | os.PathLike[str]
    every: int = 50

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | os.PathLike):
            raise ArgumentError(
                f"checkpoint = {shown(self.path)} is not allowed: give the path of a file, or a Checkpoint."
            )
        positive_integer("checkpoint.every", self.every)


def digest(*parts: Any) -> str:
    """A fingerprint of arrays and plain values."""
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            total.update(f"{part.dtype}{part.shape}".encode())
            total.update(np.ascontiguousarray(part).data)
        else:
            total.update(repr(part).encode())
        total.update(b"|")
    return total.hexdigest()


def check_folder(path: str | os.PathLike[str]) -> None:
    """Refuse, before any work is done, a place that cannot be written to."""
    target = Path(path)
    file_name("checkpoint", path, CheckpointError)
    if target.is_dir() or not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        raise CheckpointError(
            f"checkpoint = {path} cannot be written: name a file in a folder that exists and may be written to."
        )


def private(path: str, flags: int) -> int:
    """An `opener` for files that their owner alone can read."""
    return os.open(path, flags, 0o600)


def open_folder(path: str | os.PathLike[str], mode: int = 0o777) -> Path:
    """The folder, made with `mode` if it is not there and cleared of what a killed process left half written."""
    folder = Path(path)
    try:
        folder.mkdir(mode, parents=True, exist_ok=True)
    except OSError as cause:
        raise CheckpointError(
            f"folder = {path} cannot be made: {cause}. Name a folder that may be written to."
        ) from cause
    if not os.access(folder, os.W_OK):
        raise CheckpointError(f"folder = {path} cannot be written to: name one that can.")
    for scratch in folder.glob("*.part"):
        scratch.unlink()
    return folder


def write(path: str | os.PathLike[str], identity: dict[str, str], arrays: dict[str, Any], mode: int = 0o666) -> None:
    """Save everything `read` gives back."""
    buffer = io.BytesIO()
    np.savez(buffer, identity=np.array(json.dumps(identity)), **arrays)
    body = buffer.getvalue()
    write_whole(path, _MAGIC + hashlib.sha256(body).digest() + body, mode)


def write_whole(path: str | os.PathLike[str], content: bytes, mode: int = 0o666, *, sync: bool = True) -> None:
    """Write atomically: a reader sees the old file or the new one, never a part; `mode` as for `os.open`.

    Without `sync` that holds as long as the machine does not lose its power.
    """
    target = Path(path)
    scratch = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with open(scratch, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)


def read(path: str | os.PathLike[str], identity: dict[str, str]) -> dict[str, Any] | None:
    """What `write` saved for the same run; None if there is no file yet."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        return None
    if not content.startswith(_MAGIC):
        raise DamagedError(f"{path} is not a checkpoint of fedlin: remove it, or name another file.")
    body = content[len(_MAGIC) + 32 :]
    if hashlib.sha256(body).digest() != content[len(_MAGIC) : len(_MAGIC) + 32]:
        raise DamagedError(f"{path} is truncated or damaged: remove it to start again from round 0.")
    with np.load(io.BytesIO(body), allow_pickle=False) as file:
        arrays: dict[str, Any] = {name: file[name] for name in file.files}
    saved = json.loads(str(arrays.pop("identity")))
    differing = sorted(name for name in identity if identity[name] != saved.get(name))
    if differing:
        raise OtherRunError(path, differing)
    return arrays
