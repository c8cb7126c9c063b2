"""How long a client's messages may be, held to while they arrive: before memory is taken for a whole one.

The server's job writes down what the run needs (`write_limit`), and who receives the clients' connections counts what
comes on each of them. A message may come in parts; a part that says how long the whole will be is taken at its word
where that is too long, and counted where it is not.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fedlin.engines.checkpoint import write_whole

LIMIT = "message-limit"  # in the server's folder: bytes
LARGEST_FRAME = 256 << 20  # bytes that come at once, without a chance to look at them before
_FIRST = 64 << 20  # bytes, until a run has set its own limit
_ROOM = 1 << 20  # bytes for signatures, certificates and what carries a message
_OPEN = 2  # messages of one sender under way, in bytes
_MOST = 1000  # messages of one sender under way
_WHOLE = 100  # messages of one sender that came whole are remembered, lest their parts are taken for another's
_EACH = 64  # bytes that a further part counts for beside its own, since it is remembered
_FORGOTTEN = 600.0  # seconds after which an unfinished message is given up, as its receiver does
AGAIN = "it is a part of a message that has come whole"


def write_limit(folder: Path, largest: int) -> None:
    """The longest message of the run that begins has so many bytes."""
    write_whole(folder / LIMIT, str(largest + _ROOM).encode(), mode=0o600)


def read_limit(folder: Path) -> int:
    """The most bytes of a message to the server in this folder."""
    try:
        return int((folder / LIMIT).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return _FIRST


class Part(NamedTuple):
    """A part of a message, as its sender describes it; a whole message without a name is its only part."""

    length: int
    message: str = ""  # its name
    number: int = 0  # the part's place in it
    final: bool = True  # whether it is the last of them
    declared: int = 0  # bytes that the whole message is said to have


class _Open:
    """A message under way."""

    def __init__(self) -> None:
        self.lengths: dict[int, int] = {}  # of the parts that came, by number
        self.last: int | None = None  # the number of the last of them, once it came
        self.since = 0.0  # when its latest part came
        self.dropped = False

    @property
    def length(self) -> int:
        return sum(self.lengths.values()) + _EACH * max(0, len(self.lengths) - 1)

    @property
    def whole(self) -> bool:
        return self.last is not None and len(self.lengths) > self.last


class PartCounter:
    """Counts the parts of every sender's messages that are under way.

    They come in any order, by several threads at once, and again where a sender was not sure that one had arrived: a
    part counts once. A message that has come whole takes no room any more, and its parts are not let on again.

    >>> counter = PartCounter()
    >>> counter.check("south", Part(600, "1", 0, final=False), limit=1000)
    >>> counter.check("south", Part(600, "1", 1), limit=1000)
    'it is longer than 1,000 bytes'
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[str, dict[str, _Open]] = {}  # messages under way, by sender and name
        self._whole: dict[str, deque[str]] = {}  # the names of the latest that came whole, by sender

    def check(self, sender: str, part: Part, limit: int) -> str | None:
        """Why a part may not go on; None where it may. `AGAIN` is no fault of the sender's."""
        with self._lock:
            return self._check(sender, part, limit)

    def _check(self, sender: str, part: Part, limit: int) -> str | None:
        too_long = f"it is longer than {limit:,} bytes"
        if max(part.length, part.declared) > limit and not part.message:
            return too_long
        known = self._present(sender)
        if part.message in self._whole.setdefault(sender, deque(maxlen=_WHOLE)):
            return AGAIN
        message = known.get(part.message, _Open())
        if message.dropped:  # what was dropped once is not taken up again, and takes no room
            return too_long
        others = sum(other.length for other in known.values() if other is not message and not other.dropped)
        if part.message and part.message not in known and len(known) >= _MOST:
            return f"more than {_MOST:,} of its messages are under way"  # whoever is forgotten could send as much again
        message.lengths[part.number] = max(part.length, message.lengths.get(part.number, 0))
        message.last = part.number if part.final else message.last
        message.since = self._clock()
        reason = None
        if max(message.length, part.declared) > limit:
            reason = too_long
        elif message.length + others > _OPEN * limit:
            reason = f"more than {_OPEN * limit:,} bytes of its messages are under way"
        if part.message:
            known[part.message] = message
        if reason is not None:
            message.dropped, message.lengths = True, {}
        elif message.whole and part.message:
            del known[part.message]
            self._whole[sender].append(part.message)
        return reason

    def _present(self, sender: str) -> dict[str, _Open]:
        """The sender's messages under way, without those that were given up."""
        known, now = self._open.setdefault(sender, {}), self._clock()
        for name in [name for name, message in known.items() if now - message.since >= _FORGOTTEN]:
            del known[name]
        return known
