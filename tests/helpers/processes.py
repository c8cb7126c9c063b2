"""A federation of real processes over Unix sockets, to be killed.

`processes.py site NUMBER FOLDER` is a client, `processes.py server FOLDER` the server.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Client as Connection
from multiprocessing.connection import Listener
from pathlib import Path

import numpy as np

import fedlin
from fedlin.transports.transport import Enough, Payloads
from quadratics import A, B

M, D, ROUNDS = 2, 3, 40
PROBLEM = fedlin.problems.quadratic(A[:M, :D, :D], B[:M, :D])
PLAN = fedlin.Plan([1, 3], [0.06, 0.02])
ALGORITHM = fedlin.scaffold()  # remembers on both sides, and compiles fast
PACE = 0.02  # seconds an answer takes, so that there is something to interrupt


class Sockets:
    """One socket file a site; who does not answer is not there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def clients(self) -> Sequence[str]:
        return [name for name in (f"site-{i}" for i in range(M)) if self.reach(name, "alive", b"", 60.0) is not None]

    def reach(self, name: str, phase: str, payload: bytes, timeout: float) -> bytes | None:
        try:
            with Connection(str(self.folder / f"{name}.socket"), "AF_UNIX") as connection:
                connection.send_bytes(phase.encode())
                connection.send_bytes(payload)
                return connection.recv_bytes() if connection.poll(timeout) else None
        except (OSError, EOFError):
            return None

    def exchange(
        self, phase: str, payloads: Payloads, clients: Sequence[str], timeout: float, enough: Enough | None = None
    ) -> Mapping[str, bytes]:
        assert not isinstance(payloads, bytes)
        answers = {name: self.reach(name, phase, payloads[name], timeout) for name in clients}
        return {name: reply for name, reply in answers.items() if reply is not None}

    def close(self) -> None: ...


def site(index: int, folder: Path) -> None:
    client = fedlin.Client(ALGORITHM, PROBLEM.client(index), folder=folder / f"site-{index}")
    address = folder / f"site-{index}.socket"
    address.unlink(missing_ok=True)  # left by one that was killed
    with Listener(str(address), "AF_UNIX") as listener:
        while True:
            try:
                with listener.accept() as connection:
                    phase, payload = connection.recv_bytes().decode(), connection.recv_bytes()
                    if phase != "alive":
                        time.sleep(PACE)
                        payload = client.handle(phase, payload)
                    connection.send_bytes(payload)
            except (OSError, EOFError):
                continue


def server(folder: Path) -> None:
    result = fedlin.serve(ALGORITHM, Sockets(folder), PLAN, ROUNDS, dim=D, folder=folder / "server", expect=M)
    np.save(folder / "x.part.npy", result.x)
    (folder / "x.part.npy").rename(folder / "x.npy")


if __name__ == "__main__":
    if sys.argv[1] == "site":
        site(int(sys.argv[2]), Path(sys.argv[3]))
    else:
        server(Path(sys.argv[2]))
