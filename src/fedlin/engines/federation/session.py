"""Everything a running server holds together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from fedlin.core import Algorithm
from fedlin.engines.federation.contract import Contract
from fedlin.engines.federation.ledger import Ledger
from fedlin.engines.federation.policy import Policy
from fedlin.engines.federation.post import Letter, Post
from fedlin.engines.federation.progress import Progress, Saves
from fedlin.engines.federation.roster import Roster
from fedlin.engines.federation.secret import Words
from fedlin.plan import Plan


@dataclass
class Session:
    """A run under way."""

    contract: Contract
    plan: Plan
    rounds: int
    seed: int
    secret: Words
    policy: Policy
    expect: int | Sequence[str] | None
    post: Post
    ledger: Ledger
    saves: Saves
    progress: Progress

    @property
    def algorithm(self) -> Algorithm[Any, Any]:
        """What is run."""
        return self.contract.algorithm

    @property
    def roster(self) -> Roster:
        """Who takes part."""
        return self.progress.roster

    @property
    def run(self) -> bytes:
        """What tells this run's messages from another's."""
        return self.post.run

    def numbers(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """τ_i and η_i in the present round, by the clients' numbers."""
        tau, eta = self.plan.rows(len(self.roster.seats), self.rounds)
        number = self.progress.round
        return tau[number] if tau.ndim == 2 else tau, eta[number] if eta.ndim == 2 else eta

    def ask(
        self, route: str, requests: Mapping[str, bytes], needed: int | None = None
    ) -> tuple[dict[str, Letter], dict[str, str]]:
        """One exchange of the present round: see `Post.exchange`."""
        return self.post.exchange(self.progress.round, route, requests, needed)

    def start_afresh(self, why: str, **facts: Any) -> None:
        """All memories are made anew at the present model: recorded, and saved before anyone is told."""
        self.progress.start_afresh(self.algorithm)
        self.ledger.note("started afresh", self.progress.round, why=why, clients=self.roster.active, **facts)
        self.saves.write(self.progress)

    def reject(self, reasons: Mapping[str, str]) -> None:
        """Count uploads that were not acceptable."""
        for name, why in reasons.items():
            self.roster[name].rejections += 1
            self.ledger.note("rejected", self.progress.round, client=name, why=why)

    def tell_once(self, event: str, reasons: Mapping[str, str]) -> None:
        """Record what a client says in every attempt at a round, but the first time only."""
        told = {(line["event"], line.get("client"), line.get("why")) for line in self.ledger.events[-100:]}
        for name, why in reasons.items():
            if (event, name, why) not in told:
                self.ledger.note(event, self.progress.round, client=name, why=why)

    def lose(self, name: str) -> None:
        """A client no longer has the memory it ended its last round with."""
        if jax.tree.leaves(self.contract.shapes.client):
            self.start_afresh(f"{name} lost its memory")
        else:  # between rounds this method's clients remember nothing
            self.roster[name].base = None
