"""What the server's process lets through of what participants send, by the certificate of the connection it came on."""

import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, MessageType
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_ACK_TOPIC,
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    STREAM_ERROR_TOPIC,
    StreamDataType,
    StreamHeaderKey,
)
from nvflare.private.defs import CellMessageHeaderKeys

from fedlin.audit import AuditTrail
from fedlin.transports.flare_server_gate import ServerGate
from fedlin.transports.message_limit import write_limit

HOST, ADMIN = "fl.example.org", "admin@fedlin.local"
SESSION = f"_admin_{uuid4()}"  # what FLARE calls a process of its users
SENT: dict[str, Any] = {"CHANNEL": "fedlin", "TOPIC": "ready"}  # what every site's process of a job sends
LONG: dict[str, Any] = {"INNER_CHANNEL": "return_only", "INNER_TOPIC": "fedlin:answer"}  # and a long answer of it
STREAM: dict[str, Any] = {"CHANNEL": STREAM_CHANNEL, "TOPIC": STREAM_DATA_TOPIC, **LONG}  # where FLARE sends parts
ACK: dict[str, Any] = {"CHANNEL": STREAM_CHANNEL, "TOPIC": STREAM_ACK_TOPIC}
ERROR: dict[str, Any] = {"CHANNEL": STREAM_CHANNEL, "TOPIC": STREAM_ERROR_TOPIC}
BEAT: dict[str, Any] = {"CHANNEL": "task", "TOPIC": "heart_beat"}  # what every site's own process sends
SITE, JOB = ("south", "server"), ("south.job", "server.job")
SITE_TO_JOB, JOB_TO_SITE = ("south", "server.job"), ("south.job", "server")


def message(origin: str, destination: str, length: int = 0, **headers: Any) -> Message:
    """As the sender wrote it."""
    made = Message({MessageHeaderKey.ORIGIN: origin, MessageHeaderKey.DESTINATION: destination}, bytes(length))
    made.set_header(MessageHeaderKey.MSG_TYPE, MessageType.REQ)
    for name, value in headers.items():
        of_stream = name.removeprefix("INNER_")  # a message and a stream both have a channel and a topic
        key = None if name != of_stream else getattr(MessageHeaderKey, name, None)
        made.set_header(key or getattr(StreamHeaderKey, of_stream), value)
    return made


class Gated:
    """A gate with the settings of a run with north and south, and what it has dropped."""

    def __init__(self, kit: Path) -> None:
        self.kit = kit
        self.set_sites("north", "south")
        write_limit(kit, 1000)
        self.gate = ServerGate(kit, HOST)

    def set_sites(self, *names: str) -> None:
        path = self.kit / "federation.toml"
        path.write_text("[sites]\n" + "".join(f"{name} = {{ tau = 1, eta = 0.1 }}\n" for name in names))
        os.utime(path, (len(names), len(names)))  # another time, on any disk

    def passes(self, sender: str, *arguments: Any, **headers: Any) -> bool:
        return self.gate.passes(sender, message(*arguments, **headers))

    def reasons(self) -> list[str]:
        return [entry.facts["why"] for entry in AuditTrail(self.kit).entries()]


@pytest.fixture
def gated(tmp_path: Path) -> Gated:
    return Gated(tmp_path)


def test_a_site_reaches_the_server_in_its_own_name(gated: Gated) -> None:
    assert gated.passes("south", *SITE, **BEAT)
    assert gated.passes("south", *JOB, **SENT)
    assert gated.passes(HOST, "server.job", "north.job", **SENT)
    assert not gated.passes("south", "south.job", "north.job", **SENT)
    assert not gated.passes("south", "server.job", "north.job", **SENT)
    assert not gated.passes("south", "north.job", "server.job", **SENT)
    assert not gated.passes("south", "server", "server.job", **SENT)
    assert not gated.passes("south", "south.job", "server.other", **SENT)
    assert gated.reasons() == [
        "it is for north.job, and sites reach the server alone",
        "it is for north.job in the name of server.job, and sites reach the server alone",
        "it is in the name of north.job",
        "it is in the name of server",
        "it is from south.job for server.other, between which nothing is sent",
    ]


