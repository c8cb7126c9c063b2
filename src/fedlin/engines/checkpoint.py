"""Checkpoints: written whole or not at all, and refused when damaged or when they belong to another run."""

import hashlib
import io
import json
import os
import struct
import threading
import zlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedlin.checks import file_name, positive_integer, shown
from fedlin.errors import ArgumentError, CheckpointError, DamagedError, OtherRunError

_MAGIC = b"fedlin checkpoint 2\n"
_FORMER = b"fedlin checkpoint 1\n"  # a digest and a file of NumPy's: read, and no longer written
_SOON = 1.0  # seconds
_LENGTHS = struct.Struct("<QI")  # of the description that follows: its bytes, and its CRC


@dataclass(frozen=True)
class Checkpoint:
    """Where a run is saved as it goes, and from where it goes on.

    Args:
        path: The file. It is written whole or not at all, and refused if it belongs to another run.
        every: After how many rounds each time; an interrupted run is saved too.

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


def write(
    path: str | os.PathLike[str],
    identity: dict[str, str],
    arrays: dict[str, Any],
    mode: int = 0o666,
    *,
    sync: bool = True,
    reuse: str = "",
) -> None:
    """Save what `read` gives back: a description in JSON, and the arrays one after the other, each with its CRC."""
    parts: list[bytes | memoryview] = []
    described = []
    for name, array in arrays.items():
        plain = np.ascontiguousarray(array)
        if plain.dtype.hasobject:
            raise CheckpointError(f"{name} holds objects of Python, and a checkpoint holds numbers and text.")
        part = plain.reshape(-1).view(np.uint8).data if plain.nbytes else b""
        described.append([name, plain.dtype.str, np.shape(array), zlib.crc32(part)])
        parts.append(part)
    description = json.dumps({"identity": identity, "arrays": described}).encode()
    lengths = _LENGTHS.pack(len(description), zlib.crc32(description))
    write_whole(path, [_MAGIC, lengths, description, *parts], mode, sync=sync, reuse=reuse)


def write_whole(
    path: str | os.PathLike[str],
    content: bytes | Sequence[bytes | memoryview],
    mode: int = 0o666,
    *,
    sync: bool = True,
    reuse: str = "",
) -> None:
    """Write atomically: a reader sees the old file or the new one, never a part; `mode` as for `os.open`.

    The content may come in several parts. Without `sync` all this holds as long as the machine keeps its power. With
    `reuse` the file that was retired under that name is written over: a new one costs several times as much, since the
    system has to find room and to clear the old one away. One at a time may write to a folder so.
    """
    target = Path(path)
    scratch = target.with_name(f"{reuse or f'{target.name}.{os.getpid()}'}.part")
    try:
        with open(scratch, "r+b", opener=lambda name, flags: os.open(name, flags | os.O_CREAT, mode)) as file:
            for part in [content] if isinstance(content, bytes) else content:
                file.write(part)
            if os.fstat(file.fileno()).st_size > file.tell():  # it was a longer one's
                file.truncate()
            if sync:
                os.fsync(file.fileno())
        os.replace(scratch, target)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def retire(path: Path, reuse: str) -> None:
    """Remove a file that is needed no more; its room is the next one's that is written with the same `reuse`."""
    with suppress(FileNotFoundError):
        os.replace(path, path.with_name(f"{reuse}.part"))


class LaterSync:
    """Has files reach the disk while others work: `add` waits for the file before, so that one at most is on its way.

    A process may be killed at any moment without loss; where the power is cut, the newest file may be gone.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "fedlin-sync")
        self._before: Future[None] | None = None

    def add(self, path: Path) -> None:
        """Have this file reach the disk, once the one before has."""
        if self._before is not None:
            self._before.result()
        self._before = self._thread.submit(_sync, path)


class SyncSoon:
    """Has the newest of many files reach the disk, at most once a second, while others work.

    For files of which a replay makes up when the power is cut: syncing each would be most of what it costs to write it.
    """

    def __init__(self) -> None:
        self._newest: Sequence[Path] = ()
        self._planned = False
        self._lock = threading.Lock()

    def add(self, *paths: Path) -> None:
        """Have these files reach the disk, one after the other, unless others follow soon."""
        with self._lock:
            self._newest = paths
            if not self._planned:
                self._planned = True
                later = threading.Timer(_SOON, self._sync)
                later.daemon = True
                later.start()

    def _sync(self) -> None:
        with self._lock:
            self._planned = False
            paths = self._newest
        for path in paths:
            _sync(path)


def _sync(path: Path) -> None:
    try:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
    except FileNotFoundError:  # it is not needed any more
        return


def read(path: str | os.PathLike[str], identity: dict[str, str]) -> dict[str, Any] | None:
    """What `write` saved for the same run; None if there is no file yet."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        return None
    try:
        if content.startswith(_MAGIC):
            saved, arrays = _parse(path, memoryview(content)[len(_MAGIC) :])
        elif content.startswith(_FORMER):
            saved, arrays = _parse_former(path, content[len(_FORMER) :])
        else:
            raise DamagedError(f"{path} is not a checkpoint of fedlin: remove it, or name another file.")
        differing = sorted(name for name in identity if identity[name] != saved.get(name))
    except CheckpointError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError, OSError) as cause:
        raise DamagedError(f"{path} was not written by fedlin: remove it, or name another file.") from cause
    if differing:
        raise OtherRunError(path, differing)
    return arrays


def _parse(path: str | os.PathLike[str], content: memoryview) -> tuple[dict[str, str], dict[str, Any]]:
    damaged = DamagedError(f"{path} is truncated or damaged: remove it to start again from round 0.")
    if len(content) < _LENGTHS.size:
        raise damaged
    length, checksum = _LENGTHS.unpack_from(content)
    first = _LENGTHS.size + length
    description = bytes(content[_LENGTHS.size : first])
    if len(description) != length or zlib.crc32(description) != checksum:
        raise damaged
    header = json.loads(description)
    arrays: dict[str, Any] = {}
    for name, dtype, shape, crc in header["arrays"]:
        kind = np.dtype(dtype)
        size = kind.itemsize * int(np.prod(shape, dtype=np.int64))
        part = content[first : first + size]
        if len(part) != size or zlib.crc32(part) != crc:
            raise damaged
        arrays[name] = np.frombuffer(part, kind).reshape(shape).copy()
        first += size
    if first != len(content):
        raise damaged
    return header["identity"], arrays


def _parse_former(path: str | os.PathLike[str], content: bytes) -> tuple[dict[str, str], dict[str, Any]]:
    body = content[32:]
    if hashlib.sha256(body).digest() != content[:32]:
        raise DamagedError(f"{path} is truncated or damaged: remove it to start again from round 0.")
    with np.load(io.BytesIO(body), allow_pickle=False) as file:
        arrays: dict[str, Any] = {name: file[name] for name in file.files}
    return json.loads(str(arrays.pop("identity"))), arrays
