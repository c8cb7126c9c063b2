"""How many rounds to play before looking up: enough that looking up costs nothing, few enough to react."""

_LOOK_UP = 0.2  # seconds between two looks at the clock, at Ctrl-C and at the callbacks
_GROWTH = 64  # times as many rounds as before, at most: the first ones may be quicker than the rest


class ChunkLength:
    """Learns how fast rounds are and says how many to play next."""

    def __init__(self) -> None:
        self.count = 1
        self._seen: set[bool] = set()

    def fresh(self, opening: bool) -> bool:
        """Whether this is the first call of its program."""
        new = opening not in self._seen
        self._seen.add(opening)
        return new

    def saw(self, count: int, seconds: float) -> None:
        """Note how long `count` rounds took."""
        fitting = int(count * _LOOK_UP / max(seconds, 1e-9))
        self.count = max(1, min(fitting, _GROWTH * self.count))