@pytest.mark.parametrize(
    ("ends", "channel", "topic"),
    [
        *((SITE, "task", topic) for topic in ("challenge", "register", "heart_beat", "quit", "report_job_failure")),
        (SITE, "cellnet.channel", "bye"),
        (JOB_TO_SITE, "cellnet.channel", "bye"),
        (JOB, "fedlin", "ready"),
    ],
)
def test_what_sites_send_passes(gated: Gated, ends: tuple[str, str], channel: str, topic: str) -> None:
    assert gated.passes("south", *ends, CHANNEL=channel, TOPIC=topic)


@pytest.mark.parametrize(
    ("ends", "channel", "topic"),
    [
        (SITE, "_net_manager", "stop_cell"),
        (SITE, "task", "submit_result"),
        (SITE, "task", "Register"),
        (SITE, "server_command", "get_task"),
        *((SITE, "server_parent_listener", topic) for topic in ("get_clients", "update_run_status", "heartbeat")),
        (SITE, "hci_channel", "command"),
        (SITE, "cellnet.channel", "bulk"),
        (SITE, "credential_manager", "key_exchange"),
        (SITE, "fedlin", "ready"),
        (JOB_TO_SITE, "task", "heart_beat"),
        (SITE_TO_JOB, "fedlin", "ready"),
        (SITE_TO_JOB, "server_command", "abort"),
        *((JOB, "server_command", topic) for topic in ("abort", "submit_update", "handle_dead_job", "*", "get_task")),
        (JOB, "aux_communication", "fed.event"),
        (JOB, "cellnet.channel", "bulk"),
        (JOB, "download_service__", "download_service__download"),
        (JOB, "fedlin", "ended"),
        (JOB, "fedlin", "fetch"),
        (JOB, "FEDLIN", "ready"),
        (JOB, "fedlin:ready", ""),
        (JOB, None, None),
        (JOB, b"fedlin", b"ready"),
    ],
)
def test_what_no_site_sends_is_dropped(gated: Gated, ends: tuple[str, str], channel: Any, topic: Any) -> None:
    assert not gated.passes("south", *ends, CHANNEL=channel, TOPIC=topic)
    assert gated.reasons() == [f"it is {channel}:{topic} for {ends[1]}, which no site sends"]


@pytest.mark.parametrize("kind", ["REQ", "request", None], ids=repr)
def test_what_is_neither_request_nor_reply_is_dropped(gated: Gated, kind: Any) -> None:
    assert not gated.passes("south", *JOB, **SENT, MSG_TYPE=kind)
    assert gated.reasons() == ["it is fedlin:ready for server.job, which no site sends"]


def test_replies_pass_to_whoever_waits_for_them(gated: Gated) -> None:
    """FLARE gives to nobody else what says that it is a reply, whatever channel and topic it says."""
    assert gated.passes("south", *SITE, MSG_TYPE=MessageType.REPLY, CHANNEL="admin", TOPIC="admin")
    assert gated.passes("south", *JOB, MSG_TYPE=MessageType.REPLY, CHANNEL="fedlin", TOPIC="answer")
    assert not gated.passes("south", "south.job", "north.job", MSG_TYPE=MessageType.REPLY)
    assert not gated.passes("south", "north.job", "server.job", MSG_TYPE=MessageType.REPLY)


def test_replies_that_nobody_waits_for_are_dropped(gated: Gated) -> None:
    """FLARE counts each of another kind, and writes a line about it."""
    for ends, channel, topic in (
        (SITE, "fedlin", "answer"),
        (JOB, "admin", "admin"),
        (JOB, "c", "t"),
        (JOB, None, None),
    ):
        assert not gated.passes("south", *ends, MSG_TYPE=MessageType.REPLY, CHANNEL=channel, TOPIC=topic)


def test_a_site_registers_under_no_other_name(gated: Gated) -> None:
    """FLARE's token proves a name and a number written one after the other, wherever the name ends."""
    for name, passes in (("south", True), ("sout", False), ("north", False), ("", False)):
        made = message(*SITE, **BEAT)
        made.set_header(CellMessageHeaderKeys.CLIENT_NAME, name)
        assert gated.gate.passes("south", made) == passes
    assert gated.reasons() == [f"it says that its sender is {name}" for name in ("sout", "north", "")]


