"""How messages go through FLARE's cells: which way, in whose name, and what comes of it where nobody answers."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import MagicMock, call

import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

from nvflare.fuel.f3.cellnet.defs import ALL_RETURN_CODES, MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.comm_config import CommConfigurator
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.stream_const import StreamHeaderKey

from fedlin.errors import WireError
from fedlin.transports import flare, flare_messages
from fedlin.transports.flare import FlareServer, JobAbortedError
from fedlin.transports.flare_job import JobPlace
from fedlin.transports.flare_messages import (
    ANSWER,
    CHANNEL,
    ENDED,
    FETCH,
    INTRODUCE,
    NOTHING,
    OVER,
    READY,
    SERVER,
    SHORT,
    UNABLE,
    Messenger,
    Sealed,
)
from fedlin.transports.message_limit import LARGEST_FRAME

JOB = "job-1"
LONG_AGO = b"12345678"  # as long as a token, and none
SHORTEST, LONGER = b"8 bytes.", b"9 bytes.."  # with the limit that the tests set


class Sent(NamedTuple):
    """What a messenger asked its cell to send."""

    way: str
    channel: str
    topic: str
    target: str
    payload: bytes
    timeout: float
    optional: bool


class Core:
    """What sends a request as one message."""

    def __init__(self, cell: "Cell") -> None:
        self._cell = cell

    def send_request(self, **request: Any) -> Message:
        return self._cell.deliver("one", **request)

    def fire_and_forget(self, *, channel: str, topic: str, targets: str, message: Message) -> None:
        self._cell.told.append((channel, topic, targets, message.payload))


class Cell:
    """FLARE's cell of one process: it hands requests to the others in the same net, and tells what FLARE would."""

    def __init__(self, name: str, net: dict[str, "Cell"]) -> None:
        self.name = name
        self.core_cell = Core(self)
        self.sent: list[Sent] = []
        self.replies: list[Message] = []
        self.told: list[tuple[str, str, str, bytes]] = []  # to whom no reply is expected
        self.failing: dict[str, str] = {}  # what FLARE returns for messages of a topic, in place of a reply
        self.form: Callable[[bytes], object] = bytes  # how payloads arrive
        self._callbacks: dict[tuple[str, str], Callable[[Message], Message]] = {}
        self.net = net
        net[name] = self

    def register_request_cb(self, *, channel: str, topic: str, cb: Callable[[Message], Message]) -> None:
        self._callbacks[channel, topic] = cb

    def send_request(self, *, request: Message, **more: Any) -> Message:
        request.set_header(StreamHeaderKey.STREAM_REQ_ID, "a stream")
        return self.deliver("streamed", request=request, **more)

    def deliver(
        self, way: str, *, channel: str, topic: str, target: str, request: Message, timeout: float, optional: bool
    ) -> Message:
        self.sent.append(Sent(way, channel, topic, target, request.payload, timeout, optional))
        if topic in self.failing:
            return make_reply(self.failing[topic])
        if target not in self.net:
            return make_reply(ReturnCode.TARGET_UNREACHABLE)
        answer = self.net[target]._callbacks.get((channel, topic))
        if answer is None:
            return make_reply(ReturnCode.PROCESS_EXCEPTION)
        reply = answer(Message({**request.headers, MessageHeaderKey.ORIGIN: self.name}, self.form(request.payload)))
        self.replies.append(Message(dict(reply.headers), self.form(reply.payload)))
        return self.replies[-1]


class Pair:
    """The server and site a, which says `reply` to everything."""

    def __init__(self) -> None:
        net: dict[str, Cell] = {}
        self.cell, self.other = Cell(f"{SERVER}.{JOB}", net), Cell(f"a.{JOB}", net)
        self.server, self.site = Messenger(self.cell, JOB), Messenger(self.other, JOB)
        self.reply = Sealed(b"reply", b"its code")
        self.came: list[tuple[str, str, Sealed]] = []
        self.site.serve(ANSWER, self.answer)
        self.site.serve(INTRODUCE, self.answer)

    def answer(self, caller: str, phase: str, message: Sealed) -> Sealed:
        self.came.append((caller, phase, message))
        return self.reply

    def ask(self, payload: bytes = b"1", timeout: float = 60) -> Sealed:
        return self.server.send("a", ANSWER, Sealed(payload, b"code"), timeout, "x")

    def fetch(self, token: object) -> Message:
        """Ask for what was kept, as whoever runs software of its own may."""
        headers: dict[str, object] = {"fedlin_phase": "x", "fedlin_code": token}
        to = {"channel": CHANNEL, "target": f"a.{JOB}", "timeout": 60.0, "optional": True}
        return self.cell.send_request(topic=FETCH, request=Message(headers, b""), **to)

    def send_as(self, name: str, topic: str, payload: bytes) -> Sealed:
        """The server's reply to a cell of this name."""
        return Messenger(Cell(name, {**self.cell.net}), JOB).send(SERVER, topic, Sealed(payload), 60)

    def ways(self) -> list[tuple[str, str]]:
        """How the server's messages went, and forget it."""
        ways = [(sent.way, sent.topic) for sent in self.cell.sent]
        self.cell.sent.clear()
        return ways


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Pair:
    monkeypatch.setattr(flare_messages, "SHORT", len(SHORTEST))
    return Pair()


