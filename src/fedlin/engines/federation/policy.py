"""How long a server waits, for whom, and what it accepts."""

from dataclasses import dataclass
from typing import Any

from fedlin.checks import nonnegative, positive, positive_integer
from fedlin.core import Algorithm, Requirement
from fedlin.errors import ArgumentError


@dataclass(frozen=True)
class Policy:
    """Whom a phase waits for: use `everyone`, `first` or `within`.

    `timeout` is how many seconds one exchange may take; a round whose exchange brought too few answers is asked again
    from its start, and given up after `patience` seconds. An upload larger in norm than `norm_bound` is
    refused; after `rejections` bad uploads in a row a client is quarantined. A client that has missed `forget_after`
    rounds in a row is taken to have left for good.

    >>> Policy.first(3, timeout=10.0).quorum
    3
    """

    quorum: int | None = None  # None: all
    eager: bool = True  # go on as soon as the quorum has answered
    timeout: float = 60.0
    patience: float = 3600.0
    pause: float = 0.1  # seconds before a round is asked again
    norm_bound: float | None = None
    rejections: int = 3
    forget_after: int | None = None

    def __post_init__(self) -> None:
        for name in ("quorum", "rejections", "forget_after"):
            if getattr(self, name) is not None:
                positive_integer(f"policy.{name}", getattr(self, name))
        positive("policy.timeout", self.timeout)
        nonnegative("policy.patience", self.patience)
        nonnegative("policy.pause", self.pause)
        if self.norm_bound is not None:
            positive("policy.norm_bound", self.norm_bound)
        if self.quorum is None and self.forget_after is not None:
            raise ArgumentError(
                f"policy.forget_after = {self.forget_after} means nothing where every round waits for everyone: "
                "use Policy.first or Policy.within."
            )

    @classmethod
    def everyone(cls, **limits: Any) -> "Policy":
        """Every round waits for every client: bit for bit the simulated run, whatever crashes and comes back."""
        return cls(quorum=None, **limits)

    @classmethod
    def first(cls, quorum: int, **limits: Any) -> "Policy":
        """Every phase goes on with the first `quorum` answers."""
        return cls(quorum=quorum, eager=True, **limits)

    @classmethod
    def within(cls, seconds: float, at_least: int = 1, **limits: Any) -> "Policy":
        """Every phase goes on with whoever answers within so many seconds."""
        return cls(quorum=at_least, eager=False, timeout=seconds, **limits)

    def needed(self, active: int) -> int:
        """How many of the active clients must answer."""
        return active if self.quorum is None else min(self.quorum, active)

    def check(self, algorithm: Algorithm[Any, Any]) -> None:
        """Refuse to go on without everyone where the algorithm cannot."""
        if self.quorum is not None and Requirement.EVERY_CLIENT in algorithm.requires:
            raise ArgumentError(
                f"{algorithm.name} needs {Requirement.EVERY_CLIENT}, and the policy goes on with {self.quorum}: use "
                "Policy.everyone(), or plain or error_feedback links on the way down with whole models."
            )
