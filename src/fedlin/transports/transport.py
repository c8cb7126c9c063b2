"""What a federation asks of a transport: move bytes, and nothing else.

The server's side is a `Transport`, the client's side calls a `Handler`. A transport knows no algorithm and reads no
message. It may lose, repeat, delay or reorder messages: the engine drops late replies and answers a repeated request
with the same bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

Handler = Callable[[str, bytes], bytes]  # (phase, payload) -> reply, called for every message, one at a time
LOOK = 0.05  # seconds
Enough = Callable[[Mapping[str, bytes]], bool]


def by_client(payloads: bytes | Mapping[str, bytes], clients: Sequence[str]) -> Mapping[str, bytes]:
    """What each named client is sent: the one payload, or its own."""
    return dict.fromkeys(clients, payloads) if isinstance(payloads, bytes) else payloads


class Transport(Protocol):
    """The server's side."""

    def clients(self) -> Sequence[str]:
        """Who can be reached now, as sorted names."""

    def exchange(
        self,
        phase: str,
        payloads: bytes | Mapping[str, bytes],
        clients: Sequence[str],
        timeout: float,
        enough: Enough | None = None,
    ) -> Mapping[str, bytes]:
        """Send to each named client, and return the replies that came within `timeout` seconds.

        One payload goes to all of them, or each gets its own. Who is absent from the answer was late or failed; a
        transport with an attribute `failures` tells there why, by client. The call may return early once
        `enough(replies)`, which a transport that waits asks with every reply and every LOOK seconds.
        """

    def close(self) -> None:
        """Let go of everything the transport holds."""
