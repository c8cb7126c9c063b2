"""Who takes part in a federation, and what the server knows of each."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

State = Literal["active", "quarantined", "left"]


@dataclass
class Participant:
    """One client, as the server sees it."""

    index: int  # i, fixed for the run
    weight: float  # before scaling
    base: str | None = None  # names the state its last accepted upload left it in; None: it has yet to begin
    rejections: int = 0  # bad uploads in a row
    absences: int = 0  # rounds missed in a row
    state: State = "active"


class Roster:
    """Participants by name. A number once given is never given to another client."""

    def __init__(self, participants: dict[str, Participant] | None = None) -> None:
        self.participants = {} if participants is None else participants

    def __getitem__(self, name: str) -> Participant:
        return self.participants[name]

    @property
    def active(self) -> list[str]:
        """Who takes part now, by number."""
        active = [name for name, participant in self.participants.items() if participant.state == "active"]
        return sorted(active, key=lambda name: self.participants[name].index)

    @property
    def absent(self) -> dict[str, State]:
        """Who took part once and does not now, and why."""
        return {
            name: participant.state for name, participant in self.participants.items() if participant.state != "active"
        }

    @property
    def weights(self) -> NDArray[np.float64]:
        """w_i of those who take part, summing to one."""
        raw = np.array([self.participants[name].weight for name in self.active])
        return np.asarray(raw / raw.sum())

    def admit(self, name: str, weight: float) -> None:
        """Give a newcomer the next number, and one who comes back its own."""
        index = self.participants[name].index if name in self.participants else len(self.participants)
        self.participants[name] = Participant(index, weight)

    def knows(self, name: str) -> bool:
        """Whether this client takes part, or may not."""
        return name in self.participants and self.participants[name].state != "left"

    def start_afresh(self) -> None:
        """Nobody has begun."""
        for participant in self.participants.values():
            participant.base = None

    def to_plain(self) -> dict[str, object]:
        """As plain values, to be saved."""
        return {name: dict(vars(participant)) for name, participant in self.participants.items()}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> "Roster":
        """What `to_plain` made."""
        # Checkpoints of fedlin 0.1 call the state a standing.
        renamed = {"standing": "state"}
        return cls(
            {name: Participant(**{renamed.get(k, k): v for k, v in fields.items()}) for name, fields in plain.items()}
        )
