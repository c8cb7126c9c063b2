"""The heads of messages: what FLARE's processes of a federation send is read, and nothing else."""

from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

import msgpack
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.streaming.stream_const import StreamHeaderKey

from fedlin.errors import WireError
from fedlin.transports.flare_heads import read_head

HEAD: dict[str, Any] = {
    MessageHeaderKey.MSG_TYPE: "req",
    MessageHeaderKey.ORIGIN: "south.job",
    MessageHeaderKey.DESTINATION: "server.job",
}


def packed(**more: Any) -> bytes:
    """A head with more in it, by the names of FLARE's keys, or others."""
    named = {getattr(MessageHeaderKey, name, name): value for name, value in more.items()}
    return bytes(msgpack.packb({**HEAD, **named}))


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"REQ_ID": "8b2c", "SECURE": False, "OPTIONAL": True, "sm__id": 7, "sm__sq": 0},
        {"REQ_ID": ["8b2c"], "ORIGINAL_HEADERS": {"cn__destination": "server.job"}},
        {"fedlin_code": bytes(300), "__token_signature__": 344 * "A", "sm__sz": 2**40, "PAYLOAD_ENCODING": None},
    ],
    ids=str,
)
def test_a_head_as_flare_writes_them_is_read(more: dict[str, Any]) -> None:
    data = packed(**more)
    assert read_head(data) == msgpack.unpackb(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "its head cannot be read"),
        (b"\xc1", "its head cannot be read"),
        (msgpack.packb(["req"]), "its head is no table"),
        (packed(TOPIC=["ready"]), "its cn__topic is no word"),
        (packed(CHANNEL={"fedlin": 1}), "its cn__channel is no word"),
        (packed(MSG_TYPE=b"req"), "its cn__msg_type is no word"),
        (packed(RETURN_CODE=["ok"]), "its cn__return_code is no word"),
        (packed(ORIGIN=None), "it has no cn__origin"),
        (packed(DESTINATION=""), "it has no cn__destination"),
        (packed(SECURE=True), "it is encrypted, as no message of a federation is: its connection is"),
        (packed(ENCRYPTED=1), "it is encrypted, as no message of a federation is: its connection is"),
        (packed(CONN_URL="tcp://127.0.0.1:4711"), "it asks for a connection to another address"),
        (packed(ORIGINAL_HEADERS="south"), "the head of the message that it returns is no table"),
        (packed(REQ_ID=60_000 * "a"), "its head is longer than 16,384 bytes"),
        (packed(REQ_ID=100 * "a"), "the number of its request is none"),
        (packed(REQ_ID=["a", "b"]), "the number of its request is none"),
        (packed(REQ_ID=7), "the number of its request is none"),
        (packed(sm__id=True), "its sm__id is no number"),
        (packed(sm__sq=1.0), "its sm__sq is no number"),
        (packed(sm__sz="long"), "its sm__sz is no number"),
        (packed(sm__dt=None), "its sm__dt is no number"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_head_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(WireError) as refused:
        read_head(data)
    assert str(refused.value) == why


@pytest.mark.parametrize(
    "value",
    [
        [False] * 65,
        {str(number): 1 for number in range(65)},
        [[[[["deep"]]]]],
        "line one\n2026-11-19 ERROR a line that nobody wrote",
        "\x1b[2J",
        2000 * "a",
        bytes(9000),
        {"a" * 65: 1},
        msgpack.Timestamp(1, 1),
        msgpack.ExtType(5, b"a"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_no_head_has_more_in_it_than_words(value: Any) -> None:
    """FLARE would write it into its log, or keep it for its statistics."""
    with pytest.raises(WireError, match="more in it, or other things, than any message needs"):
        read_head(packed(other=value))


def test_what_flare_would_keep_something_for_is_left_out() -> None:
    """It has statistics for every route, channel and topic there is, and waits for as long as it is told to."""
    returned = {**HEAD, MessageHeaderKey.CHANNEL: "any", MessageHeaderKey.ROUTE: [["south.job", 1.0]]}
    data = packed(ROUTE=[["south.job", 1.5]], ORIGINAL_HEADERS=returned, sm__rt=3600, sm__rw=60)
    destination = {MessageHeaderKey.DESTINATION: "server.job"}
    assert read_head(data) == {**HEAD, MessageHeaderKey.ORIGINAL_HEADERS: destination}
    assert read_head(packed(ORIGINAL_HEADERS={"other": 1}))[MessageHeaderKey.ORIGINAL_HEADERS] == {}


def test_what_somebody_says_went_wrong_takes_one_line() -> None:
    told = "it failed\n2026-11-19 ERROR a line that nobody wrote\x1b[2J"
    head = read_head(packed(ERROR=told, sm__em=["no", "word"]))
    assert head[MessageHeaderKey.ERROR] == told.encode("unicode_escape").decode()
    assert head[StreamHeaderKey.ERROR_MSG] == "['no', 'word']"
