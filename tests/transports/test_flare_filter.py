"""What the server's process lets through of what participants send, by the certificate of the connection it came on."""

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, MessagePropKey, MessageType
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    StreamDataType,
    StreamHeaderKey,
)
from nvflare.private.defs import CellChannelTopic, CellMessageHeaderKeys

from fedlin.audit import AuditTrail
from fedlin.transports.flare_filter import _Filter
from fedlin.transports.message_limit import write_limit

HOST, ADMIN = "fl.example.org", "admin@fedlin.local"
STREAM: dict[str, Any] = {"CHANNEL": STREAM_CHANNEL, "TOPIC": STREAM_DATA_TOPIC}  # where FLARE sends parts


def message(sender: str, origin: str, destination: str, length: int = 0, **headers: Any) -> Message:
    """As FLARE hands it over: the name in the sender's certificate, and what the sender wrote."""
    made = Message({MessageHeaderKey.ORIGIN: origin, MessageHeaderKey.DESTINATION: destination}, bytes(length))
    made.set_prop(MessagePropKey.COMMON_NAME, sender)
    made.set_header(MessageHeaderKey.MSG_TYPE, MessageType.REQ)
    for name, value in headers.items():
        made.set_header(getattr(MessageHeaderKey, name, None) or getattr(StreamHeaderKey, name), value)
    return made


class Filtered:
    """A filter with the settings of a run with north and south, and what it has dropped."""

    def __init__(self, kit: Path) -> None:
        self.kit = kit
        self.set_sites("north", "south")
        write_limit(kit, 1000)
        self.filter = _Filter(HOST, kit / "federation.toml")

    def set_sites(self, *names: str) -> None:
        path = self.kit / "federation.toml"
        path.write_text("[sites]\n" + "".join(f"{name} = {{ tau = 1, eta = 0.1 }}\n" for name in names))
        os.utime(path, (len(names), len(names)))  # another time, on any disk

    def passes(self, *arguments: Any, **headers: Any) -> bool:
        return self.filter.check(message(*arguments, **headers)) is None

    def reasons(self) -> list[str]:
        return [entry.facts["why"] for entry in AuditTrail(self.kit).entries()]


@pytest.fixture
def filtered(tmp_path: Path) -> Filtered:
    return Filtered(tmp_path)


def test_a_site_reaches_the_server_in_its_own_name(filtered: Filtered) -> None:
    assert filtered.passes("south", "south", "server")
    assert filtered.passes("south", "south.job", "server.job")
    assert filtered.passes(HOST, "server.job", "north.job")
    assert not filtered.passes("south", "south.job", "north.job")
    assert not filtered.passes("south", "server.job", "north.job")
    assert not filtered.passes("south", "north.job", "server.job")
    assert not filtered.passes("south", "server", "server.job")
    assert not filtered.passes("south", "south", "server", CHANNEL="_net_manager")
    assert filtered.reasons() == [
        "it is for north.job, and sites reach the server alone",
        "it is for north.job in the name of server.job, and sites reach the server alone",
        "it is in the name of north.job",
        "it is in the name of server",
        "it is a command to FLARE's process server",
    ]


def test_a_former_site_is_not_heard(filtered: Filtered) -> None:
    """Its certificate is as good as ever; nor is one heard that the authority signed for nobody."""
    assert filtered.passes("south", "south", "server")
    filtered.set_sites("north")
    assert not filtered.passes("south", "south", "server")
    assert filtered.passes("north", "north", "server")
    assert not filtered.passes("west", "west", "server")
    assert filtered.reasons() == ["it is not a site of this federation"] * 2
    filtered.set_sites("north", "south", "west")
    assert filtered.passes("south", "south", "server")


def test_settings_that_cannot_be_read_change_nothing(filtered: Filtered) -> None:
    """Somebody may edit the server's copy while a run goes on."""
    assert filtered.passes("south", "south", "server")
    (filtered.kit / "federation.toml").write_text("[broken")
    assert filtered.passes("south", "south", "server")
    assert not filtered.passes("west", "west", "server")
    filtered.set_sites("north")
    assert not filtered.passes("south", "south", "server")


def test_two_machines_under_one_name_are_told(filtered: Filtered) -> None:
    """Somebody copied a site's folder: both are alive, and FLARE believes the one that came last."""

    def alive(token: str) -> None:
        made = message("south", "south", "server", TOPIC=CellChannelTopic.HEART_BEAT)
        made.set_header(CellMessageHeaderKeys.TOKEN, token)
        assert filtered.filter.check(made) is None

    for token in "aaabab":  # a site that was started again, and a message of before that was late
        alive(token)
    assert not (filtered.kit / "audit.jsonl").exists()
    for token in "abab":
        alive(token)
    (entry,) = AuditTrail(filtered.kit).entries()
    assert entry.facts["event"] == "two machines"
    assert entry.facts["sender"] == "south"


