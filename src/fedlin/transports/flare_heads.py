"""The head of a message of NVIDIA FLARE's, checked before FLARE reads it.

FLARE logs and counts a message by what its head says, and only then asks whether its sender may send it. A head is let
on if it is short, has the words and numbers it should have where FLARE looks for them, and asks for nothing that no
federation here uses. What FLARE would keep something for, whatever it says, is taken out of it.
"""

from typing import Any

import msgpack
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.streaming.stream_const import StreamHeaderKey
from nvflare.private.defs import CellMessageHeaderKeys

from fedlin.checks import printable
from fedlin.errors import WireError

_LONGEST = 16 << 10  # bytes of a head
_ENTRIES, _DEPTH = 64, 3  # of a table or a list in it, and how deep they stand in each other
_NAME, _WORD, _BYTES = 64, 1024, 8192  # characters of a name and of a word, and bytes of a code
_WORDS = (
    MessageHeaderKey.MSG_TYPE,
    MessageHeaderKey.CHANNEL,
    MessageHeaderKey.TOPIC,
    MessageHeaderKey.ORIGIN,
    MessageHeaderKey.DESTINATION,
    MessageHeaderKey.FROM_CELL,
    MessageHeaderKey.TO_CELL,
    MessageHeaderKey.RETURN_CODE,
    MessageHeaderKey.RETURN_REASON,
    MessageHeaderKey.PAYLOAD_ENCODING,
    StreamHeaderKey.CHANNEL,
    StreamHeaderKey.TOPIC,
    StreamHeaderKey.ERROR_TYPE,
    StreamHeaderKey.FAILED_DESTINATION,
    StreamHeaderKey.PAYLOAD_ENCODING,
    CellMessageHeaderKeys.CLIENT_NAME,
    CellMessageHeaderKeys.TOKEN,
)
_NUMBERS = (StreamHeaderKey.STREAM_ID, StreamHeaderKey.SEQUENCE, StreamHeaderKey.DATA_TYPE, StreamHeaderKey.SIZE)
_NEEDED = (MessageHeaderKey.MSG_TYPE, MessageHeaderKey.ORIGIN, MessageHeaderKey.DESTINATION)
_TOLD = (MessageHeaderKey.ERROR, StreamHeaderKey.ERROR_MSG)  # what somebody says went wrong, in any words

# By where a route begins FLARE counts messages, each name for itself, and a thread waits for as long as its sender says
# that it will try again.
_LEFT_OUT = (MessageHeaderKey.ROUTE, StreamHeaderKey.RETRY_WAIT, StreamHeaderKey.RETRY_TIMEOUT)


def read_head(data: bytes) -> dict[str, Any]:
    """The head of a message; `WireError` where it is none that a process of a federation sends.

    >>> read_head(msgpack.packb({"cn__msg_type": "req", "cn__origin": "south", "cn__destination": "server"}))
    {'cn__msg_type': 'req', 'cn__origin': 'south', 'cn__destination': 'server'}
    """
    if len(data) > _LONGEST:
        raise WireError(f"its head is longer than {_LONGEST:,} bytes")
    try:
        head = msgpack.unpackb(data)
    except Exception as error:  # of many kinds
        raise WireError("its head cannot be read") from error
    if not isinstance(head, dict):
        raise WireError("its head is no table")
    for name in _TOLD:
        if head.get(name) is not None:  # which FLARE writes into its log
            head[name] = printable(str(head[name]), _WORD)
    if not _fits(head, _DEPTH + 1):
        raise WireError("its head has more in it, or other things, than any message needs")
    if reason := _wrong(head):
        raise WireError(reason)
    returned = head.get(MessageHeaderKey.ORIGINAL_HEADERS)
    if returned is not None:  # by whose channel and topic FLARE counts it, whatever they are
        target = MessageHeaderKey.DESTINATION
        head[MessageHeaderKey.ORIGINAL_HEADERS] = {target: returned[target]} if target in returned else {}
    return {name: value for name, value in head.items() if name not in _LEFT_OUT}


def _wrong(head: dict[str, Any]) -> str | None:
    for name in _WORDS:
        if not isinstance(head.get(name), str | None):
            return f"its {name} is no word"
    for name in _NUMBERS:
        if name in head and type(head[name]) is not int:  # a truth value would be a number for some, and not for others
            return f"its {name} is no number"
    for name in _NEEDED:
        if not head.get(name):
            return f"it has no {name}"
    if head.get(MessageHeaderKey.SECURE) or head.get(MessageHeaderKey.ENCRYPTED):
        # At which FLARE asks the sender for a certificate, and waits for it in one of its few threads.
        return "it is encrypted, as no message of a federation is: its connection is"
    if head.get(MessageHeaderKey.CONN_URL):
        # A process of FLARE's would connect to that address, whatever it is, and what comes from there is not checked.
        return "it asks for a connection to another address"
    if not isinstance(head.get(MessageHeaderKey.ORIGINAL_HEADERS), dict | None):
        return "the head of the message that it returns is no table"
    return _wrong_request(head.get(MessageHeaderKey.REQ_ID))


def _wrong_request(number: Any) -> str | None:
    """Which request it answers: a word, or a list with one."""
    if isinstance(number, list) and len(number) == 1:
        (number,) = number
    if number is None or (isinstance(number, str) and len(number) <= _NAME):
        return None
    return "the number of its request is none"


def _fits(value: Any, depth: int) -> bool:
    """Whether a value is a word, a number or a code, or holds few of them."""
    if value is None or isinstance(value, bool | int | float):
        return True
    if isinstance(value, str):
        return len(value) <= _WORD and value.isprintable()
    if isinstance(value, bytes):
        return len(value) <= _BYTES
    if not isinstance(value, list | dict) or not depth or len(value) > _ENTRIES:
        return False
    if isinstance(value, list):
        return all(_fits(entry, depth - 1) for entry in value)
    named = all(isinstance(name, str) and len(name) <= _NAME and name.isprintable() for name in value)
    return named and all(_fits(entry, depth - 1) for entry in value.values())
