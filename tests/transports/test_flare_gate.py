"""A process of FLARE's behind its gate: who may connect, and what is dropped before FLARE does anything with it."""

import os
import resource
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

from nvflare.apis.event_type import EventType
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.drivers.connector_info import Mode
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.drivers.grpc_driver import GrpcDriver
from nvflare.fuel.f3.drivers.tcp_driver import TcpDriver
from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.fuel.f3.message import Message, MessageReceiver
from nvflare.fuel.f3.sfm.conn_manager import ConnManager
from nvflare.fuel.f3.sfm.constants import Types

from fedlin.audit import AuditTrail
from fedlin.deploy.flare.authority import ROOT
from fedlin.transports import flare_gate, rate_limit
from fedlin.transports.flare_gate import Gate, NeedsGate, install
from fedlin.transports.flare_server_gate import ServerGate
from fedlin.transports.flare_site_gate import SiteGate
from local_flare import free_port
from raw_peer import SERVER, RawPeer, frame, hello, make_certificates

LONG = 20.0  # seconds, which no test takes
BEAT = {"cn__channel": "task", "cn__topic": "heart_beat", "cn__msg_type": "req", "cn__destination": "server"}
SITE_BEAT = {**BEAT, "cn__origin": "north"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder, "north", "south")
    return folder


class Process(MessageReceiver):  # type: ignore[misc] # FLARE has no types
    """What FLARE has of a process that others connect to: it listens, and receives messages."""

    def __init__(self, certificates: Path, own: str, name: str, driver: Any, scheme: str) -> None:
        self.port = free_port()
        self.got: list[Message] = []
        self._certificates, self._driver = certificates, driver
        self.manager = ConnManager(Endpoint(name, {"fqcn": name}))
        params = {
            DriverParams.SCHEME.value: scheme,
            DriverParams.HOST.value: SERVER,
            DriverParams.PORT.value: self.port,
            DriverParams.PATH.value: "",
            DriverParams.SECURE.value: True,
            DriverParams.CA_CERT.value: str(certificates / ROOT),
            DriverParams.SERVER_CERT.value: str(certificates / f"{own}.crt"),
            DriverParams.SERVER_KEY.value: str(certificates / f"{own}.key"),
        }
        self.manager.register_message_receiver(1, self)
        self.manager.add_connector(driver, params, Mode.PASSIVE)
        self.manager.start()
        assert eventually(self._listens)

    def process_message(self, endpoint: Endpoint, connection: Any, app_id: int, message: Message) -> None:
        """FLARE's hook."""
        self.got.append(message)

    def peer(self, name: str, *, read: bool = True) -> RawPeer:
        return RawPeer(self._certificates, name, self.port, read=read)

    @property
    def made(self) -> int:
        """How many connections have been made so far."""
        return sum(connector.total_conns for connector in self.manager.connectors.values())

    def close(self) -> None:
        self.manager.stop()
        if isinstance(self._driver, TcpDriver):  # which leaves it open
            self._driver.server.server_close()

    def _listens(self) -> bool:
        with closing(socket.socket()) as knock:
            return not knock.connect_ex((SERVER, self.port))