def test_the_admin_reaches_the_server_and_no_site(filtered: Filtered) -> None:
    assert filtered.passes(ADMIN, "a1b2", "server")
    assert filtered.passes(ADMIN, "a1b2", "server", 10**6)  # a job may be long
    assert not filtered.passes(ADMIN, "a1b2", "north")
    assert not filtered.passes(ADMIN, "server", "server.job")
    assert not filtered.passes(ADMIN, "a1b2", "server", CHANNEL="_net_manager")


def test_what_is_too_long_is_dropped_part_by_part(filtered: Filtered) -> None:
    """What it says of its length, or what has come of it, whichever is more."""
    long = 2 << 20
    assert not filtered.passes("south", "south.job", "server.job", long)
    chunk = {"STREAM_ID": 7, "DATA_TYPE": StreamDataType.CHUNK, **STREAM}
    assert not filtered.passes("south", "south.job", "server.job", 10, SIZE=long, SEQUENCE=0, **chunk)
    assert filtered.passes("north", "north.job", "server.job", 1 << 20, SIZE=0, SEQUENCE=0, **chunk)
    assert not filtered.passes("north", "north.job", "server.job", 1 << 20, SIZE=0, SEQUENCE=1, **chunk)
    assert filtered.passes("north", "north.job", "server.job", 10, DATA_TYPE=StreamDataType.ACK, STREAM_ID=7)
    for number in (None, "1", -1):
        assert not filtered.passes("north", "north.job", "server.job", 10, SEQUENCE=number, **chunk)


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
def test_whatever_a_receiver_puts_together_is_counted(filtered: Filtered, says: dict[str, Any]) -> None:
    part = {"STREAM_ID": 7, "DATA_TYPE": StreamDataType.CHUNK, **STREAM, **says}
    arrived = [
        number
        for number in range(20)
        if filtered.passes("south", "south.job", "server.job", 1 << 20, SEQUENCE=number, **part)
    ]
    assert len(arrived) <= 1
    error = {**part, "DATA_TYPE": StreamDataType.ERROR, "ERROR_MSG": "the sender gives up"}
    assert filtered.passes("south", "south.job", "server.job", **error)


def test_only_what_a_receiver_gets_is_a_part_of_its_message(filtered: Filtered) -> None:
    """Else what one receiver waits for would be taken to have come once another, or nobody, got it."""
    part: dict[str, Any] = {"DATA_TYPE": StreamDataType.CHUNK, "SEQUENCE": 1, **STREAM}
    last: dict[str, Any] = {**part, "SEQUENCE": 0, "DATA_TYPE": StreamDataType.FINAL}
    arrived = 0
    for stream in range(10):
        arrived += filtered.passes("south", "south.job", "server.job", 1 << 20, STREAM_ID=stream, **part)
        filtered.passes("south", "south.job", "server", STREAM_ID=stream, **last)
        for other in ({"TOPIC": "another"}, {"MSG_TYPE": MessageType.REPLY}, {"ERROR_MSG": "an error"}):
            filtered.passes("south", "south.job", "server.job", STREAM_ID=stream, **{**last, **other})
    assert arrived <= 2


def test_every_process_of_a_site_counts_its_messages_by_itself(filtered: Filtered) -> None:
    """And a part that comes again once the message is whole is dropped without a word."""
    chunk: dict[str, Any] = {"STREAM_ID": 7, "SEQUENCE": 0, "DATA_TYPE": StreamDataType.FINAL, **STREAM}
    assert filtered.passes("south", "south", "server", 10, **chunk)
    assert filtered.passes("south", "south.job", "server.job", 10, **chunk)
    assert not filtered.passes("south", "south.job", "server.job", 10, **chunk)
    assert not (filtered.kit / "audit.jsonl").exists()


def test_the_same_is_told_once_a_minute(filtered: Filtered) -> None:
    """So that nobody can fill the server's disk."""
    for _ in range(1000):
        filtered.passes("south", "south.job", "north.job")
    assert len(filtered.reasons()) == 1


def test_a_sender_who_finds_ever_other_names_fills_no_disk(filtered: Filtered) -> None:
    """Nor with long ones, nor with what a screen would take for more than a name."""
    for number in range(1000):
        assert not filtered.passes("south", "south.job", f"north.{number}\x1b[2J" + 10_000 * "n")
    reasons = filtered.reasons()
    assert 1 <= len(reasons) <= 10
    assert all(len(reason) < 300 and reason.isprintable() for reason in reasons)
    assert not filtered.passes("north", "north.job", "south.job")  # what others do is told all the same
    assert len(filtered.reasons()) == len(reasons) + 1


def test_a_length_that_is_no_number_is_refused(filtered: Filtered) -> None:
    chunk = {"STREAM_ID": 7, "DATA_TYPE": StreamDataType.CHUNK, **STREAM}
    for size in ("long", [1], {"a": 1}, 1e400):
        assert not filtered.passes("south", "south.job", "server.job", 10, SIZE=size, **chunk)
    assert filtered.reasons() == ["it does not say how long it is"]
