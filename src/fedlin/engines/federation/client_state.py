"""A client's memory on its own disk, two rounds deep.

A state is named by the message that led to it, and that message names the state it went on from: a chain, as of
commits. So a repeated message finds its stored reply, a message of a server that was set back finds the state it
means, and a state that belongs to another history is never taken for the right one.
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedlin.engines import checkpoint
from fedlin.engines.federation import array_files, wire
from fedlin.engines.federation.array_files import ArrayFiles, Stored
from fedlin.engines.federation.handshake import Handshake
from fedlin.errors import CheckpointError, FederationError, WireError

ROOT = bytes(8)  # the parent of a state that went on from nothing
DEPTH = 2  # rounds that can be replayed
_NAME = re.compile(r"(\d+)-((?:[0-9a-f]{2})+)\.state")


class SavedState(NamedTuple):
    """A state, where it came from, and what was answered."""

    parent: bytes
    round: int
    opening: bool
    phase: int  # -1 for a state before its first phase
    state: Any
    reply: bytes


class ClientStates:
    """Records by the identifier of the message that led to each; in memory alone where there is no folder."""

    def __init__(self, handshake: Handshake, folder: Path | None) -> None:
        self.handshake = handshake
        self.folder = folder
        self._records: dict[bytes, SavedState] = {}
        self._rounds: dict[bytes, int] = {}
        self._sync = checkpoint.SyncSoon()
        self._apart: dict[bytes, dict[str, Stored]] = {}  # of each record on disk: its arrays with files of their own
        self._arrays: ArrayFiles | None = None
        if folder is not None:
            for path in checkpoint.open_folder(folder, 0o700).glob("*.state"):
                if found := _NAME.fullmatch(path.name):  # and no copy that somebody made under another name
                    name = bytes.fromhex(found[2])
                    self._rounds[name] = int(found[1])
                    self._apart[name] = self._read_apart(path)
            self._arrays = ArrayFiles(folder, self._needed())

    def get(self, name: bytes) -> SavedState | None:
        """The record of this name, or None if it is not here or damaged."""
        if name not in self._records and name in self._rounds and self.folder is not None:
            record = self._read(name)
            if record is not None:
                self._records[name] = record
        return self._records.get(name)

    def put(self, name: bytes, record: SavedState) -> None:
        """Keep a record, on disk before anyone hears of it, and forget those no server can ask for again."""
        given, expected = (jax.tree.structure(t) for t in (record.state, self._like(record.opening, record.phase)))
        if bool(given != expected):  # type: ignore[operator]
            raise FederationError(
                f"{self.handshake.algorithm.name} leaves a client with another structure of state after a missed "
                "phase: its phases must each leave one structure, whatever went before."
            )
        if self.folder is not None:
            try:
                self._write(name, record)
            except FileNotFoundError:  # someone removed the folder
                self.folder.mkdir(0o700, parents=True)
                self._write(name, record)
        self._records[name] = record
        self._rounds[name] = record.round
        self._prune(name)

    def _prune(self, name: bytes) -> None:
        kept, newest = self._history(name), max(self._rounds.values())
        if self._rounds[name] < newest:  # an old message came again: what followed it may still be needed
            kept.update(*(self._history(other) for other, number in self._rounds.items() if number == newest))
        for other in set(self._rounds) - kept:
            number, former = self._rounds.pop(other), self._records.pop(other, None)
            if self.folder is None:
                continue
            if former is None or former.phase < 0:  # no other of its size may follow
                self._path(other, number).unlink(missing_ok=True)
            else:
                checkpoint.retire(self._path(other, number), _spare(former.phase))
            self._apart.pop(other, None)
        if self._arrays is not None:
            self._arrays.keep(self._needed())

    def _history(self, name: bytes) -> set[bytes]:
        """The states that led to this one, as far back as a round can be replayed, and itself."""
        history, last = {name}, self._rounds[name]
        while (record := self.get(name)) is not None and record.round > last - DEPTH and record.parent != ROOT:
            name = record.parent
            history.add(name)
        return history

    @property
    def _identity(self) -> dict[str, str]:
        return {"algorithm, dimension or precision": self.handshake.fingerprint.hex()}

    def _like(self, opening: bool, phase: int) -> Any:
        return self.handshake.shapes.client if phase < 0 else self.handshake.phase(opening, phase).client

    def _path(self, name: bytes, number: int) -> Path:
        assert self.folder is not None
        return self.folder / f"{number:010d}-{name.hex()}.state"

    def _write(self, name: bytes, record: SavedState) -> None:
        assert self._arrays is not None
        reply = np.frombuffer(record.reply, np.uint8)
        arrays = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(record.state))}
        arrays["body"] = reply[wire.REPLY :]  # which may be an array of the state
        apart = {which: self._arrays.put(array) for which, array in arrays.items() if array.nbytes >= array_files.LONG}
        inline = {which: array for which, array in arrays.items() if which not in apart} | {
            "apart": np.frombuffer(json.dumps(apart).encode(), np.uint8),
            "place": np.array([record.round, record.opening, record.phase]),
            "parent": np.frombuffer(record.parent, np.uint8),
            "reply": reply[: wire.REPLY],
        }
        path = self._path(name, record.round)
        checkpoint.write(path, self._identity, inline, 0o600, sync=False, reuse=_spare(record.phase))
        self._apart[name] = apart
        self._sync.add(*map(self._arrays.path, apart.values()), path)

    def _needed(self) -> set[Stored]:
        return {stored for apart in self._apart.values() for stored in apart.values()}

    def _read(self, name: bytes) -> SavedState | None:
        assert self._arrays is not None
        try:
            arrays = checkpoint.read(self._path(name, self._rounds[name]), self._identity)
            if arrays is None:
                return None
            return self._restore(arrays | {which: self._arrays.get(one) for which, one in self._apart[name].items()})
        except (CheckpointError, KeyError, ValueError, TypeError, WireError):
            return None

    def _read_apart(self, path: Path) -> dict[str, Stored]:
        """Where a record has its long arrays; nowhere where it cannot be read."""
        try:
            arrays = checkpoint.read(path, self._identity) or {}
            apart = json.loads(arrays["apart"].tobytes()) if "apart" in arrays else {}  # there was no such thing once
            return {which: Stored(*map(int, one)) for which, one in apart.items()}
        except (CheckpointError, ValueError, TypeError, AttributeError, RecursionError, OverflowError):
            return {}

    def _restore(self, arrays: dict[str, Any]) -> SavedState:
        number, opening, phase = (int(value) for value in arrays["place"])
        like = self._like(bool(opening), phase)
        leaves = [
            arrays[f"leaf{i}"].view(np.dtype(leaf.dtype)).reshape(leaf.shape)
            for i, leaf in enumerate(jax.tree.leaves(like))
        ]
        state = jax.tree.unflatten(jax.tree.structure(like), leaves)
        body = arrays["body"].tobytes() if "body" in arrays else b""  # which was a part of `reply` once
        reply = arrays["reply"].tobytes() + body
        return SavedState(arrays["parent"].tobytes(), number, bool(opening), phase, state, reply)


def _spare(phase: int) -> str:
    """Files of the same phase are of the same size, so that one written over another needs no other room."""
    return f"phase{phase}"
