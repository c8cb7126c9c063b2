"""What a site's processes let through of what the server sends, and of what comes on their own machine."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, MessageType
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_ACK_TOPIC,
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    STREAM_ERROR_TOPIC,
    StreamHeaderKey,
)

from fedlin.audit import AuditTrail
from fedlin.transports.flare_site_gate import SiteGate

TO_SITE, TO_JOB, OF_JOB = ("server", "south"), ("server", "south.job"), ("server.job", "south.job")


def message(ends: tuple[str, str], channel: str, topic: str, kind: str = MessageType.REQ, **more: Any) -> Message:
    head = {
        MessageHeaderKey.ORIGIN: ends[0],
        MessageHeaderKey.DESTINATION: ends[1],
        MessageHeaderKey.CHANNEL: channel,
        MessageHeaderKey.TOPIC: topic,
        MessageHeaderKey.MSG_TYPE: kind,
    }
    return Message({**head, **more})


def part(channel: str, topic: str) -> dict[str, Any]:
    return {StreamHeaderKey.CHANNEL: channel, StreamHeaderKey.TOPIC: topic}


@pytest.fixture
def gate(tmp_path: Path) -> SiteGate:
    return SiteGate(tmp_path, "south")


@pytest.mark.parametrize(
    ("ends", "channel", "topic", "kind"),
    [
        (TO_SITE, "admin", "admin", MessageType.REQ),
        (TO_SITE, "cellnet.channel", "bye", MessageType.REQ),
        *((TO_SITE, "task", topic, MessageType.REPLY) for topic in ("challenge", "register", "heart_beat", "quit")),
        (TO_JOB, "cellnet.channel", "bye", MessageType.REPLY),
        *((OF_JOB, "fedlin", topic, MessageType.REQ) for topic in ("introduce", "answer", "fetch")),
        (OF_JOB, "fedlin", "ready", MessageType.REPLY),
    ],
)
def test_what_a_server_sends_passes(gate: SiteGate, ends: tuple[str, str], channel: str, topic: str, kind: str) -> None:
    assert gate.passes(None, message(ends, channel, topic, kind))


@pytest.mark.parametrize(
    ("ends", "channel", "topic", "kind"),
    [
        (OF_JOB, "admin", "admin", MessageType.REQ),  # the job's process reads files of the site
        (TO_JOB, "client_command", "abort", MessageType.REQ),
        (TO_SITE, "client_command", "abort", MessageType.REQ),
        *((TO_SITE, "_net_manager", topic, MessageType.REQ) for topic in ("stop_cell", "process_info", "stress")),
        (OF_JOB, "_net_manager", "peers", MessageType.REQ),
        (TO_SITE, "credential_manager", "key_exchange", MessageType.REQ),
        (TO_SITE, "aux_communication", "fed.event", MessageType.REQ),
        (TO_SITE, "fedlin", "answer", MessageType.REQ),
        (TO_JOB, "fedlin", "answer", MessageType.REQ),
        (OF_JOB, "cellnet.channel", "bulk", MessageType.REQ),
        (OF_JOB, "fedlin", "ready", MessageType.REQ),
        (TO_SITE, "admin", "admin", MessageType.REPLY),
        (TO_SITE, "task", "register", MessageType.REQ),
    ],
)
def test_what_no_server_sends_is_dropped(
    gate: SiteGate, tmp_path: Path, ends: tuple[str, str], channel: str, topic: str, kind: str
) -> None:
    assert not gate.passes(None, message(ends, channel, topic, kind))
    (entry,) = AuditTrail(tmp_path).entries()
    assert (entry.facts["event"], entry.facts["sender"]) == ("message dropped", "server")
    assert entry.facts["why"] == f"it is {channel}:{topic} for {ends[1]}, which no server sends"


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        (("server.job", "south"), "it is from server.job for south, between which nothing is sent"),
        (("server.other", "south.job"), "it is from server.other for south.job, between which nothing is sent"),
        (("north.job", "south.job"), "it is in the name of north.job"),
        (("south", "south.job"), "it is in the name of south"),
        (("server", "north"), "it is for north, which is not here"),
        (("server", "server.job"), "it is for server.job, which is not here"),
        (("server.job.more", "south.job"), "it is from server.job.more for south.job, between which nothing is sent"),
    ],
    ids=str,
)
def test_a_site_hears_the_server_alone(gate: SiteGate, tmp_path: Path, ends: tuple[str, str], why: str) -> None:
    assert not gate.passes(None, message(ends, "admin", "admin"))
    assert [entry.facts["why"] for entry in AuditTrail(tmp_path).entries()] == [why]


def test_what_a_server_streams_passes_and_nothing_else(gate: SiteGate) -> None:
    def passes(channel: str, topic: str, ends: tuple[str, str] = OF_JOB) -> bool:
        return gate.passes(None, message(ends, STREAM_CHANNEL, STREAM_DATA_TOPIC, **part(channel, topic)))

    replies = ("server_command:get_task", "aux_communication:__sync_runner__", "aux_communication:__job_heartbeat__")
    sent = [("return_only", topic) for topic in (*replies, "fedlin:ready")]
    sent += [("fedlin", "answer"), ("fedlin", "introduce"), ("aux_communication", "__end_run__")]
    for inner in sent:
        assert passes(*inner)
        assert not passes(*inner, TO_SITE)
        assert not passes(*inner, TO_JOB)
    for inner in (("server_command", "get_task"), ("aux_communication", "fed.event"), ("admin", "admin")):
        assert not passes(*inner)


def test_receipts_pass_where_streams_do(gate: SiteGate) -> None:
    assert gate.passes(None, message(OF_JOB, STREAM_CHANNEL, STREAM_ACK_TOPIC))
    assert not gate.passes(None, message(TO_SITE, STREAM_CHANNEL, STREAM_ACK_TOPIC))
    failed = {StreamHeaderKey.FAILED_DESTINATION: "server.job"}
    assert gate.passes(None, message(TO_JOB, STREAM_CHANNEL, STREAM_ERROR_TOPIC, **failed))


def test_within_a_machine_a_site_s_processes_hear_each_other_alone(gate: SiteGate, tmp_path: Path) -> None:
    abort = message(("south", "south.job"), "client_command", "abort")
    assert gate.passes("south", abort)
    assert gate.stranger("south") is None
    for peer in ("north", "N/A", "fl.example.org"):
        assert not gate.passes(peer, abort)
        assert gate.stranger(peer) == "only this site's own processes connect here"
    assert gate.stranger(None) is not None  # a connection to it without a certificate
    assert [entry.facts["sender"] for entry in AuditTrail(tmp_path).entries()] == ["north", "N/A", "fl.example.org"]
