"""A client's memory on its own disk, two rounds deep.

A state is named by the message that led to it, and that message names the state it went on from: a chain, as of
commits. So a repeated message finds its stored reply, a message of a server that was set back finds the state it
means, and a state that belongs to another history is never taken for the right one.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedlin.engines import checkpoint
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
        if folder is not None:
            for path in checkpoint.open_folder(folder, 0o700).glob("*.state"):
                if found := _NAME.fullmatch(path.name):  # and no copy that somebody made under another name
                    self._rounds[bytes.fromhex(found[2])] = int(found[1])

    def get(self, name: bytes) -> SavedState | None:
        """The record of this name, or None if it is not here or damaged."""
        if name not in self._records and name in self._rounds and self.folder is not None:
            record = self._read(self._path(name, self._rounds[name]))
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
            leaves = jax.tree.leaves(record.state)
            arrays = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
            place = np.array([record.round, record.opening, record.phase])
            parent, reply = (np.frombuffer(part, np.uint8) for part in (record.parent, record.reply))
            named = {**arrays, "place": place, "parent": parent, "reply": reply}
            path = self._path(name, record.round)
            try:
                self._write(path, named, record.phase)
            except FileNotFoundError:  # someone removed the folder
                self.folder.mkdir(0o700, parents=True)
                self._write(path, named, record.phase)
            self._sync.add(path)
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

    def _write(self, path: Path, arrays: dict[str, Any], phase: int) -> None:
        checkpoint.write(path, self._identity, arrays, 0o600, sync=False, reuse=_spare(phase))

    def _read(self, path: Path) -> SavedState | None:
        try:
            arrays = checkpoint.read(path, self._identity)
            return None if arrays is None else self._restore(arrays)
        except (CheckpointError, KeyError, ValueError, TypeError, WireError):
            return None

    def _restore(self, arrays: dict[str, Any]) -> SavedState:
        number, opening, phase = (int(value) for value in arrays["place"])
        like = self._like(bool(opening), phase)
        leaves = [arrays[f"leaf{i}"] for i in range(len(jax.tree.leaves(like)))]
        state = jax.tree.unflatten(jax.tree.structure(like), leaves)
        return SavedState(arrays["parent"].tobytes(), number, bool(opening), phase, state, arrays["reply"].tobytes())


def _spare(phase: int) -> str:
    """Files of the same phase are of the same size, so that one written over another needs no other room."""
    return f"phase{phase}"
