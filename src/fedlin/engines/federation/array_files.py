"""The long arrays of a client's states, each in a file of its own and written once.

A state keeps arrays of the one it went on from, and a reply repeats an array of the state that it leads to. What is in
a file already is referred to and not written again. A file that no state refers to is written over, since a new one
costs several times as much.
"""

import os
import re
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedlin.core import Array
from fedlin.engines.checkpoint import private
from fedlin.errors import DamagedError

LONG = 1 << 16  # bytes from which an array has a file of its own
_NAME = re.compile(r"(\d+)\.array")


class Stored(NamedTuple):
    """Where the bytes of an array are."""

    number: int  # of the file
    length: int
    crc: int


class ArrayFiles:
    """The files in one folder.

    Args:
        folder: Where they are.
        needed: What states refer to there; other files are removed.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     files = ArrayFiles(Path(folder))
    ...     files.put(np.arange(3.0)) == files.put(np.arange(3.0))
    True
    """

    def __init__(self, folder: Path, needed: Collection[Stored] = ()) -> None:
        self.folder = folder
        self._needed: dict[Stored, Array | None] = dict.fromkeys(needed)  # with their bytes, if they are in memory
        self._lengths = {stored.number: stored.length for stored in needed}  # of all files
        for path in folder.glob("*.array"):
            found = _NAME.fullmatch(path.name)  # and no copy that somebody made under another name
            if found and int(found[1]) not in self._lengths:
                path.unlink()

    def path(self, stored: Stored) -> Path:
        """The file."""
        return self.folder / f"{stored.number}.array"

    def put(self, array: Array) -> Stored:
        """Where an array's bytes are, from now on if they were nowhere."""
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        crc = zlib.crc32(content.data)
        alike = (known for known in self._needed if known[1:] == (content.size, crc) and self._has(known, content))
        stored = next(alike, None) or Stored(self._free(content.size), content.size, crc)
        if stored not in self._needed or not self.path(stored).exists():  # someone may have removed it
            self._write(stored, content)
        return stored

    def get(self, stored: Stored) -> Array:
        """The bytes that are there."""
        content = self._needed.get(stored)
        if content is None:
            try:
                content = np.fromfile(self.path(stored), np.uint8)
            except FileNotFoundError as cause:
                raise DamagedError(f"{self.path(stored)} is gone.") from cause
            if content.size != stored.length or zlib.crc32(content.data) != stored.crc:
                raise DamagedError(f"{self.path(stored)} is truncated or damaged.")
            self._needed[stored] = content
        return content

    def keep(self, needed: Collection[Stored]) -> None:
        """From now on these are needed, and no others."""
        self._needed = {stored: self._needed.get(stored) for stored in needed}

    def _write(self, stored: Stored, content: Array) -> None:
        path = self.path(stored)
        try:
            with open(path, "r+b", opener=lambda name, flags: private(name, flags | os.O_CREAT)) as file:
                file.write(content.data)
                file.truncate()
        except BaseException:
            path.unlink(missing_ok=True)
            self._lengths.pop(stored.number, None)
            raise
        self._lengths[stored.number] = content.size
        self._needed[stored] = content

    def _has(self, stored: Stored, content: Array) -> bool:
        try:
            return np.array_equal(self.get(stored), content)
        except DamagedError:
            return False

    def _free(self, length: int) -> int:
        """The number of a file that nothing needs, best of the same length; of a new one where there is none."""
        taken = {stored.number for stored in self._needed}
        free = self._lengths.keys() - taken
        same = [number for number in free if self._lengths[number] == length]
        return min(same or free, default=1 + max(taken, default=0))
