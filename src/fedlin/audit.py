"""An audit trail: what was asked of whom and what was refused, in lines each of which holds the hash of the one before.

Whoever changes, removes or inserts a line breaks the chain from there on. Lines cut off at the end are found by what
others have written down: server and sites tell each other the hash of their latest line whenever a run begins or goes
on, and keep what they received in their own trails.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

TRAIL = "audit.jsonl"
FIRST = "0" * 64  # what the first line holds in place of a hash
_SIZE = 20 << 20  # bytes after which a new file is begun
_TAIL = 1 << 16  # bytes in which the last line is looked for at first


class Entry(NamedTuple):
    """One line of a trail."""

    number: int
    facts: dict[str, Any]
    digest: str


class AuditTrail:
    """The trail in a folder, which several processes may write to.

    >>> import tempfile
    >>> trail = AuditTrail(Path(tempfile.mkdtemp()))
    >>> first = trail.record("asked", run="ab", round=3)
    >>> [entry.facts["event"] for entry in trail.entries()], trail.head() == first
    (['asked'], True)
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / TRAIL
        self._known: tuple[int, int, str] | None = None  # the file's size, and number and hash of its last line

    def record(self, event: str, **facts: object) -> str:
        """Add a line; its hash."""
        with self._locked():
            size = self._size()
            number, before = self._last(size)
            own = {"number": number + 1, "time": round(time.time(), 3), "event": event}
            content = {**own, **facts, **own, "before": before}  # no fact takes the place of what the chain is read by
            line = json.dumps(content, default=str).encode()
            if size > _SIZE:
                self.path.rename(self.folder / f"audit-{number:012d}.jsonl")
                size = 0
            digest = hashlib.sha256(line).hexdigest()
            whole = self._known is not None and self._known[0] == size  # what is there ends with a line of our own
            try:
                with open(self.path, "ab+", buffering=0, opener=_private) as file:
                    if not whole:
                        file.seek(max(0, size - 1))
                        line = line if file.read() in (b"", b"\n") else b"\n" + line
                    left = line + b"\n"
                    while left := left[file.write(left) :]:  # the disk takes no more, and the next time it says so
                        pass
                    self._known = file.tell(), number + 1, digest
            except OSError:  # the disk is full: a part of a line would break the chain
                self._known = None
                if self.path.exists():
                    os.truncate(self.path, size)
                raise
        return digest

    def head(self) -> str:
        """The hash of the latest line."""
        with self._locked():
            return self._last(self._size())[1]

    def entries(self) -> Iterator[Entry]:
        """All lines from the first on; ValueError at the first one that breaks the chain."""
        before, number = FIRST, 0
        for path in self._files():
            with open(path, "rb") as file:
                for place, line in enumerate(file, 1):
                    number += 1
                    try:
                        facts = json.loads(line)
                        whole = facts["before"] == before and facts["number"] == number and line.endswith(b"\n")
                    except (ValueError, KeyError, TypeError, RecursionError):
                        whole = False
                    if not whole:
                        where = f"the chain breaks at line {number} of the trail, which is line {place} of this file"
                        raise ValueError(f"{path.name} is not what was written: {where}.")
                    before = hashlib.sha256(line[:-1]).hexdigest()
                    yield Entry(number, facts, before)

    def _files(self) -> list[Path]:
        return [*sorted(self.folder.glob("audit-*.jsonl")), *([self.path] if self.path.exists() else [])]

    def _size(self) -> int:
        """The bytes of the latest file; 0 where there is none."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def _last(self, size: int) -> tuple[int, str]:
        """The number and the hash of the latest line, where the latest file has so many bytes."""
        if self._known is not None and size == self._known[0]:
            return self._known[1:]  # nobody else has written since
        files = self._files()
        if not files:
            return 0, FIRST
        with open(files[-1], "rb") as file:
            end, reach, lines = file.seek(0, os.SEEK_END), _TAIL, list[bytes]()
            while len(lines) < 2:  # with one before it the last line is whole, however long it is
                file.seek(max(0, end - reach))
                lines = [line for line in file.read().split(b"\n") if line]
                if reach >= end:
                    break
                reach *= 4
        try:
            return int(json.loads(lines[-1])["number"]), hashlib.sha256(lines[-1]).hexdigest()
        except (
            ValueError,
            KeyError,
            TypeError,
            IndexError,
            OverflowError,
            RecursionError,
        ):  # cut off by a crash: the break stays visible
            return 0, hashlib.sha256(lines[-1] if lines else b"").hexdigest()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        import fcntl

        lock = self._open_lock()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _open_lock(self) -> int:
        path = self.folder / ".audit.lock"
        try:
            return _private(path, os.O_WRONLY | os.O_CREAT)
        except FileNotFoundError:  # nobody has written here yet
            self.folder.mkdir(0o700, parents=True, exist_ok=True)
            return _private(path, os.O_WRONLY | os.O_CREAT)


class TrailVerdict(NamedTuple):
    """What became of checking a trail."""

    name: str
    lines: int
    problem: str | None  # None where nothing is wrong


def verify(trails: dict[str, AuditTrail]) -> list[TrailVerdict]:
    """Check every chain, and that each trail still has the lines whose hashes the others wrote down."""
    digests: dict[str, set[str]] = {}
    witnessed: dict[str, dict[str, str]] = {}  # by whose trail it is about: the hash, and who wrote it down
    verdicts = []
    for name, trail in trails.items():
        chain, problem = [], None
        try:
            for entry in trail.entries():
                chain.append(entry.digest)
                if entry.facts.get("event") == "trail" and "digest" in entry.facts:
                    witnessed.setdefault(str(entry.facts.get("of")), {})[str(entry.facts["digest"])] = name
        except ValueError as broken:
            problem = str(broken)
        digests[name] = {FIRST, *chain}
        verdicts.append(TrailVerdict(name, len(chain), problem))
    for number, verdict in enumerate(verdicts):
        lost = [who for digest, who in witnessed.get(verdict.name, {}).items() if digest not in digests[verdict.name]]
        if verdict.problem is None and lost:
            missing = f"lines are missing that {', '.join(sorted(set(lost)))} was told of."
            verdicts[number] = verdict._replace(problem=missing)
    return verdicts


def _private(path: str | Path, flags: int) -> int:
    return os.open(path, flags, 0o600)
