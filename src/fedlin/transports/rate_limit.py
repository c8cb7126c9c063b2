"""How often somebody may do something: so many times within a minute."""

import time
from collections import deque
from collections.abc import Callable

MINUTE = 60.0  # seconds


class RateLimit:
    """Counts what each of several does; what goes beyond the limit is not counted.

    Args:
        most: Times within a minute.
        clock: Seconds.

    >>> limit = RateLimit(2)
    >>> [limit.reached(name) for name in ("south", "south", "south", "north")]
    [False, False, True, False]
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.most = most
        self._clock = clock
        self._times: dict[str, deque[float]] = {}  # when each did it of late

    def reached(self, name: str) -> bool:
        """Whether this would be once too often; it counts where it is not."""
        times, now = self._times.setdefault(name, deque(maxlen=self.most)), self._clock()
        if len(times) == self.most and now - times[0] < MINUTE:
            return True
        times.append(now)
        return False
