"""How far a federation has come: what the server saves after every round, and goes on from."""

import json
import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedlin.core import Array, Method
from fedlin.engines import checkpoint
from fedlin.engines.federation.handshake import Handshake
from fedlin.engines.federation.roster import Roster
from fedlin.errors import CheckpointError, DamagedError

_SPARE = "server"  # what the room of a checkpoint is known by that is needed no more
_NAME = re.compile(r"server-(\d{10})\.ckpt")
RECENT = 3  # checkpoints that are kept whatever their rounds


def kept_rounds(rounds: Collection[int], pinned: Collection[int] = ()) -> set[int]:
    """Which rounds' checkpoints to keep: the last three, of those a rounds ago every 2^⌊log₂ a⌋-th, and the pinned.

    So there are about as many as the logarithm of the number of rounds.

    >>> sorted(kept_rounds(range(1, 101), pinned=[75]))
    [64, 75, 80, 88, 96, 98, 99, 100]
    """
    newest = max(rounds, default=0)
    spacing = {number: 1 << max(0, (newest - number).bit_length() - 1) for number in rounds}
    return {n for n in rounds if n > newest - RECENT or n % spacing[n] == 0 or n in pinned}


@dataclass
class ServerState:
    """The server's state between rounds."""

    server: Any
    origin: Array  # the model from which the clients' memories began
    first: int  # the round in which they began
    round: int  # the next to be played
    roster: Roster

    @classmethod
    def start(cls, algorithm: Method, x: Array, roster: Roster) -> "ServerState":
        """Before the first round."""
        return cls(algorithm.init_server(jnp.asarray(x)), x, 0, 0, roster)

    @property
    def x(self) -> Array:
        """The model."""
        return np.asarray(self.server.x)

    def start_afresh(self, algorithm: Method) -> None:
        """Forget every memory and go on from the present model, as at the start of a run.

        A client's memory and the server's picture of it must agree; where one is lost, or f itself changes, both are
        made anew. The opening round then sends in full again, so that the limit is the same.
        """
        self.origin = self.x
        self.server = algorithm.init_server(jnp.asarray(self.origin))
        self.first = self.round
        self.roster.start_afresh()


class ServerCheckpoints:
    """The last few checkpoints of a server, one file a round; none where there is no folder."""

    def __init__(self, folder: Path | None, handshake: Handshake, identity: dict[str, str]) -> None:
        self.folder = folder
        self.handshake = handshake
        self.identity = identity
        self._sync = checkpoint.LaterSync()
        self.pinned: set[int] = set()  # rounds whose checkpoints are kept whatever their age

    def write(self, progress: ServerState) -> None:
        """Save, and remove what is too old to be needed."""
        if self.folder is None:
            return
        leaves = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(progress.server))}
        facts = {"first": progress.first, "round": progress.round, "roster": progress.roster.to_plain()}
        arrays = {**leaves, "origin": progress.origin, "facts": np.array(json.dumps(facts))}
        path = self._path(progress.round)
        checkpoint.write(path, self.identity, arrays, 0o600, sync=False, reuse=_SPARE)
        self._sync.add(path)  # of a round that is lost all the same the clients have what it takes to play it again
        rounds = self.rounds()
        for number in set(rounds) - kept_rounds(rounds, self.pinned):
            checkpoint.retire(self._path(number), _SPARE)

    def rounds(self) -> list[int]:
        """The rounds of which there are checkpoints, newest first; a copy that somebody made is none of them."""
        names = [] if self.folder is None else os.listdir(self.folder)
        return sorted((int(found[1]) for name in names if (found := _NAME.fullmatch(name))), reverse=True)

    def remove_after(self, number: int) -> None:
        """Forget every checkpoint of a later round."""
        for later in self.rounds():
            if later > number:
                self._path(later).unlink(missing_ok=True)

    def read(self, latest: int | None = None) -> ServerState | None:
        """The newest checkpoint that is whole, of round `latest` at most; None if there is none at all."""
        damaged = None
        for number in self.rounds():
            if latest is not None and number > latest:
                continue
            path = self._path(number)
            try:
                arrays = checkpoint.read(path, self.identity)
                if arrays is not None:
                    return self._restore(arrays)
            except DamagedError as cause:
                damaged = cause
            except CheckpointError:  # of another run
                raise
            except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
                damaged = DamagedError(f"{path} is whole, and does not hold a server's state.")
        if damaged is not None:
            raise damaged
        return None

    def _path(self, number: int) -> Path:
        assert self.folder is not None
        return self.folder / f"server-{number:010d}.ckpt"

    def _restore(self, arrays: dict[str, Any]) -> ServerState:
        like = self.handshake.shapes.server
        leaves = [jnp.asarray(arrays[f"leaf{i}"]) for i in range(len(jax.tree.leaves(like)))]
        facts = json.loads(str(arrays["facts"]))
        server = jax.tree.unflatten(jax.tree.structure(like), leaves)
        return ServerState(server, arrays["origin"], facts["first"], facts["round"], Roster.from_plain(facts["roster"]))