def test_a_participants_process_is_named_after_it_and_the_job(pair: Pair) -> None:
    assert (pair.server.name("a"), pair.site.name(SERVER)) == (pair.other.name, pair.cell.name)
    assert Messenger(pair.cell, "job-2").name("a") == "a.job-2"


def test_phase_code_and_origin_arrive_as_they_were_sent(pair: Pair) -> None:
    assert pair.server.send("a", ANSWER, Sealed(b"1", b"code"), 60, "phase") == Sealed(b"reply", b"its code")
    assert pair.server.send("a", INTRODUCE, Sealed(LONGER), 60) == Sealed(b"reply", b"its code")
    assert pair.came == [
        (f"server.{JOB}", "phase", Sealed(b"1", b"code")),
        (f"server.{JOB}", "", Sealed(LONGER, b"")),
    ]
    pair.server.serve(READY, lambda caller, phase, message: Sealed(caller.encode() + message.payload))
    assert pair.site.send(SERVER, READY, Sealed(b"!"), 60) == Sealed(f"a.{JOB}!".encode(), b"")


def test_what_is_sent_is_for_one_process_in_the_time_that_was_given(pair: Pair) -> None:
    """And FLARE writes no error into its log where nobody is there."""
    for payload, way in ((b"1", "one"), (LONGER, "streamed")):
        pair.ask(payload, 7.5)
        assert pair.cell.sent.pop() == Sent(way, CHANNEL, ANSWER, f"a.{JOB}", payload, 7.5, True)


def test_topics_do_not_get_in_each_others_way(pair: Pair) -> None:
    topics = (READY, ENDED, INTRODUCE, ANSWER)
    assert len({*topics, FETCH}) == 5
    for topic in topics:
        pair.site.serve(topic, lambda caller, phase, message, topic=topic: Sealed(topic.encode()))  # type: ignore[misc]
    for topic in topics:
        assert pair.server.send("a", topic, NOTHING, 60).payload == topic.encode()


def test_a_short_message_goes_as_one_and_a_longer_one_is_streamed(pair: Pair) -> None:
    assert len(LONGER) == len(SHORTEST) + 1
    pair.ask(SHORTEST)
    assert pair.ways() == [("one", ANSWER)]
    pair.ask(LONGER)
    assert pair.ways() == [("streamed", ANSWER)]
    assert [message.payload for _, _, message in pair.came] == [SHORTEST, LONGER]


def test_what_goes_as_one_message_is_taken_by_connections_and_by_flare() -> None:
    assert min(LARGEST_FRAME, CommConfigurator().get_max_message_size()) > SHORT + (1 << 20)


def test_a_long_reply_is_kept_until_it_is_fetched(pair: Pair) -> None:
    pair.reply = Sealed(LONGER, b"its code")
    for request in (b"1", SHORTEST):
        assert pair.ask(request) == pair.reply
        assert pair.ways() == [("one", ANSWER), ("streamed", FETCH)]
        announced, fetched = pair.cell.replies[-2:]
        assert (announced.payload, fetched.payload) == (b"", LONGER)
    pair.reply = Sealed(SHORTEST, b"its code")
    assert pair.ask() == pair.reply
    assert pair.ways() == [("one", ANSWER)]
    assert len(pair.came) == 3  # no fetch was taken for a request


def test_a_long_reply_to_a_streamed_request_comes_at_once(pair: Pair) -> None:
    pair.reply = Sealed(LONGER * 3, b"its code")
    assert pair.ask(LONGER) == pair.reply
    assert pair.ways() == [("streamed", ANSWER)]


def test_fetching_is_given_the_time_of_the_request(pair: Pair) -> None:
    pair.reply = Sealed(LONGER)
    pair.ask(timeout=7.5)
    assert pair.cell.sent[-1] == Sent("streamed", CHANNEL, FETCH, f"a.{JOB}", b"", 7.5, True)