@pytest.mark.parametrize("encoding", ["fobs", "other", ""])
def test_what_fedlin_is_sent_is_not_decoded(gated: Gated, encoding: str) -> None:
    """A megabyte can be one of FLARE's objects that takes a thousand."""
    part = {"STREAM_ID": 7, "SEQUENCE": 0, "DATA_TYPE": StreamDataType.FINAL, **STREAM}
    replied = {"MSG_TYPE": MessageType.REPLY, "CHANNEL": "fedlin", "TOPIC": "answer"}
    assert not gated.passes("south", *JOB, 10, **SENT, PAYLOAD_ENCODING=encoding)
    assert not gated.passes("south", *JOB, 10, **replied, PAYLOAD_ENCODING=encoding)
    assert not gated.passes("south", *JOB, 10, **part, INNER_PAYLOAD_ENCODING=encoding)
    assert gated.passes("south", *JOB, 10, **SENT, PAYLOAD_ENCODING="bytes")
    assert gated.passes("south", *JOB, 10, **part, INNER_PAYLOAD_ENCODING="bytes")


def test_what_flare_decodes_of_a_site_s_is_short(gated: Gated) -> None:
    write_limit(gated.kit, 1 << 30)
    for length, passes in ((1000, True), (100_000, False)):
        assert gated.passes("south", *SITE, length, **BEAT, PAYLOAD_ENCODING="fobs") == passes
        asked = {"MSG_TYPE": MessageType.REPLY, "CHANNEL": "admin", "TOPIC": "admin"}
        assert gated.passes("south", *SITE, length, **asked, PAYLOAD_ENCODING="fobs") == passes
    stream = {**STREAM, "INNER_CHANNEL": "server_command", "INNER_TOPIC": "get_task", "INNER_PAYLOAD_ENCODING": "fobs"}
    one: dict[str, Any] = {"SEQUENCE": 0, "DATA_TYPE": StreamDataType.FINAL}
    assert gated.passes("south", *JOB, 1000, **stream, **one, STREAM_ID=1)
    assert not gated.passes("south", *JOB, 100_000, **stream, **one, STREAM_ID=2)
    assert not gated.passes("south", *JOB, 1000, **stream, **{**one, "DATA_TYPE": StreamDataType.CHUNK}, STREAM_ID=3)
    assert not gated.passes("south", *JOB, 1000, **stream, **{**one, "SEQUENCE": 1}, STREAM_ID=4)
    assert not gated.passes("south", *JOB, 2000, **SENT)  # word that it is there
    assert not gated.passes("south", *JOB, 2000, **ACK)


def test_no_part_of_a_message_is_decoded(gated: Gated) -> None:
    """By a header of its own, which FLARE reads before that of the stream, or in what says that it was returned."""
    part = {"STREAM_ID": 7, "SEQUENCE": 0, "DATA_TYPE": StreamDataType.FINAL, **STREAM}
    returned = {"MSG_TYPE": MessageType.RETURN, "ORIGINAL_HEADERS": {MessageHeaderKey.DESTINATION: "south.job"}}
    for sent in (part, {**part, **ACK}, {**returned, **ERROR}, {**returned, "INNER_CHANNEL": "fedlin"}):
        assert not gated.passes("south", *JOB, 10, **sent, PAYLOAD_ENCODING="fobs")
    assert gated.reasons() == ["it is to be decoded, as no part of a message is"]
    assert gated.passes("south", *JOB, 10, **part, PAYLOAD_ENCODING="bytes")
    assert gated.passes("south", *JOB, 0, **returned, PAYLOAD_ENCODING="none")
    assert not gated.passes("south", *JOB, 2000, **returned)


def test_only_members_connect(gated: Gated) -> None:
    for peer in ("north", "south", HOST, ADMIN):
        assert gated.gate.stranger(peer) is None
    assert gated.gate.stranger("west") == "it is not a site of this federation"
    assert gated.gate.stranger(None) == "its certificate has no name"
    gated.set_sites("north")
    assert gated.gate.stranger("south") == "it is not a site of this federation"
    (gated.kit / "federation.toml").unlink()
    assert gated.gate.stranger("south") == "it is not a site of this federation"  # those of before
    assert ServerGate(gated.kit, HOST).stranger("south") is None  # before its first run a server knows nobody


