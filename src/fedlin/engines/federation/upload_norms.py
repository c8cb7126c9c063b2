"""The norms of recent uploads, which tell whose upload ruined a model."""

from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

KEPT = 256  # rounds
FACTOR = 100.0  # an upload this many times larger than expected stands out


class Suspect(NamedTuple):
    """The upload that stands out first."""

    round: int
    phase: str
    client: str
    norm: float
    usual: float  # what it would be if it had changed as the others' did

    def __str__(self) -> str:
        return (
            f"{self.client}'s upload in phase {self.phase} of round {self.round} has norm {self.norm:.2e}, and "
            f"{self.usual:.2e} was to be expected"
        )


class UploadNorms:
    """Norms by phase and client, round by round.

    An upload stands out if it grew by a factor of its own: ‖u_i‖ at least 100 times what it was in the phase before,
    scaled as the others' grew in the meantime; in the first round, 100 times the others' median. Where the model is
    ruined all uploads grow, so the first one to stand out is the cause.

    >>> norms = UploadNorms()
    >>> norms.enter(0, {"model": {"a": 1.0, "b": 2.0, "c": 1.5}})
    >>> norms.enter(1, {"model": {"a": 0.9, "b": 2e6, "c": 1.4}})
    >>> norms.enter(2, {"model": {"a": 1e7, "b": 3e13, "c": 1e7}})
    >>> norms.suspect().client, norms.suspect().round
    ('b', 1)
    """

    def __init__(self) -> None:
        self._rounds: deque[tuple[int, Mapping[str, Mapping[str, float]]]] = deque(maxlen=KEPT)

    def enter(self, number: int, norms: Mapping[str, Mapping[str, float]]) -> None:
        """A round was played, or ended in numbers that are none."""
        self._rounds.append((number, norms))

    def suspect(self) -> Suspect | None:
        """The first upload that stands out; None where none does."""
        before: dict[tuple[str, str], float] = {}
        for number, phases in self._rounds:
            found = [
                Suspect(number, phase, client, norm, usual)
                for phase, norms in phases.items()
                for client, norm in norms.items()
                if (usual := _usual(phase, client, norms, before)) is not None and norm > FACTOR * usual > 0
            ]
            if found:
                return max(found, key=lambda suspect: suspect.norm / suspect.usual)
            before |= {(phase, client): norm for phase, norms in phases.items() for client, norm in norms.items()}
        return None

    def clear(self) -> None:
        """Forget all, as after going back."""
        self._rounds.clear()


def _usual(
    phase: str, client: str, norms: Mapping[str, float], before: Mapping[tuple[str, str], float]
) -> float | None:
    """The norm this upload would have if it had changed as the others' did; None where there is no telling."""
    own = before.get((phase, client))
    others = {name: norm for name, norm in norms.items() if name != client}
    if own is None:
        return median(others.values()) if others else None
    growth = [norm / before[phase, name] for name, norm in others.items() if before.get((phase, name))]
    return own * (median(growth) if growth else 1.0)
