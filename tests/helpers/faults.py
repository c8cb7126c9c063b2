"""A federation in one process in which anything may fail: clients and server are dropped and rebuilt from disk."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedlin.engines.federation import Client
from fedlin.transports.transport import Enough, Payloads

Build = Callable[[int, Path], Client]
CLIENT_FAULTS = (
    "crash before",  # dies with the request unread
    "crash after",  # dies with its state on disk and the reply unsent
    "lose reply",
    "duplicate",
    "late",  # the reply comes as the answer to the next request
    "garbled request",
    "garbled reply",
    "frozen",  # misses this exchange and the next
    "scratch",  # dies in the middle of a write
)
SERVER_FAULTS = ("server before", "server after", "server and checkpoint")
MEMORY_FAULTS = ("wipe", "truncate")


class Fault(NamedTuple):
    exchange: int
    client: int
    kind: str


class ServerCrash(Exception):  # noqa: N818 - it is staged
    """The server's process died."""


class Faulty:
    """A transport with faults at given exchanges, counted over restarts of the server; no fault twice."""

    def __init__(self, build: Build, clients: int, folder: Path, faults: Sequence[Fault]) -> None:
        self.build = build
        self.folder = folder
        self.names = [f"site-{i}" for i in range(clients)]
        self.faults = {(fault.exchange, fault.client): fault.kind for fault in faults}
        self.sites: dict[str, Client] = {}
        self.held: dict[str, bytes] = {}  # late replies
        self.frozen: dict[str, int] = {}
        self.exchanges = 0
        self.met: list[str] = []

    def clients(self) -> Sequence[str]:
        return self.names

    def close(self) -> None: ...

    def place(self, name: str) -> Path:
        return self.folder / name

    def site(self, name: str) -> Client:
        if name not in self.sites:
            self.sites[name] = self.build(self.names.index(name), self.place(name))
        return self.sites[name]

    def exchange(
        self, phase: str, payloads: Payloads, clients: Sequence[str], timeout: float, enough: Enough | None = None
    ) -> Mapping[str, bytes]:
        assert not isinstance(payloads, bytes)
        number, replies = self.exchanges, dict[str, bytes]()
        self.exchanges += 1
        kinds = {name: self.faults.get((number, self.names.index(name)), "") for name in clients}
        self.met += [kind for kind in kinds.values() if kind]
        if "server before" in kinds.values():
            raise ServerCrash
        # Another order of arrival every time.
        for name in clients[number % 3 :] + clients[: number % 3]:  # type: ignore[operator]
            reply = self.deliver(kinds[name], name, phase, payloads[name])
            if reply is not None:
                replies[name] = reply
            if enough is not None and enough(replies):
                break
        if "server after" in kinds.values():
            raise ServerCrash
        if "server and checkpoint" in kinds.values():
            truncate_newest(self.folder / "server", "server-*.ckpt", spare=1)
            raise ServerCrash
        return replies

    def deliver(self, kind: str, name: str, phase: str, payload: bytes) -> bytes | None:
        if self.frozen.get(name, 0) > 0:
            self.frozen[name] -= 1
            return None
        if name in self.held:
            self.site(name).handle(phase, payload)
            return self.held.pop(name)
        if kind in ("crash before", "wipe", "truncate", "scratch"):
            self.sites.pop(name, None)
            if kind == "wipe":
                shutil.rmtree(self.place(name), ignore_errors=True)
            elif kind == "truncate":
                truncate_newest(self.place(name), "*/*.state")
                truncate_newest(self.place(name), "*/*.array")
            elif kind == "scratch":
                for run in filter(Path.is_dir, self.place(name).glob("*")):
                    (run / "0000000001-aa.state.7.part").write_bytes(b"half a sta")
                    (run / "1000.array").write_bytes(b"half an arr")
            return None
        if kind == "frozen":
            self.frozen[name] = 1
            return None
        if kind == "garbled request":
            return self.site(name).handle(phase, flipped(payload))
        reply = self.site(name).handle(phase, payload)
        if kind == "duplicate":
            assert self.site(name).handle(phase, payload) == reply
        if kind == "crash after":
            del self.sites[name]
        if kind == "late":
            self.held[name] = reply
        if kind == "garbled reply":
            return flipped(reply)
        return None if kind in ("crash after", "lose reply", "late") else reply


def flipped(message: bytes) -> bytes:
    """One bit other."""
    place = len(message) // 2
    return message[:place] + bytes([message[place] ^ 4]) + message[place + 1 :]


def truncate_newest(folder: Path, pattern: str, spare: int = 0) -> None:
    """Cut the newest file in half, if more than `spare` are there."""
    paths = sorted(folder.glob(pattern), key=lambda path: path.name)
    if len(paths) > spare:
        paths[-1].write_bytes(paths[-1].read_bytes()[: paths[-1].stat().st_size // 2])


def until_done(run: Callable[[], Any]) -> Any:
    """Start the server again as often as it dies."""
    while True:
        try:
            return run()
        except ServerCrash:
            continue
