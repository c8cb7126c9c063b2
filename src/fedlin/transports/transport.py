"""What a federation asks of a transport: move bytes, and nothing else.

The server's side is a `Transport`, the client's side calls a `Handler`. A transport knows no algorithm and reads no
message. It may lose, repeat, delay or reorder messages: the engine drops late replies and answers a repeated request
with the same bytes.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

Handler = Callable[[str, bytes], bytes]  # (phase, payload) -> reply, called for every message, one at a time
LOOK = 0.05  # seconds
GONE = "its process has ended, or its connection is gone"
PROGRAM = "FEDLIN_PROGRAM"  # the variable that names what a process of a federation runs, as module:function
PREFIX = 64  # bytes at the beginning of a message that are its own; what follows may be the same in many
TAIL = 1 << 12  # bytes at the end of a message, within which a part of it may end whose digest is asked for too
Payloads = bytes | Mapping[str, bytes]  # one for all clients, or one for each
Enough = Callable[[Mapping[str, bytes]], bool]  # whether these replies are


class Digested(bytes):
    """A message whose digest is known already."""

    digest: bytes


class _Hashed(NamedTuple):
    """A message, its digest, and the SHA-256 of what is between its prefix and its tail, to be continued."""

    message: bytes
    digest: bytes
    middle: Any


_latest = _Hashed(b"", b"", None)


def digest(message: bytes) -> bytes:
    """32 bytes that name a message by its content: SHA-256 of its prefix and of the SHA-256 of the rest.

    So a broadcast that differs between clients in the prefix alone is hashed once for all of them.

    >>> digest(b"a" * 100) == digest(b"a" * 99 + b"b")
    False
    """
    global _latest
    if isinstance(message, Digested):
        return message.digest
    known = _latest  # threads may each have one of their own in hand
    if message is not known.message:  # the same message is asked for several times in a row
        rest = memoryview(message)[PREFIX:]
        middle = hashlib.sha256(rest[:-TAIL])
        whole = middle.copy()
        whole.update(rest[-TAIL:])
        known = _latest = _Hashed(message, combined_digest(message, whole.digest()), middle)
    return known.digest


def part_digest(message: bytes, end: int) -> bytes:
    """SHA-256 of a message from its prefix to `end`; little is left to hash after a call of `digest` with it.

    >>> message = bytes(range(256)) * 100
    >>> name, part = digest(message), part_digest(message, 25_000)
    >>> part == hashlib.sha256(message[PREFIX:25_000]).digest()
    True
    """
    known, view = _latest, memoryview(message)
    tail = max(PREFIX, len(message) - TAIL)
    if known.message is not message or end < tail:
        return hashlib.sha256(view[PREFIX:end]).digest()
    part = known.middle.copy()
    part.update(view[tail:end])
    return bytes(part.digest())


def combined_digest(message: bytes, rest: bytes) -> bytes:
    """The digest of a message, from its prefix and the SHA-256 of the `rest`."""
    return hashlib.sha256(message[:PREFIX] + rest).digest()


def by_client(payloads: Payloads, clients: Sequence[str]) -> Mapping[str, bytes]:
    """What each named client is sent: the one payload, or its own."""
    return dict.fromkeys(clients, payloads) if isinstance(payloads, bytes) else payloads


class Transport(Protocol):
    """The server's side."""

    def clients(self) -> Sequence[str]:
        """Who can be reached now, as sorted names."""

    def exchange(
        self, phase: str, payloads: Payloads, clients: Sequence[str], timeout: float, enough: Enough | None = None
    ) -> Mapping[str, bytes]:
        """Send to each named client, and return the replies that came within `timeout` seconds.

        One payload goes to all of them, or each gets its own. Who is absent from the answer was late or failed; a
        transport with an attribute `failures` tells there why, by client. The call may return early once
        `enough(replies)`, which a transport that waits asks with every reply and every LOOK seconds.
        """

    def close(self) -> None:
        """Let go of everything the transport holds."""
