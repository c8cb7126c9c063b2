"""How long a client's messages may be, held to while they arrive: before memory is taken for a whole one.

The server's job writes down what the run needs (`write_limit`), and who receives the clients' connections counts what
comes on each of them. A message may come in parts; a part that says how long the whole will be is taken at its word
where that is too long, and counted where it is not.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fedlin.engines.checkpoint import write_whole

LIMIT = "message-limit"  # in the server's folder: bytes
LARGEST_FRAME = 256 << 20  # bytes that come at once, without a chance to look at them before
_FIRST = 64 << 20  # bytes, until a run has set its own limit
_ROOM = 1 << 20  # bytes for signatures, certificates and what carries a message
_OPEN = 2  # messages of one sender under way, in bytes
_MOST = 1000  # messages of one sender that are remembered
_FORGOTTEN = 600.0  # seconds after which an unfinished message is given up, as its receiver does


def write_limit(folder: Path, largest: int) -> None:
    """The longest message of the run that begins has so many bytes."""
    write_whole(folder / LIMIT, str(largest + _ROOM).encode(), mode=0o600)


def read_limit(folder: Path) -> int:
    """The most bytes of a message to the server in this folder."""
    try:
        return int((folder / LIMIT).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return _FIRST


class _Open(NamedTuple):
    length: int  # bytes so far
    since: float  # when its latest part came
    dropped: bool = False


class PartCounter:
    """Counts the parts of every sender's messages that are under way.

    >>> counter = PartCounter()
    >>> counter.check("south", "1", 600, declared=0, final=False, limit=1000)
    >>> counter.check("south", "1", 600, declared=0, final=True, limit=1000)
    'it is longer than 1,000 bytes'
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: dict[str, dict[str, _Open]] = {}  # messages under way, by sender and name

    def check(self, sender: str, message: str, length: int, *, declared: int, final: bool, limit: int) -> str | None:
        """Why a part of so many bytes may not go on; None where it may. A message without a name has one part."""
        now = self._clock()
        known = {name: part for name, part in self._open.get(sender, {}).items() if now - part.since < _FORGOTTEN}
        whole = known.pop(message, _Open(0, now)).length + length
        others = sum(part.length for part in known.values() if not part.dropped)
        reason = None
        if max(whole, declared) > limit:
            reason = f"it is longer than {limit:,} bytes"
        elif whole + others > _OPEN * limit:
            reason = f"more than {_OPEN * limit:,} bytes of its messages are under way"
        if message and not final:  # what was dropped once is not taken up again, and takes no memory
            known[message] = _Open(limit + 1 if reason else whole, now, dropped=reason is not None)
        while len(known) > _MOST:
            del known[next(iter(known))]
        self._open[sender] = known
        return reason