def test_a_site_tells_only_of_its_own_processes_that_they_cannot_be_reached(gated: Gated) -> None:
    def tells(request: Any) -> bool:
        return gated.passes("south", *SITE_TO_JOB, MSG_TYPE=MessageType.RETURN, ORIGINAL_HEADERS=request)

    assert tells({MessageHeaderKey.DESTINATION: "south.job"})
    for request in ({MessageHeaderKey.DESTINATION: "north.job"}, {MessageHeaderKey.DESTINATION: 1}, {}, None, "south"):
        assert not tells(request)
    assert gated.reasons() == ["it says that a message to somebody else could not be delivered"]


@pytest.mark.parametrize(
    ("channel", "topic"),
    [
        ("server_command", "get_task"),
        ("aux_communication", "__sync_runner__"),
        ("aux_communication", "__job_heartbeat__"),
        ("return_only", "fedlin:answer"),
        ("return_only", "fedlin:fetch"),
    ],
)
def test_what_sites_stream_passes(gated: Gated, channel: str, topic: str) -> None:
    part = {**STREAM, "INNER_CHANNEL": channel, "INNER_TOPIC": topic, "STREAM_ID": 7, "SEQUENCE": 0}
    assert gated.passes("south", *JOB, DATA_TYPE=StreamDataType.FINAL, **part)
    for ends in (SITE, SITE_TO_JOB, JOB_TO_SITE):
        assert not gated.passes("south", *ends, DATA_TYPE=StreamDataType.FINAL, **part)


@pytest.mark.parametrize(
    ("channel", "topic"),
    [
        ("server_command", "abort"),
        ("server_command", "submit_update"),
        ("aux_communication", "fed.event"),
        ("aux_communication", "__task_check__"),
        ("fedlin", "ready"),
        ("return_only", "reply"),
        ("return_only:fedlin", "answer"),
        (STREAM_CHANNEL, STREAM_DATA_TOPIC),
        (None, None),
    ],
)
def test_what_no_site_streams_is_dropped(gated: Gated, channel: Any, topic: Any) -> None:
    part = {**STREAM, "INNER_CHANNEL": channel, "INNER_TOPIC": topic, "STREAM_ID": 7, "SEQUENCE": 0}
    for kind in (StreamDataType.FINAL, StreamDataType.CHUNK, StreamDataType.ERROR):
        assert not gated.passes("south", *JOB, DATA_TYPE=kind, **part)
    assert gated.reasons() == [f"it is {channel}:{topic} for server.job, which no site sends"]


def test_receipts_of_streams_pass(gated: Gated) -> None:
    acknowledged = {**ACK, "STREAM_ID": 7, "DATA_TYPE": StreamDataType.ACK}
    assert gated.passes("south", *JOB, **acknowledged)
    for ends in (SITE, SITE_TO_JOB, JOB_TO_SITE):
        assert not gated.passes("south", *ends, **acknowledged)
    for topic in ("sm__CERT", "sm__ack", None):
        assert not gated.passes("south", *JOB, **{**acknowledged, "TOPIC": topic})


@pytest.mark.parametrize("kind", [ACK, ERROR], ids=["acknowledgement", "error"])
def test_no_error_of_a_stream_ends_the_server_s_process(gated: Gated, kind: dict[str, Any]) -> None:
    """FLARE ends it where a site says that what it was sent is too large."""
    error = {**kind, "STREAM_ID": 7, "DATA_TYPE": StreamDataType.ERROR, "ERROR_MSG": "no more"}
    harmless: list[Any] = [None, "StreamError", "StreamTargetUnreachable", "StreamCancelled"]
    for name in [*harmless, "BlobSizeError", "", "1"]:
        assert gated.passes("south", *JOB, **error, ERROR_TYPE=name) == (name in harmless)
    assert "it says that a stream ended with BlobSizeError, at which the server's process ends too" in gated.reasons()


def test_a_site_tells_only_of_streams_to_itself_that_they_have_ended(gated: Gated) -> None:
    error = {**ERROR, "STREAM_ID": 7, "ERROR_TYPE": "StreamTargetUnreachable", "ERROR_MSG": "no path"}
    assert gated.passes("south", *SITE_TO_JOB, **error, FAILED_DESTINATION="south.job")
    assert not gated.passes("south", *SITE_TO_JOB, **error, FAILED_DESTINATION="north.job")


