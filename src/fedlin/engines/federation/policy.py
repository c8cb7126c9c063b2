"""How long a server waits, for whom, and what it accepts."""

from dataclasses import dataclass
from typing import Any

from fedlin.checks import nonnegative, positive, positive_integer
from fedlin.core import Method, Requirement
from fedlin.engines.requirements import ANY_COHORT, instead_of
from fedlin.errors import ArgumentError

LONGEST_PAUSE = 5.0  # seconds between two attempts at a round


@dataclass(frozen=True)
class Policy:
    """Whom a phase waits for: use `everyone`, `drawn`, `first` or `within`.

    Args:
        quorum: How many clients a phase needs; None for all of them.
        eager: Whether a phase goes on as soon as the quorum has answered.
        timeout: Seconds one exchange may take; a round whose exchange brought too few answers is asked again from its
            start.
        patience: Seconds after which a round that is asked again and again is given up.
        pause: Seconds before a round is asked again; twice as long every time, up to 5 s.
        norm_bound: The largest norm of an upload; a larger one is rejected as one with NaN is.
        rejections: How many uploads in a row are rejected, each a new answer to the same request, before the client is
            quarantined.
        forget_after: Rounds missed in a row after which a client has left for good.
        late_every: With an eager quorum, a client that is merely slow is waited for after so many rounds, until it is
            counted. One that does not answer is waited for a moment, and ever more rarely.
        max_share: The largest share of all weights that one of several clients may have; None for no limit.
        cohort: How many clients are drawn for each round, which waits for them all; None where none are drawn.

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
    late_every: int = 10
    max_share: float | None = None
    cohort: int | None = None

    def __post_init__(self) -> None:
        for name in ("quorum", "rejections", "forget_after", "late_every", "cohort"):
            if getattr(self, name) is not None:
                positive_integer(f"policy.{name}", getattr(self, name))
        positive("policy.timeout", self.timeout)
        nonnegative("policy.patience", self.patience)
        nonnegative("policy.pause", self.pause)
        if self.norm_bound is not None:
            positive("policy.norm_bound", self.norm_bound)
        if self.max_share is not None and not 0 < positive("policy.max_share", self.max_share) <= 1:
            raise ArgumentError(f"policy.max_share = {self.max_share} is not allowed: give a share of at most 1.")
        if self.quorum is not None and self.cohort is not None:
            raise ArgumentError(
                f"policy.quorum = {self.quorum} and policy.cohort = {self.cohort} exclude each other: a round goes on "
                "with the first answers, or waits for those who are drawn."
            )
        if self.quorum is None and self.forget_after is not None:
            raise ArgumentError(
                f"policy.forget_after = {self.forget_after} means nothing where every round waits for everyone: "
                "use Policy.first or Policy.within."
            )

    @classmethod
    def everyone(cls, **limits: Any) -> "Policy":
        """Every round waits for every client: bit for bit the simulated run, whatever crashes and comes back.

        Args:
            limits: Other fields of the policy, by name.

        Returns:
            The policy.
        """
        return cls(quorum=None, **limits)

    @classmethod
    def drawn(cls, cohort: int, **limits: Any) -> "Policy":
        """Every round draws so many clients and waits for them: what `simulate` makes of participation = cohort/m.

        Args:
            cohort: How many clients are drawn for each round.
            limits: Other fields of the policy, by name.

        Returns:
            The policy.
        """
        return cls(quorum=None, cohort=cohort, **limits)

    @classmethod
    def first(cls, quorum: int, **limits: Any) -> "Policy":
        """Every phase goes on with the first `quorum` answers.

        Args:
            quorum: How many answers are enough.
            limits: Other fields of the policy, by name.

        Returns:
            The policy.
        """
        return cls(quorum=quorum, eager=True, **limits)

    @classmethod
    def within(cls, seconds: float, at_least: int = 1, **limits: Any) -> "Policy":
        """Every phase goes on with whoever answers within so many seconds.

        Args:
            seconds: How long a phase waits.
            at_least: How many must have answered by then.
            limits: Other fields of the policy, by name.

        Returns:
            The policy.
        """
        return cls(quorum=at_least, eager=False, timeout=seconds, **limits)

    def needed(self, active: int) -> int:
        """How many of the active clients must answer.

        Args:
            active: How many clients take part in the run.

        Returns:
            The least number of answers.
        """
        return min(self.quorum or self.cohort or active, active)

    def is_due(self, absences: int, *, heard: bool) -> bool:
        """Whether a client that missed so many rounds in a row is waited for now.

        One that answered since it was last waited for, if too late, is slow, and is waited for until it is counted; one
        that did not is waited for after 10, 20, 40, 80, ... rounds, and costs ever less.

        Args:
            absences: How many rounds in a row the client has missed.
            heard: Whether it has answered since it was last waited for.

        Returns:
            True if this round waits for it.

        >>> [missed for missed in range(50) if Policy.first(2).is_due(missed, heard=False)]
        [9, 19, 39]
        """
        if heard:
            return absences + 1 >= self.late_every
        times, rest = divmod(absences + 1, self.late_every)
        return rest == 0 and is_power_of_two(times)

    def check(self, algorithm: Method) -> None:
        """Refuse to go on without all clients, or with other clients than were drawn, where the algorithm cannot.

        Args:
            algorithm: The method that is to be run.
        """
        fewer = self.quorum or self.cohort
        if fewer is not None and Requirement.EVERY_CLIENT in algorithm.requires:
            raise ArgumentError(
                f"{algorithm.name} needs {Requirement.EVERY_CLIENT}, and the policy goes on with {fewer}: use "
                f"Policy.everyone(), or {instead_of(algorithm)}."
            )
        size = algorithm.cohort
        if size is not None and (self.quorum is not None or size != (self.cohort or algorithm.clients)):
            raise ArgumentError(
                f"{algorithm.name} is made for rounds of {size} clients that each know their place before they answer, "
                f"and the policy is another: use Policy.drawn({size}), or {ANY_COHORT}, which serve any."
            )


def is_power_of_two(number: int) -> bool:
    """Whether a positive number is 1, 2, 4, 8, ..."""
    return number & (number - 1) == 0