@pytest.fixture
def kept(pair: Pair) -> bytes:
    """The token of a reply that was kept and not fetched, since nobody could reach the site any more."""
    pair.reply = Sealed(LONGER, b"its code")
    pair.cell.failing = {FETCH: ReturnCode.TIMEOUT}
    with pytest.raises(TimeoutError):
        pair.ask()
    pair.cell.failing = {}
    token: bytes = pair.cell.replies[-1].get_header("fedlin_kept")
    assert len(token) == len(LONG_AGO)
    return token


def test_a_kept_reply_is_fetched_once_and_by_its_token_alone(pair: Pair, kept: bytes) -> None:
    for wrong in (LONG_AGO, b"", None, kept.hex(), kept[:-1], 0):
        assert pair.fetch(wrong).payload == b""
    found = pair.fetch(kept)
    assert (found.payload, found.get_header("fedlin_code")) == (LONGER, b"its code")
    for token in (kept, b"", None):
        again = pair.fetch(token)
        assert (again.payload, again.get_header("fedlin_code")) == (b"", b"")


def test_the_latest_long_reply_alone_is_kept(pair: Pair, kept: bytes) -> None:
    pair.reply = Sealed(LONGER * 2, b"a later code")
    assert pair.ask() == pair.reply
    assert pair.fetch(kept).payload == b""


def test_no_two_replies_are_kept_under_one_token(pair: Pair) -> None:
    pair.reply = Sealed(LONGER)
    for _ in range(20):
        pair.ask()
    tokens = [reply.get_header("fedlin_kept") for reply in pair.cell.replies]
    assert len({token for token in tokens if token}) == 20


@pytest.mark.parametrize("failing", [ANSWER, FETCH])
@pytest.mark.parametrize("payload", [b"1", LONGER], ids=["one", "streamed"])
@pytest.mark.parametrize("status", [code for code in ALL_RETURN_CODES if code != ReturnCode.OK])
def test_what_flare_returns_in_place_of_a_reply_is_an_error(
    pair: Pair, status: str, payload: bytes, failing: str
) -> None:
    """Nobody answered in time, nobody is there, or something else that names the participant and what FLARE said."""
    pair.reply = Sealed(LONGER)
    pair.cell.failing = {failing: status}
    errors: dict[str, tuple[type[Exception], str]] = {
        ReturnCode.TIMEOUT: (TimeoutError, ""),
        ReturnCode.COMM_ERROR: (ConnectionError, f"a.{JOB} is not there"),
        ReturnCode.TARGET_UNREACHABLE: (ConnectionError, f"a.{JOB} is not there"),
    }
    kind, text = errors.get(status, (WireError, f"a failed with {status}; its own log tells why."))
    if failing == FETCH and payload == LONGER:  # nothing is left to fetch
        assert pair.ask(payload) == pair.reply
        return
    with pytest.raises(kind) as raised:
        pair.ask(payload)
    assert (type(raised.value), str(raised.value)) == (kind, text)


def test_who_is_not_there_or_does_not_listen_is_told_apart(pair: Pair) -> None:
    with pytest.raises(ConnectionError):
        pair.server.send("b", ANSWER, NOTHING, 60)
    with pytest.raises(WireError, match="a failed with process_exception"):
        pair.server.send("a", READY, NOTHING, 60)


