"""Somebody who speaks to a process of NVIDIA FLARE's by frames of their own, with a certificate of the federation."""

import queue
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import msgpack
from nvflare.fuel.f3.drivers.grpc.streamer_pb2 import Frame
from nvflare.fuel.f3.drivers.grpc.streamer_pb2_grpc import StreamerStub
from nvflare.fuel.f3.sfm.constants import Types
from nvflare.fuel.f3.sfm.prefix import PREFIX_LEN, PREFIX_STRUCT

from fedlin.deploy.flare.authority import ROOT, Authority, make_key

SERVER = "localhost"  # the name in the server's certificate


def make_certificates(folder: Path, *names: str) -> None:
    """An authority's certificate, and a key and a certificate for the server and each of these names."""
    authority = Authority.create(folder / "authority")
    (folder / ROOT).write_bytes(authority.root)
    for name in (SERVER, *names):
        key, pem = make_key()
        (folder / f"{name}.key").write_bytes(pem)
        address = SERVER if name == SERVER else None
        (folder / f"{name}.crt").write_bytes(authority.issue(name, key.public_key(), address=address))


def frame(kind: int, head: dict[str, Any] | None = None, payload: bytes = b"") -> bytes:
    """A frame of FLARE's."""
    packed = msgpack.packb(head) if head else b""
    length = PREFIX_LEN + len(packed) + len(payload)
    return bytes(PREFIX_STRUCT.pack(length, len(packed), kind, 0, 0, 1, 17, 0)) + packed + payload


def hello(name: str, **more: Any) -> bytes:
    """The frame by which a process introduces itself."""
    told = {"endpoint_name": name, "timestamp": time.time(), "fqcn": name, **more}
    return frame(Types.HELLO, payload=msgpack.packb(told))


class RawPeer:
    """One connection.

    Args:
        folder: Where the certificates are.
        name: The name in the own one.
        port: The server's.
        read: Whether it reads what comes.
    """

    def __init__(self, folder: Path, name: str, port: int, *, read: bool = True) -> None:
        root, key, own = ((folder / file).read_bytes() for file in (ROOT, f"{name}.key", f"{name}.crt"))
        credentials = grpc.ssl_channel_credentials(root, key, own)
        self._channel = grpc.secure_channel(f"{SERVER}:{port}", credentials)
        self._out: queue.Queue[Frame | None] = queue.Queue()
        self.kinds: list[int] = []  # of the frames that came
        self.ended = threading.Event()
        answers = StreamerStub(self._channel).Stream(iter(self._out.get, None))
        if read:
            threading.Thread(target=self._read, args=(answers,), daemon=True).start()
        self._answers = answers

    def send(self, data: bytes) -> None:
        """Send a frame, whatever it is."""
        self._out.put(Frame(seq=1, data=data))

    def hears(self, kind: int, seconds: float = 20.0) -> bool:
        """Whether a frame of this kind comes in time."""
        deadline = time.monotonic() + seconds
        while kind not in self.kinds and not self.ended.is_set() and time.monotonic() < deadline:
            time.sleep(0.02)
        return kind in self.kinds

    def close(self) -> None:
        """End the connection."""
        self._out.put(None)
        self._channel.close()

    def _read(self, answers: Any) -> None:
        try:
            for answer in answers:
                self.kinds.append(PREFIX_STRUCT.unpack_from(answer.data)[2])
        except grpc.RpcError:
            pass
        self.ended.set()