@pytest.mark.parametrize("name", ["", ".", "south.job.more", "SOUTH"])
def test_names_that_are_none_are_refused(gated: Gated, name: str) -> None:
    assert not gated.passes("south", name, "server.job", **SENT)
    assert not gated.passes("south", "south.job", name, **SENT)


def test_a_former_site_is_not_heard(gated: Gated) -> None:
    """Its certificate is as good as ever; nor is one heard that the authority signed for nobody."""
    assert gated.passes("south", *SITE, **BEAT)
    gated.set_sites("north")
    assert not gated.passes("south", *SITE, **BEAT)
    assert gated.passes("north", "north", "server", **BEAT)
    assert not gated.passes("west", "west", "server", **BEAT)
    assert gated.reasons() == ["it is not a site of this federation"] * 2
    gated.set_sites("north", "south", "west")
    assert gated.passes("south", *SITE, **BEAT)


def test_settings_that_cannot_be_read_change_nothing(gated: Gated) -> None:
    """Somebody may edit the server's copy while a run goes on."""
    assert gated.passes("south", *SITE, **BEAT)
    (gated.kit / "federation.toml").write_text("[broken")
    assert gated.passes("south", *SITE, **BEAT)
    assert not gated.passes("west", "west", "server", **BEAT)
    gated.set_sites("north")
    assert not gated.passes("south", *SITE, **BEAT)


def test_two_machines_under_one_name_are_told(gated: Gated) -> None:
    """Somebody copied a site's folder: both are alive, and FLARE believes the one that came last."""

    def alive(token: str) -> None:
        made = message(*SITE, **BEAT)
        made.set_header(CellMessageHeaderKeys.TOKEN, token)
        assert gated.gate.passes("south", made)

    for token in "aaabab":  # a site that was started again, and a message of before that was late
        alive(token)
    assert not (gated.kit / "audit.jsonl").exists()
    for token in "abab":
        alive(token)
    (entry,) = AuditTrail(gated.kit).entries()
    assert entry.facts["event"] == "two machines"
    assert entry.facts["sender"] == "south"


def test_the_admin_reaches_the_server_and_no_site(gated: Gated) -> None:
    bye = {"CHANNEL": "cellnet.channel", "TOPIC": "bye"}
    assert gated.passes(ADMIN, SESSION, "server", **bye)
    assert not gated.passes(ADMIN, SESSION, "north", **bye)
    assert not gated.passes(ADMIN, SESSION, "server.job", **bye)
    for name in ("server", "north", "north.job", "a1b2", f"{SESSION}.job", ADMIN):
        assert not gated.passes(ADMIN, name, "server", **bye)
        assert not gated.passes(ADMIN, name, "server.job", **SENT)
    assert gated.reasons()[:3] == [
        "it is for north, and users reach the server alone",
        f"it is from {SESSION} for server.job, between which nothing is sent",
        "it is in the name of server",
    ]


def test_what_flare_s_users_send_passes(gated: Gated) -> None:
    sent = [("task", "challenge"), ("task", "register"), ("cellnet.channel", "bye")]
    streamed = [
        ("hci_channel", "command"),
        ("aux_communication", "ObjectStreamer.Request"),
        ("aux_communication", "ObjectStreamer.Abort"),
        ("download_service__", "download_service__download"),
    ]
    other = [("task", "heart_beat"), ("server_parent_listener", "heartbeat"), ("_net_manager", "stop_cell")]
    for channel, topic in sent + streamed + other:
        assert gated.passes(ADMIN, SESSION, "server", CHANNEL=channel, TOPIC=topic) == ((channel, topic) in sent)
        part = {**STREAM, "INNER_CHANNEL": channel, "INNER_TOPIC": topic}
        # a job may be long
        assert gated.passes(ADMIN, SESSION, "server", 10**6, **part) == ((channel, topic) in streamed)
    assert gated.passes(ADMIN, SESSION, "server", **ACK)


