"""Everything a running server holds together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from fedlin.core import Algorithm
from fedlin.engines.federation.exchange import Exchange, Reply
from fedlin.engines.federation.handshake import Handshake
from fedlin.engines.federation.policy import Policy
from fedlin.engines.federation.roster import Roster
from fedlin.engines.federation.round_log import RoundLog
from fedlin.engines.federation.secret import Words
from fedlin.engines.federation.server_state import ServerCheckpoints, ServerState
from fedlin.plan import Plan


@dataclass
class Session:
    """A run under way."""

    handshake: Handshake
    plan: Plan
    rounds: int
    seed: int
    secret: Words
    policy: Policy
    expect: int | Sequence[str] | None
    exchange: Exchange
    round_log: RoundLog
    checkpoints: ServerCheckpoints
    progress: ServerState

    @property
    def algorithm(self) -> Algorithm[Any, Any]:
        """What is run."""
        return self.handshake.algorithm

    @property
    def roster(self) -> Roster:
        """Who takes part."""
        return self.progress.roster

    @property
    def run(self) -> bytes:
        """What tells this run's messages from another's."""
        return self.exchange.run

    def numbers(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """τ_i and η_i in the present round, by the clients' numbers."""
        tau, eta = self.plan.rows(len(self.roster.participants), self.rounds)
        number = self.progress.round
        return tau[number] if tau.ndim == 2 else tau, eta[number] if eta.ndim == 2 else eta

    def ask(
        self, route: str, requests: Mapping[str, bytes], needed: int | None = None
    ) -> tuple[dict[str, Reply], dict[str, str]]:
        """One exchange of the present round: see `Exchange.exchange`."""
        return self.exchange.exchange(self.progress.round, route, requests, needed)

    def start_afresh(self, why: str, **facts: Any) -> None:
        """All memories are made anew at the present model: recorded, and saved before anyone is told."""
        self.progress.start_afresh(self.algorithm)
        self.round_log.note("started afresh", self.progress.round, why=why, clients=self.roster.active, **facts)
        self.checkpoints.write(self.progress)

    def reject(self, reasons: Mapping[str, str]) -> None:
        """Count uploads that were not acceptable."""
        for name, why in reasons.items():
            self.roster[name].rejections += 1
            self.round_log.note("rejected", self.progress.round, client=name, why=why)

    def tell_once(self, event: str, reasons: Mapping[str, str]) -> None:
        """Record what a client says in every attempt at a round, but the first time only."""
        told = {(line["event"], line.get("client"), line.get("why")) for line in self.round_log.events[-100:]}
        for name, why in reasons.items():
            if (event, name, why) not in told:
                self.round_log.note(event, self.progress.round, client=name, why=why)

    def lose(self, name: str) -> None:
        """A client no longer has the memory it ended its last round with."""
        if jax.tree.leaves(self.handshake.shapes.client):
            self.start_afresh(f"{name} lost its memory")
        else:  # between rounds this method's clients remember nothing
            self.roster[name].base = None