def eventually(true: Callable[[], object]) -> bool:
    deadline = time.monotonic() + LONG
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def guarded(monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    """Install a gate until the test is over."""
    monkeypatch.setattr(flare_gate, "_gates", [])
    install(gate, monkeypatch.setattr)


def dropped(kit: Path) -> list[tuple[str, str]]:
    return [(e.facts["sender"], e.facts["why"]) for e in AuditTrail(kit).entries()]


@pytest.fixture
def server(certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    """Of a federation with the site north, to which south belonged once; FLARE has four threads for connections."""
    (tmp_path / "federation.toml").write_text("[sites]\nnorth = { tau = 1, eta = 0.1 }\n")
    guarded(monkeypatch, ServerGate(tmp_path, SERVER))
    driver = GrpcDriver()
    driver.max_workers, driver.options = 4, [("grpc.server_handshake_timeout_ms", 500)]
    process = Process(certificates, SERVER, "server", driver, "grpcs")
    yield process
    process.close()


def test_a_site_introduces_itself_and_is_heard(server: Process, tmp_path: Path) -> None:
    with closing(server.peer("north")) as north:
        north.send(hello("north"))
        assert north.hears(Types.READY)
        north.send(frame(Types.DATA, SITE_BEAT, b"payload"))
        assert eventually(lambda: server.got)
    (message,) = server.got
    assert (message.headers, bytes(message.payload)) == (SITE_BEAT, b"payload")
    assert not dropped(tmp_path)


def test_connections_of_a_former_site_are_ended_at_once(server: Process, tmp_path: Path) -> None:
    """It would hold all of FLARE's threads for connections by saying nothing."""
    idle = [server.peer("south") for _ in range(8)]
    assert eventually(lambda: all(peer.ended.is_set() for peer in idle))
    with closing(server.peer("north")) as north:
        north.send(hello("north"))
        assert north.hears(Types.READY)
    assert dropped(tmp_path) == [("south", "it is not a site of this federation")]
    for peer in idle:
        peer.close()


def test_who_connects_and_does_not_say_who_it_is_is_not_waited_for(server: Process) -> None:
    with closing(socket.create_connection((SERVER, server.port), LONG)) as silent:
        while silent.recv(1 << 10):  # what gRPC has to say first
            pass


def test_the_connection_of_a_site_that_is_removed_meanwhile_is_ended(server: Process, tmp_path: Path) -> None:
    """With the next thing that it sends, be it a sign of life."""
    with closing(server.peer("north")) as north:
        north.send(hello("north"))
        assert north.hears(Types.READY)
        (tmp_path / "federation.toml").write_text("[sites]\n")
        os.utime(tmp_path / "federation.toml", (1, 1))
        north.send(frame(Types.PING, payload=b"\xc0"))
        assert north.ended.wait(LONG)
    assert Types.PONG not in north.kinds
    assert dropped(tmp_path) == [("north", "it is not a site of this federation")]


def test_of_a_site_that_connects_again_and_again_the_latest_connections_stay(
    server: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it does not introduce itself on any of them."""
    monkeypatch.setattr(flare_gate, "_OPEN", 2)
    peers: list[RawPeer] = []
    while len(peers) < 6:  # more than there are threads
        peers.append(server.peer("north"))
        assert eventually(lambda: server.made == len(peers))
    assert eventually(lambda: [peer.ended.is_set() for peer in peers] == [True] * 4 + [False] * 2)
    peers[-1].send(hello("north"))
    assert peers[-1].hears(Types.READY)
    for peer in peers:
        peer.close()


def test_a_site_makes_so_many_connections_a_minute(
    server: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each FLARE keeps something for good."""
    monkeypatch.setattr(rate_limit, "MINUTE", 0.0)
    for _ in range(flare_gate._NEW):
        with closing(server.peer("north")) as north:
            north.send(hello("north"))
            assert north.hears(Types.READY)
    monkeypatch.setattr(rate_limit, "MINUTE", 60.0)
    with closing(server.peer("north")) as north:
        assert north.ended.wait(LONG)
    assert dropped(tmp_path) == [("north", "it has made more than 60 connections within a minute")]


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (hello("north", more=[[]] * 1_000_000), "it is no message, and longer than what is none"),
        (hello("north", more=[[]] * 100), "it introduces itself by more than its name"),
        (hello("n" * 1000), "it introduces itself by more than its name"),
        (hello("north\nERROR all is lost"), "it introduces itself by more than its name"),
        (frame(Types.HELLO, payload=b"\xc1"), "it introduces itself in a way that cannot be read"),
        (frame(Types.HELLO, {"a": 1}), "it is no message, and longer than what is none"),
        (frame(2), "it is a frame of an unknown kind"),
        (frame(Types.PING, payload=bytes(10_000)), "it is no message, and longer than what is none"),
        (b"short", "it is shorter than any frame"),
        (hello("north") + b"more", "it is not as long as it says"),
        (frame(Types.DATA, SITE_BEAT), "it sends a message before it has introduced itself"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_introduction_leaves_nothing_behind(server: Process, tmp_path: Path, told: bytes, why: str) -> None:
    with closing(server.peer("north")) as north:
        north.send(told)
        assert eventually(lambda: dropped(tmp_path))
        assert not server.manager.sfm_endpoints
        north.send(hello("north"))
        assert north.hears(Types.READY)
        assert list(server.manager.sfm_endpoints) == ["north"]
        north.send(hello("north.other"))  # ever other names would all be kept
        north.send(frame(Types.DATA, SITE_BEAT))
        assert eventually(lambda: server.got)
    assert list(server.manager.sfm_endpoints) == ["north"]
    assert dropped(tmp_path) == [("north", why), ("north", "it introduces itself twice on one connection")]


def test_messages_at_which_flare_would_wait_take_none_of_its_threads(server: Process, tmp_path: Path) -> None:
    """Each held a thread for half a minute and more, and there are a hundred."""
    with closing(server.peer("north")) as north:
        north.send(hello("north"))
        for name in (MessageHeaderKey.SECURE, MessageHeaderKey.ENCRYPTED):
            for _ in range(200):
                north.send(frame(Types.DATA, {**SITE_BEAT, name: True}, b"x"))
        north.send(frame(Types.DATA, SITE_BEAT))
        assert eventually(lambda: server.got)
    assert [message.headers for message in server.got] == [SITE_BEAT]
    assert dropped(tmp_path) == [("north", "it is encrypted, as no message of a federation is: its connection is")]


def test_what_a_site_does_not_read_is_not_kept(server: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flare_gate, "_UNREAD", 1 << 20)
    with closing(server.peer("north", read=False)) as north:
        north.send(hello("north"))
        assert eventually(lambda: server.manager.sfm_endpoints.get("north"))
        endpoint = server.manager.find_endpoint("north")

        def send() -> None:
            for _ in range(1000):
                server.manager.send_message(endpoint, 1, {}, bytes(1 << 16))

        with pytest.raises(CommError, match="does not read"):
            send()
        assert eventually(lambda: not server.manager.sfm_conns)


@pytest.fixture
def site(certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    """North's own process, to which its process of a job connects within the machine."""
    guarded(monkeypatch, SiteGate(tmp_path, "north"))
    process = Process(certificates, "north", "north", TcpDriver(), "stcp")
    yield process
    process.close()


def local(certificates: Path, name: str, port: int) -> ssl.SSLSocket:
    """A connection within the machine, with this certificate."""
    context = ssl.create_default_context(cafile=str(certificates / ROOT))
    context.check_hostname = False
    context.load_cert_chain(certificates / f"{name}.crt", certificates / f"{name}.key")
    secured = context.wrap_socket(socket.create_connection((SERVER, port), LONG))
    secured.sendall(hello(f"{name}.job"))
    return secured


def test_somebody_who_says_nothing_keeps_nobody_out(site: Process, certificates: Path) -> None:
    """FLARE shook hands in the one thread that takes connections, and no job's process could connect any more."""
    silent = [socket.create_connection((SERVER, site.port), LONG) for _ in range(3)]
    with closing(local(certificates, "north", site.port)) as own:
        assert own.recv(1 << 16)[6] == Types.READY
    for connection in silent:
        connection.close()


def test_handshakes_that_are_not_made_are_given_up(site: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flare_gate, "_HANDSHAKE", 0.2)
    with closing(socket.create_connection((SERVER, site.port), LONG)) as silent:
        assert silent.recv(1) == b""


def test_more_files_may_be_open_than_one_can_ask_about_at_once(site: Process, certificates: Path) -> None:
    """FLARE asks whether it can write to a connection in a way that knows 1,024 files."""
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, most), most))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with closing(local(certificates, "north", site.port)) as own:
            assert own.fileno() > 1024
            assert own.recv(1 << 16)[6] == Types.READY
    finally:
        for one in held:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))


def test_no_other_certificate_of_the_federation_is_good_within_a_site(
    site: Process, certificates: Path, tmp_path: Path
) -> None:
    """A site's certificate on another site's machine; and no answer of the site's lets the server accuse it."""
    with closing(local(certificates, "south", site.port)) as other:
        assert other.recv(1 << 16) == b""
    assert eventually(lambda: dropped(tmp_path))
    assert dropped(tmp_path) == [("south", "only this site's own processes connect here")]
    assert not site.manager.sfm_endpoints


def test_a_process_without_a_gate_ends_at_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLARE's own script to start a kit knows of none."""
    ends: list[int] = []
    monkeypatch.setattr(os, "_exit", ends.append)
    monkeypatch.setattr(flare_gate, "_gates", [])
    NeedsGate().handle_event(EventType.START_RUN, None)
    assert not ends
    NeedsGate().handle_event(EventType.SYSTEM_START, None)
    assert ends == [1]
    guarded(monkeypatch, SiteGate(Path(), "north"))
    NeedsGate().handle_event(EventType.SYSTEM_START, None)
    assert ends == [1]
