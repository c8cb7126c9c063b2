"""Has a process of NVIDIA FLARE check who connects and what comes, before FLARE does anything with it.

FLARE has filters of its own, which it asks late: when it has kept what a participant calls itself, written the
message's head into its log and its statistics, and given it one of its threads. The gate stands before that. A process
has one gate, from its start on: the server's (`flare_server_gate.py`) or a site's (`flare_site_gate.py`). The process
of a job at the server has none, since it hears of others through the server's own.
"""

import logging
import os
import select
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakSet

import msgpack
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.connection import Connection
from nvflare.fuel.f3.drivers import grpc_driver, socket_conn
from nvflare.fuel.f3.drivers.connector_info import Mode
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.drivers.grpc.qq import QQ
from nvflare.fuel.f3.drivers.tcp_driver import TcpStreamServer
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.sfm.conn_manager import ConnManager
from nvflare.fuel.f3.sfm.constants import HandshakeKeys, Types
from nvflare.fuel.f3.sfm.prefix import PREFIX_LEN, Prefix
from nvflare.fuel.f3.sfm.sfm_conn import SfmConnection

from fedlin.errors import WireError
from fedlin.transports.flare_heads import read_head
from fedlin.transports.rate_limit import RateLimit

_SHORT = 4096  # bytes of a frame that is not a message
_NAME = 200  # characters of what a participant calls its process
_OPEN, _NEW = 8, 60  # connections of one participant that are open, and that it may make in a minute
_HANDSHAKE = 5.0  # seconds that a handshake within the machine may take
_UNREAD = 128 << 20  # bytes that wait for a participant who does not read them
_FRAME = 1000  # bytes that a frame takes beside what it carries
_log = logging.getLogger(__name__)


class Gate(Protocol):
    """What a process checks. `peer` is the name in the certificate of the other end; None for the server's."""

    def stranger(self, peer: str | None) -> str | None:
        """Why nobody of this name may connect to this process; None where it may."""

    def passes(self, peer: str | None, message: Message) -> bool:
        """Whether a message may go on; one that may not is reported."""

    def refuse(self, peer: str | None, reason: str) -> None:
        """Report that something of a participant's was dropped."""


_gates: list[Gate] = []  # this process's, once it has one


def install(gate: Gate, put: Callable[[Any, str, Any], None] = setattr) -> None:
    """Let a gate check what comes to this process, from before FLARE starts on.

    Args:
        gate: The process's.
        put: What replaces functions of FLARE's by those that ask the gate.
    """
    put(ConnManager, "handle_new_connection", _connections(gate, ConnManager.handle_new_connection))
    put(ConnManager, "process_frame", _frames(gate, ConnManager.process_frame))
    put(grpc_driver.StreamConnection, "close", _closing(grpc_driver.StreamConnection.close))
    put(grpc_driver.StreamConnection, "send_frame", _sending(grpc_driver.StreamConnection.send_frame))
    put(grpc_driver, "QQ", _Waiting)
    put(TcpStreamServer, "__init__", _listening(TcpStreamServer.__init__))
    put(socket_conn.ConnectionHandler, "handle", _handshake(socket_conn.ConnectionHandler.handle))
    put(socket_conn, "select", _Poll)
    _gates[:] = [gate]


class NeedsGate(FLComponent):  # type: ignore[misc] # FLARE has no types
    """A component of the server's and a site's kit that ends a process which would not check what comes to it."""

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """FLARE's hook."""
        if event_type == EventType.SYSTEM_START and not _gates:
            _log.critical("this process would not check what others send: start it by fedlin federation start or join")
            os._exit(1)


def _peer(connection: Connection) -> str | None:
    """The name in the certificate of the other end, where it connected to this one or is on this machine."""
    name = connection.get_conn_properties().get(DriverParams.PEER_CN.value)
    return None if name is None else str(name)


def _connections(gate: Gate, original: Any) -> Any:
    made = RateLimit(_NEW)

    def handle_new_connection(manager: ConnManager, connection: Connection) -> None:
        if connection.connector.mode == Mode.PASSIVE:
            peer = _peer(connection)
            reason = gate.stranger(peer)
            if reason is None and made.reached(str(peer)):
                reason = f"it has made more than {_NEW} connections within a minute"
            if reason is not None:
                gate.refuse(peer, reason)
                connection.close()
                return
            with manager.lock:
                own = [one.conn for one in manager.sfm_conns.values() if _peer(one.conn) == peer]
            open_ones = [former for former in own if not former.closing]
            for former in open_ones[: max(0, len(open_ones) - _OPEN + 1)]:  # who came back uses the latest
                former.close()
        original(manager, connection)

    return handle_new_connection