FORMS: dict[str, Callable[[bytes], object]] = {
    "bytes": bytes,
    "bytearray": bytearray,
    "view": memoryview,
    "parts": lambda payload: [payload[:3], bytearray(payload[3:5]), memoryview(payload[5:])],
    "one part": lambda payload: [payload],
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("payload", [b"", SHORTEST, LONGER], ids=["nothing", "short", "long"])
def test_payloads_are_bytes_however_flare_hands_them_over(
    pair: Pair, payload: bytes, form: Callable[[bytes], object]
) -> None:
    pair.cell.form = form
    pair.reply = Sealed(payload, b"its code")
    found = pair.ask(payload)
    ((_, _, came),) = pair.came
    assert (found, came) == (pair.reply, Sealed(payload, b"code"))
    assert (type(found.payload), type(came.payload)) == (bytes, bytes)


@pytest.mark.parametrize("nothing", [None, []], ids=["None", "no parts"])
def test_a_payload_that_flare_left_out_is_empty(pair: Pair, nothing: object) -> None:
    pair.cell.form = lambda payload: nothing
    pair.reply = NOTHING
    assert pair.ask() == NOTHING
    ((_, _, came),) = pair.came
    assert came == Sealed(b"", b"code")


def test_a_message_without_our_headers_has_no_code(pair: Pair) -> None:
    """FLARE's own process at the server writes none."""
    bare = {"channel": CHANNEL, "target": f"a.{JOB}", "timeout": 60.0, "optional": True}
    reply = pair.cell.core_cell.send_request(topic=ANSWER, request=Message({}, b"1"), **bare)
    ((caller, _, came),) = pair.came
    assert (caller, came) == (f"server.{JOB}", Sealed(b"1", b""))
    assert reply.get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.OK


class Server(NamedTuple):
    """What the server's component told FLARE and its transport."""

    component: FlareServer
    context: MagicMock
    engine: MagicMock
    transport: MagicMock


@pytest.fixture
def server(pair: Pair, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Server:
    """The server's component, over the server's cell."""
    place = JobPlace("host", tmp_path, JOB, "sent", pair.cell)
    (tmp_path / "startup").mkdir()
    (tmp_path / "startup" / "rootCA.pem").write_bytes(b"")
    for name, value in (("job_place", lambda context: place), ("open_log", lambda kit: None), ("program_module", str)):
        monkeypatch.setattr(flare, name, value)
    component, context, transport = FlareServer(), MagicMock(), MagicMock()
    component.start_controller(context)
    component.transport = transport
    return Server(component, context, context.get_engine(), transport)


def test_the_server_takes_word_of_a_site_from_its_process_of_the_job_alone(server: Server, pair: Pair) -> None:
    for name in ("a", "a.job-2", f"a.{JOB}.b", f"b.a.{JOB}", ""):
        assert pair.send_as(name, READY, b"identity") == NOTHING
    server.transport.ready.assert_not_called()
    for name in "ab":
        assert pair.send_as(f"{name}.{JOB}", READY, name.encode()) == NOTHING
    assert server.transport.ready.call_args_list == [call("a", b"a"), call("b", b"b")]


def test_word_of_a_process_is_short(server: Server, pair: Pair) -> None:
    for sender, topic, longest in ((f"a.{JOB}", READY, 1 << 10), (SERVER, ENDED, 1 << 10), (SERVER, UNABLE, 4 << 10)):
        taken = getattr(server.transport, topic)
        assert pair.send_as(sender, topic, b"a" * (longest + 1)) == NOTHING
        taken.assert_not_called()
        assert pair.send_as(sender, topic, b"a" * longest) == NOTHING
        taken.assert_called_once()


@pytest.mark.parametrize("payload", [None, "word", 10**9, [b"word"], [[]] * 100, {b"word": b""}], ids=type)
def test_what_is_no_bytes_is_no_word(server: Server, pair: Pair, payload: object) -> None:
    """FLARE makes anything of what says that it is encoded so, and to put it together may take any room."""
    sender = Cell(f"a.{JOB}", {**pair.cell.net})
    sender.form = lambda sent: payload
    to = {"channel": CHANNEL, "target": pair.cell.name, "timeout": 60.0, "optional": True}
    reply = sender.core_cell.send_request(topic=READY, request=Message({}, b""), **to)
    assert reply.get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.OK
    server.transport.ready.assert_not_called()


def test_the_server_asks_who_takes_part_where_a_site_has_registered_anew(server: Server, pair: Pair) -> None:
    """What the job's process was told at its start does not name the site, or not as it is registered now."""
    for again, known, times in ((False, True, 0), (True, True, 1), (False, False, 2), (True, False, 3)):
        server.transport.ready.return_value = again
        server.engine.get_client_from_name.return_value = object() if known else None
        assert pair.send_as(f"a.{JOB}", READY, b"identity") == NOTHING
        assert server.engine.sync_clients_from_main_process.call_count == times


def test_flares_own_process_at_the_server_alone_tells_who_has_ended(server: Server, pair: Pair) -> None:
    for name in ("a", f"a.{JOB}", f"{SERVER}.b", ""):
        assert pair.send_as(name, ENDED, b"b") == NOTHING
    server.transport.ended.assert_not_called()
    assert pair.send_as(SERVER, ENDED, b"b") == NOTHING
    server.transport.ended.assert_called_once_with("b")


@pytest.mark.parametrize("error", [None, ZeroDivisionError(), JobAbortedError(), SystemExit()], ids=repr)
def test_however_the_program_ends_flares_own_process_hears_of_it(
    server: Server, pair: Pair, monkeypatch: pytest.MonkeyPatch, error: BaseException | None
) -> None:
    run = MagicMock(side_effect=error)
    monkeypatch.setattr(flare, "program", lambda: run)
    with nullcontext() if error is None else pytest.raises(type(error)):  # which ends the job as one that failed
        server.component.control_flow(None, server.context)
    run.assert_called_once_with(server.transport, str(server.component.place.kit), "sent")
    assert pair.cell.told == [(CHANNEL, OVER, SERVER, JOB.encode())]
    server.transport.close.assert_called_once_with()
