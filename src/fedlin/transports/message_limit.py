"""How long a client's messages may be, held to while they arrive: before memory is taken for a whole one.

The server's job writes down what the run needs (`write_limit`), and who receives the clients' connections counts what
comes on each of them. A message may come in parts; a part that says how long the whole will be is taken at its word
where that is too long, and counted where it is not. What was let on stays counted while its receiver may hold it, also
where the rest was dropped or never comes.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from fedlin.engines.checkpoint import write_whole
from fedlin.transports.rate_limit import RateLimit

LIMIT = "message-limit"  # in the server's folder: bytes
LARGEST_FRAME = 256 << 20  # bytes that come at once, without a chance to look at them before
_FIRST = 64 << 20  # bytes, until a run has set its own limit
_ROOM = 1 << 20  # bytes for signatures, certificates and what carries a message
_OPEN = 2  # messages of one sender under way, in bytes
_MOST = 1000  # messages of one sender under way
# Messages of one sender that have begun and not ended. Its receiver has a thread wait for each, of 64 for all senders,
# as long as a part comes now and then: a dozen senders together leave some. An honest one sends one long message at a
# time, and goes on with it after its connection was lost; what it leaves, since its process has died, is given up.
_BEGUN = 4
# The same that begin in a minute: its receiver has a thread wait for a minute after each, lest a part comes again.
_FAST = 300
_WHOLE = 100  # messages of one sender that came whole are remembered, lest their parts are taken for another's
_EACH = 64  # bytes that a further part counts for beside its own, since it is remembered
READ_TIMEOUT = 60  # seconds without a part after which a receiver gives a message up, as kits tell it to
_FORGOTTEN = 2.0 * READ_TIMEOUT  # the same here: the receiver has done so by then
_UNBEGUN = 86_400.0  # the same for one whose first part is missing, which its receiver keeps until the job is over
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
        self.lengths: dict[int, int] = {}  # of the parts that were let on, by number
        self.held = 0  # their bytes, and what is remembered of them
        self.declared = 0  # bytes that the whole was said to have, for which its receiver takes memory at once
        self.next = 0  # the number of the first part that has not come
        self.last: int | None = None  # the number of the last of them, once it came
        self.since = 0.0  # when its latest part came
        self.refused: str | None = None  # why no more of it is let on

    @property
    def room(self) -> int:
        """Bytes that its receiver may hold."""
        return max(self.held, self.declared)

    @property
    def patience(self) -> float:
        """Seconds after its latest part at which it is given up."""
        return _UNBEGUN if self.lengths and not self.begun else _FORGOTTEN

    @property
    def begun(self) -> bool:
        """Whether its receiver waits for the rest of it."""
        return self.next > 0

    @property
    def whole(self) -> bool:
        return self.last is not None and self.next > self.last

    def room_with(self, part: Part) -> int:
        """The room once the part is let on too."""
        return max(self.held + self._more(part), self.declared, part.declared)

    def fits(self, part: Part) -> bool:
        """Whether a part can belong to those that were let on: a message ends once, and has no parts after its end."""
        if part.number in self.lengths:
            return part.final == (part.number == self.last)
        if self.last is not None:
            return not part.final and part.number < self.last
        return not part.final or part.number > max(self.lengths, default=-1)

    def add(self, part: Part) -> None:
        """Let a part on; it counts once, however often it comes."""
        self.held += self._more(part)
        self.declared = max(self.declared, part.declared)
        self.lengths[part.number] = max(part.length, self.lengths.get(part.number, 0))
        self.last = part.number if part.final else self.last
        while self.next in self.lengths:
            self.next += 1

    def _more(self, part: Part) -> int:
        if part.number in self.lengths:
            return max(0, part.length - self.lengths[part.number])
        return part.length + (_EACH if self.lengths else 0)


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
        self._begun = RateLimit(_FAST, clock)  # messages in parts
        self._whole: dict[str, deque[str]] = {}  # the names of the latest that came whole, by sender

    def check(self, sender: str, part: Part, limit: int) -> str | None:
        """Why a part may not go on; None where it may. `AGAIN` is no fault of the sender's."""
        with self._lock:
            return self._check(sender, part, limit)

    def _check(self, sender: str, part: Part, limit: int) -> str | None:
        known = self._present(sender)
        if part.message in self._whole.setdefault(sender, deque(maxlen=_WHOLE)):
            return AGAIN
        message = known.get(part.message, _Open())
        if message.refused is not None:  # what was dropped once is not taken up again
            return message.refused
        if part.message and part.message not in known and len(known) >= _MOST:
            return f"more than {_MOST:,} of its messages are under way"  # whoever is forgotten could send as much again
        if part.message and part.message not in known and self._begun.reached(sender):
            return f"{_FAST} of its messages have begun within a minute"
        others = [other for other in known.values() if other is not message]
        message.refused = _why_not(message, part, others, limit)
        message.since = self._clock()
        if message.refused is None:
            message.add(part)
        if part.message:
            known[part.message] = message
            if message.whole:
                del known[part.message]
                self._whole[sender].append(part.message)
        return message.refused

    def _present(self, sender: str) -> dict[str, _Open]:
        """The sender's messages under way, without those that were given up."""
        known, now = self._open.setdefault(sender, {}), self._clock()
        for name in [name for name, message in known.items() if now - message.since >= message.patience]:
            del known[name]
        return known


def _why_not(message: _Open, part: Part, others: Sequence[_Open], limit: int) -> str | None:
    """Why a part of a message is not let on beside the sender's other messages."""
    begins = part.number == 0 and not part.final and not message.begun
    if begins and sum(other.begun for other in others) >= _BEGUN:
        return f"{_BEGUN} of its messages have begun and not ended"
    room = message.room_with(part)
    if max(room, part.declared) > limit:
        return f"it is longer than {limit:,} bytes"
    if room + sum(other.room for other in others) > _OPEN * limit:
        return f"more than {_OPEN * limit:,} bytes of its messages are under way"
    return None if message.fits(part) else "its parts do not fit together"