def _frames(gate: Gate, original: Any) -> Any:
    introduced: WeakSet[SfmConnection] = WeakSet()

    def process_frame(manager: ConnManager, sfm_conn: SfmConnection, frame: Any) -> None:
        peer = _peer(sfm_conn.conn)
        if sfm_conn.conn.connector.mode == Mode.PASSIVE and (reason := gate.stranger(peer)) is not None:
            gate.refuse(peer, reason)  # it was none when it connected
            sfm_conn.conn.close()
            return
        try:
            prefix = _prefix(frame)
            if prefix.type != Types.DATA:
                _check_short(prefix, frame)
                if prefix.type in (Types.HELLO, Types.READY):
                    if sfm_conn in introduced:
                        raise WireError("it introduces itself twice on one connection")
                    introduced.add(sfm_conn)
                original(manager, sfm_conn, frame)
                return
            message = _message(prefix, frame, sfm_conn)
        except WireError as error:
            gate.refuse(peer, str(error))
            return
        receiver = manager.receivers.get(prefix.app_id)
        if receiver is not None and gate.passes(peer, message):
            endpoint = sfm_conn.sfm_endpoint.endpoint
            with suppress(RuntimeError):  # the process ends
                manager.frame_mgr_executor.submit(
                    receiver.process_message, endpoint, sfm_conn.conn, prefix.app_id, message
                )

    return process_frame


def _prefix(frame: Any) -> Prefix:
    """A frame's own description of itself, which fits it."""
    try:
        prefix = Prefix.from_bytes(frame)
    except CommError as error:
        raise WireError("it is shorter than any frame") from error
    if prefix.length != len(frame) or PREFIX_LEN + prefix.header_len > len(frame):
        raise WireError("it is not as long as it says")
    return prefix


def _check_short(prefix: Prefix, frame: Any) -> None:
    """Refuse a sign of life, or an introduction, that is none."""
    if len(frame) > _SHORT or prefix.header_len:
        raise WireError("it is no message, and longer than what is none")
    if prefix.type in (Types.HELLO, Types.READY):
        _check_introduction(bytes(frame[PREFIX_LEN:]))
    elif prefix.type not in (Types.PING, Types.PONG):
        raise WireError("it is a frame of an unknown kind")


def _check_introduction(data: bytes) -> None:
    try:
        told = msgpack.unpackb(data)
    except Exception as error:  # of many kinds
        raise WireError("it introduces itself in a way that cannot be read") from error
    match told:
        case {HandshakeKeys.ENDPOINT_NAME: name, HandshakeKeys.TIMESTAMP: int() | float(), **more} if len(more) <= 1:
            if all(map(_is_name, (name, *more.values()))):
                return
    raise WireError("it introduces itself by more than its name")


def _is_name(word: object) -> bool:
    return isinstance(word, str) and len(word) <= _NAME and word.isprintable()


def _message(prefix: Prefix, frame: Any, sfm_conn: SfmConnection) -> Message:
    if sfm_conn.sfm_endpoint is None:
        raise WireError("it sends a message before it has introduced itself")
    end = PREFIX_LEN + prefix.header_len
    return Message(read_head(bytes(frame[PREFIX_LEN:end])), frame[end:] if len(frame) > end else None)


def _closing(original: Any) -> Any:
    """FLARE's end of a connection lasts until the other side sends something; the connection is ended at once."""

    def close(connection: Any) -> None:
        context = connection.context
        original(connection)
        if context is not None:
            context.cancel()

    return close


class _Waiting(QQ):  # type: ignore[misc] # FLARE has no types
    """What is to be sent on a connection, and its bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0
        self._turn = threading.Lock()

    def append(self, frame: Any) -> None:
        """One more."""
        super().append(frame)
        with self._turn:
            self.size += len(frame.data) + _FRAME

    def __next__(self) -> Any:
        frame = super().__next__()
        with self._turn:
            self.size -= len(frame.data) + _FRAME
        return frame


def _sending(original: Any) -> Any:
    def send_frame(connection: Any, frame: Any) -> None:
        if connection.oq.size > _UNREAD:
            connection.close()
            raise CommError(CommError.TIMEOUT, "the other side does not read what it is sent")
        original(connection, frame)

    return send_frame


def _listening(original: Any) -> Any:
    """FLARE shakes hands in the thread that waits for connections: one who says nothing would keep out all others."""

    def listen(server: Any, *arguments: Any) -> None:
        original(server, *arguments)
        if isinstance(server.socket, ssl.SSLSocket):
            server.socket.do_handshake_on_connect = False  # type: ignore[attr-defined] # which its stub has left out

    return listen


def _handshake(original: Any) -> Any:
    def handle(handler: Any) -> None:
        if isinstance(handler.request, ssl.SSLSocket):
            try:
                handler.request.settimeout(_HANDSHAKE)
                handler.request.do_handshake()
                handler.request.settimeout(None)
            except OSError as error:
                _log.debug("somebody on this machine connected without a certificate: %s", error)
                return
        original(handler)

    return handle


class _Poll:
    """What FLARE uses of `select`, for any number of open files: that one takes 1,024."""

    @staticmethod
    def select(read: Any, write: list[Any], failed: Any, seconds: float) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait until one may be written to."""
        poll = select.poll()
        for one in write:
            poll.register(one, select.POLLOUT)
        return [], write if poll.poll(1000 * seconds) else [], []
