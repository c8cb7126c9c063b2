"""The norms of recent uploads, which tell whose upload ruined a model."""

from collections import deque
from collections.abc import Mapping
from math import isfinite
from statistics import median
from typing import NamedTuple

KEPT = 16  # uploads that stood out
FACTOR = 100.0  # an upload this many times larger than expected stands out
ROUNDING = 10.0  # units in the last place of the largest numbers that an upload may be off by, where it should be none


class Suspect(NamedTuple):
    """An upload that stands out."""

    round: int
    phase: str
    client: str
    norm: float
    usual: float  # what it would be if it had changed as the others' did

    @property
    def factor(self) -> float:
        """How many times larger than usual it is."""
        return self.norm / self.usual

    def __str__(self) -> str:
        return (
            f"{self.client}'s upload in phase {self.phase} of round {self.round} has norm {self.norm:.2e}, and "
            f"{self.usual:.2e} was to be expected"
        )


class UploadNorms:
    """Norms by phase and client, round by round.

    An upload stands out if it grew by a factor of its own: ‖u_i‖ is at least 100 times what it was before, scaled as
    the others' grew in the meantime; in its first round, 100 times the median of what the others sent in theirs.

    What is sent of changes falls until rounding is all that is left of it, and then one may be any multiple of another.
    Nothing smaller than 10 ε is therefore expected of a phase, times the largest of its norms and of the model's.

    Args:
        eps: ε of the numbers that are computed with.

    >>> norms = UploadNorms()
    >>> norms.enter(0, {"model": {"a": 1.0, "b": 2.0, "c": 1.5}})
    >>> norms.enter(1, {"model": {"a": 0.9, "b": 2e6, "c": 1.4}}).client
    'b'
    >>> norms.enter(2, {"model": {"a": 1e7, "b": 3e13, "c": 1e7}})  # the model is off, and all uploads grow
    >>> norms.suspect().round
    1
    """

    def __init__(self, eps: float = 2.0**-52) -> None:
        self._eps = eps
        self.suspects: deque[Suspect] = deque(maxlen=KEPT)
        self._before: dict[tuple[str, str], float] = {}  # the latest norm, by phase and client
        self._first: dict[tuple[str, str], float] = {}  # and the first: what is sent of changes alone shrinks
        self._largest: dict[str, float] = {}  # of those that did not stand out, by phase

    def enter(self, number: int, norms: Mapping[str, Mapping[str, float]], model: float = 0.0) -> Suspect | None:
        """The upload that stands out in a round that is done, or that ended in NaN or infinite numbers, if one does.

        `model` is the norm of the model that the round began with.
        """
        suspects: list[Suspect] = []
        for phase, uploads in norms.items():
            largest = self._largest.get(phase, 0.0)
            least = ROUNDING * self._eps * max(model, largest)
            for client, norm in uploads.items():
                usual = self._usual(phase, client, uploads)
                if usual and norm > FACTOR * max(usual, least):
                    suspects.append(Suspect(number, phase, client, norm, max(usual, least)))
                elif isfinite(norm):
                    largest = max(largest, norm)
            self._largest[phase] = largest
        for phase, uploads in norms.items():
            now = {(phase, client): norm for client, norm in uploads.items()}
            self._before |= now
            self._first = now | self._first
        if not suspects:
            return None
        self.suspects.append(max(suspects, key=lambda suspect: suspect.factor))
        return self.suspects[-1]

    @property
    def largest(self) -> float:
        """The largest norm of those that did not stand out, in any phase."""
        return max(self._largest.values(), default=0.0)

    def suspect(self) -> Suspect | None:
        """Of the uploads that stood out of late, the one that did most; None where none did."""
        return max(self.suspects, key=lambda suspect: suspect.factor, default=None)

    def clear(self) -> None:
        """Forget all, as after going back."""
        self.suspects.clear()
        self._before.clear()
        self._first.clear()
        self._largest.clear()

    def _usual(self, phase: str, client: str, uploads: Mapping[str, float]) -> float | None:
        """The norm this upload would have if it had changed as the others' did; None where there is no telling."""
        others = {name: norm for name, norm in uploads.items() if name != client}
        own = self._before.get((phase, client))
        if own is None:
            return median(self._first.get((phase, name), norm) for name, norm in others.items()) if others else None
        growth = [norm / before for name, norm in others.items() if (before := self._before.get((phase, name)))]
        return own * median(growth) if growth else None