def test_what_is_too_long_is_dropped_part_by_part(gated: Gated) -> None:
    """What it says of its length, or what has come of it, whichever is more."""
    long = 2 << 20
    assert not gated.passes("south", *JOB, long, **SENT)
    chunk = {"STREAM_ID": 7, "DATA_TYPE": StreamDataType.CHUNK, **STREAM}
    assert not gated.passes("south", "south.job", "server.job", 10, SIZE=long, SEQUENCE=0, **chunk)
    assert gated.passes("north", "north.job", "server.job", 1 << 20, SIZE=0, SEQUENCE=0, **chunk)
    assert not gated.passes("north", "north.job", "server.job", 1 << 20, SIZE=0, SEQUENCE=1, **chunk)
    assert gated.passes("north", "north.job", "server.job", 10, **ACK, DATA_TYPE=StreamDataType.ACK, STREAM_ID=7)
    for number in (None, -1):
        assert not gated.passes("north", "north.job", "server.job", 10, SEQUENCE=number, **chunk)


@pytest.mark.parametrize(
    "says",
    [
        {"DATA_TYPE": StreamDataType.ACK},  # a receiver takes any part that is not the last for one in the middle
        {"DATA_TYPE": None},
        {"STREAM_ID": None},
        {"STREAM_ID": "7"},  # another stream than 7, by the same name
    ],
    ids=str,
)
def test_whatever_a_receiver_puts_together_is_counted(gated: Gated, says: dict[str, Any]) -> None:
    part = {"STREAM_ID": 7, "DATA_TYPE": StreamDataType.CHUNK, **STREAM, **says}
    arrived = [
        number
        for number in range(20)
        if gated.passes("south", "south.job", "server.job", 1 << 20, SEQUENCE=number, **part)
    ]
    assert len(arrived) <= 1
    error = {**part, "DATA_TYPE": StreamDataType.ERROR, "ERROR_MSG": "the sender gives up"}
    assert gated.passes("south", "south.job", "server.job", **error)


def test_only_what_a_receiver_gets_is_a_part_of_its_message(gated: Gated) -> None:
    """Else what one receiver waits for would be taken to have come once another, or nobody, got it."""
    part: dict[str, Any] = {"DATA_TYPE": StreamDataType.CHUNK, "SEQUENCE": 1, **STREAM}
    last: dict[str, Any] = {**part, "SEQUENCE": 0, "DATA_TYPE": StreamDataType.FINAL}
    arrived = 0
    for stream in range(10):
        arrived += gated.passes("south", "south.job", "server.job", 1 << 20, STREAM_ID=stream, **part)
        gated.passes("south", "south.job", "server", STREAM_ID=stream, **last)
        for other in ({"TOPIC": "another"}, {"MSG_TYPE": MessageType.REPLY}, {"ERROR_MSG": "an error"}):
            gated.passes("south", "south.job", "server.job", STREAM_ID=stream, **{**last, **other})
    assert arrived <= 2


def test_every_process_of_a_site_counts_its_messages_by_itself(gated: Gated) -> None:
    """And a part that comes again once the message is whole is dropped without a word."""
    chunk: dict[str, Any] = {"STREAM_ID": 7, "SEQUENCE": 0, "DATA_TYPE": StreamDataType.FINAL, **STREAM}
    assert gated.passes("south", "south.other", "server.other", 10, **chunk)
    assert gated.passes("south", "south.job", "server.job", 10, **chunk)
    assert not gated.passes("south", "south.job", "server.job", 10, **chunk)
    assert not (gated.kit / "audit.jsonl").exists()


def test_the_same_is_told_once_a_minute(gated: Gated) -> None:
    """So that nobody can fill the server's disk."""
    for _ in range(1000):
        gated.passes("south", "south.job", "north.job")
    assert len(gated.reasons()) == 1


def test_a_sender_who_finds_ever_other_names_fills_no_disk(gated: Gated) -> None:
    """Nor with long ones, nor with what a screen would take for more than a name."""
    for number in range(1000):
        assert not gated.passes("south", "south.job", f"north.{number}\x1b[2J" + 10_000 * "n")
    reasons = gated.reasons()
    assert 1 <= len(reasons) <= 10
    assert all(len(reason) < 300 and reason.isprintable() for reason in reasons)
    assert not gated.passes("north", "north.job", "south.job")  # what others do is told all the same
    assert len(gated.reasons()) == len(reasons) + 1
