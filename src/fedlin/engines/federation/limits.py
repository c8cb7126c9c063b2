"""What a site allows, whatever the server asks, and what it has given away so far."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fedlin.checks import nonnegative, positive, positive_integer, shown
from fedlin.core import Mechanism, Method
from fedlin.engines.checkpoint import private, write_whole
from fedlin.errors import ArgumentError, CheckpointError, WireError

LEDGER = "ledger.json"
COUNTS = "requests.txt"  # in the folder of each run: the round of every request


@dataclass(frozen=True)
class Limits:
    """A site's own limits: a request beyond one is refused, and None is no limit.

    Args:
        tau: The most local steps τ_i of one request.
        eta: The largest step size η_i.
        rounds: The most rounds of one run.
        requests: The most requests of one round that are no repetitions. A round that has to be asked again may need
            more than its phases. Those that summarise and prepare a table count together, in all runs.
        methods: The names of the methods allowed, such as ["fedlin"].
        runs: The ids of the runs allowed, as a refusal names them; None allows any, one at a time.
        epsilon: The privacy budget ε against the server, of all runs together: a new run does not reset it. A method
            that leaves uploads without noise of the site's own is then refused.
        delta: δ of that budget.
        secure: Whether to take part in runs alone whose server learns nothing but sums of uploads, and to tell no
            summary of a table.

    >>> Limits(tau=100).check("tau", 500)
    Traceback (most recent call last):
        ...
    fedlin.errors.WireError: tau = 500 is beyond this site's limit of 100.
    """

    tau: int | None = None
    eta: float | None = None
    rounds: int | None = None
    requests: int | None = None
    methods: tuple[str, ...] | None = None
    runs: tuple[str, ...] | None = None
    epsilon: float | None = None
    delta: float = 1e-6
    secure: bool = False

    def __post_init__(self) -> None:
        for name in ("tau", "rounds", "requests"):
            if getattr(self, name) is not None:
                positive_integer(f"limits.{name}", getattr(self, name))
        for name in ("eta", "epsilon"):
            if getattr(self, name) is not None:
                positive(f"limits.{name}", getattr(self, name))
        if not 0 < positive("limits.delta", self.delta) < 1:
            raise ArgumentError(f"limits.delta = {self.delta} is not allowed: give a number between 0 and 1.")
        for name in ("methods", "runs"):
            limit = getattr(self, name)
            if limit is not None and (isinstance(limit, str) or not all(isinstance(entry, str) for entry in limit)):
                raise ArgumentError(f"limits.{name} = {limit!r} is not allowed: give a list of names.")

    def check(self, name: str, value: object) -> None:
        """Refuse a number beyond the limit of this name.

        Args:
            name: The limit's name: a field of this class.
            value: What was asked for.
        """
        limit = getattr(self, name)
        if limit is not None and not (isinstance(value, int | float) and value <= limit):
            raise WireError(f"{name} = {shown(value)} is beyond this site's limit of {limit}.")

    def check_plan(self, plan: Mapping[str, Any]) -> None:
        """Refuse a run that would go beyond a limit, by what the server announces of it.

        Args:
            plan: The rounds, and the largest τ_i and η_i, as the server says.
        """
        for name in ("rounds", "tau", "eta"):
            self.check(name, plan.get(name, 0))

    def check_summaries(self) -> None:
        """Refuse summaries of a table where a limit is on what leaves the site."""
        if self.epsilon is not None:
            raise WireError("summaries are sent without noise, and this site has a privacy budget.")
        if self.secure:
            raise WireError(
                "summaries are sent without masks, and this site takes part in secure sums alone: run without a table "
                "[prepare], or have the site's owner set secure = false."
            )

    def check_run(self, run: bytes, algorithm: Method, secure: bool) -> None:
        """Refuse a run that is not approved, by what the site itself knows of it, whatever the server says.

        Args:
            run: The run's id.
            algorithm: The method.
            secure: Whether the server learns sums alone.
        """
        if self.runs is not None and run.hex() not in self.runs:
            raise WireError(f"run {run.hex()} is not one that this site's owner has approved.")
        if self.secure and not secure:
            raise WireError("this site takes part in secure sums alone: set secure = true for the run.")
        method = algorithm.name if algorithm.recipe is None else algorithm.recipe.build.__name__
        if self.methods is not None and method not in self.methods:
            raise WireError(f"the method {method} is not one of this site's: {', '.join(self.methods)}.")
        if self.epsilon is not None:
            for phase in range(len(algorithm.phases)):
                noise_of(algorithm, phase, secure)


def noise_of(algorithm: Method, phase: int, secure: bool = False) -> float:
    """The noise multiplier z with which clients hide what they upload in this phase: each by itself, or all together
    in a secure sum.
    """
    mechanism: Mechanism | None = dict(enumerate(algorithm.mechanisms)).get(phase)
    if mechanism is None or (mechanism.central and not secure):
        raise WireError(
            f"{algorithm.name} uploads without noise of the site's own in phase {phase}, and this site has a privacy "
            "budget: put fedlin.privacy.gaussian(clip, noise) on every uplink."
        )
    return mechanism.noise


@cache
def most_releases(epsilon: float, delta: float) -> float:
    """The largest Σ 1/z² over all releases that keeps (ε, δ): together they are one with z = (Σ 1/z²)^(-1/2).

    >>> from math import sqrt
    >>> from fedlin.privacy import noise_for
    >>> z = noise_for(4.0, rounds=100, delta=1e-6)
    >>> abs(most_releases(4.0, 1e-6) - 100 / z**2) < 1e-9
    True
    """
    from dp_accounting import get_sigma_gaussian

    return float(get_sigma_gaussian(epsilon, delta)) ** -2


def spent_epsilon(releases: float, delta: float) -> float:
    """ε of uploads with Σ 1/z² = `releases`, all together."""
    from dp_accounting import get_epsilon_gaussian

    return float(get_epsilon_gaussian(releases**-0.5, delta)) if releases else 0.0


def unreadable(path: Path | None) -> CheckpointError:
    """A file of what was spent that is damaged: without it a limit would begin anew."""
    return CheckpointError(
        f"{path} cannot be read, and it tells what was spent of this site's limits: put back a copy, or remove it if "
        "nothing was spent."
    )


class Ledger:
    """Which run a site takes part in, and what its uploads have given away in all runs; on disk where it has a folder.

    What was spent is written before the upload leaves, so that no crash gives it back.
    """

    def __init__(self, folder: Path | None) -> None:
        self.path = None if folder is None else folder / LEDGER
        self.run: bytes | None = None
        self.spent = 0.0  # Σ 1/z² over all uploads
        self._requests: dict[bytes, Counter[int]] = {}  # of each round of each run that was asked for here
        if self.path is None or not self.path.exists():
            return
        try:
            saved = json.loads(self.path.read_text(encoding="utf-8"))
            self.run, self.spent = bytes.fromhex(saved["run"]), nonnegative("spent", saved["spent"])
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as cause:
            raise unreadable(self.path) from cause
        self._counted(self.run)

    def _counted(self, run: bytes) -> Counter[int]:
        """The requests of a run so far, whatever other runs came in between."""
        if run not in self._requests:
            path = self._counts(run)
            try:
                lines = path.read_text(encoding="ascii").split() if path is not None and path.exists() else []
                self._requests[run] = Counter(map(int, lines))
            except ValueError as cause:
                raise unreadable(path) from cause
        return self._requests[run]

    def _counts(self, run: bytes) -> Path | None:
        return None if self.path is None else self.path.parent / run.hex() / COUNTS

    def enter(self, run: bytes) -> None:
        """Take part in this run from now on, and in no other."""
        if run != self.run:
            if self.path is not None:
                self._requests.clear()  # those of other runs are on disk, and there may be any number of runs
            self._counted(run)
            self.run = run
            self._write()

    def check_run(self, run: bytes) -> None:
        """Refuse a message of another run; a site that was in none takes part in the first one that asks it."""
        if self.run is None:
            self.enter(run)
        if run != self.run:
            raise WireError(
                f"the message is of run {run.hex()}, and this site takes part in {(self.run or b'').hex()}: a run "
                "begins with a hello."
            )

    def count(self, number: int, limits: Limits) -> None:
        """A request of the present run that was not made before, after `number` rounds."""
        if limits.requests is None or self.run is None:
            return
        requests, path = self._counted(self.run), self._counts(self.run)
        limits.check("requests", requests[number] + 1)
        requests[number] += 1
        if path is not None:
            path.parent.mkdir(0o700, parents=True, exist_ok=True)  # someone may have removed the folder
            with open(path, "a", encoding="ascii", opener=private) as file:
                file.write(f"{number}\n")

    def spend(self, algorithm: Method, phase: int, limits: Limits, secure: bool = False) -> None:
        """An upload of this phase is about to be made."""
        if limits.epsilon is None:
            return
        after = self.spent + noise_of(algorithm, phase, secure) ** -2
        if after > most_releases(limits.epsilon, limits.delta):
            raise WireError(f"this site's privacy budget of epsilon = {limits.epsilon} is spent.")
        self.spent = after
        self._write()

    def _write(self) -> None:
        if self.path is not None:
            content = {"run": (self.run or b"").hex(), "spent": self.spent}
            self.path.parent.mkdir(0o700, parents=True, exist_ok=True)
            write_whole(self.path, json.dumps(content).encode(), mode=0o600)
