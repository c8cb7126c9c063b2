"""Everything a running server holds together."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fedlin.aggregation import Aggregator, mean
from fedlin.core import Method
from fedlin.engines.federation.exchange import Exchange, Reply
from fedlin.engines.federation.faults import FaultKind, Faults
from fedlin.engines.federation.handshake import Handshake
from fedlin.engines.federation.policy import Policy
from fedlin.engines.federation.replies import Refusal
from fedlin.engines.federation.roster import Roster
from fedlin.engines.federation.round_log import RoundLog
from fedlin.engines.federation.secret import Words
from fedlin.engines.federation.server_state import ServerCheckpoints, ServerState
from fedlin.engines.federation.upload_norms import UploadNorms
from fedlin.engines.keys import draw_cohort
from fedlin.plan import Plan

if TYPE_CHECKING:
    from fedlin.engines.federation.secure_exchange import SecureSums


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
    weights: Mapping[str, float] | None  # those that the operator approved, by client
    exchange: Exchange
    round_log: RoundLog
    checkpoints: ServerCheckpoints
    progress: ServerState
    aggregate: Aggregator = field(default_factory=mean)  # what the server makes of the uploads
    secure: "SecureSums | None" = None  # where the server learns sums of uploads alone

    def __post_init__(self) -> None:
        self.faults = Faults(self.round_log)
        self.norms = UploadNorms(float(np.finfo(self.handshake.dtype).eps))

    @property
    def algorithm(self) -> Method:
        """What is run."""
        return self.handshake.algorithm

    @property
    def roster(self) -> Roster:
        """Who takes part."""
        return self.progress.roster

    @property
    def run(self) -> bytes:
        """What distinguishes this run's messages from another's."""
        return self.exchange.run

    def numbers(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """τ_i and η_i in the present round, by the clients' numbers."""
        tau, eta = self.plan.rows(len(self.roster.participants), self.rounds)
        number = self.progress.round
        return tau[number] if tau.ndim == 2 else tau, eta[number] if eta.ndim == 2 else eta

    def expected(self) -> list[str]:
        """Whose answers the present round is to have: all clients', or those of clients drawn as in `simulate`."""
        active, size = self.roster.active, self.policy.cohort
        if size is None or size >= len(active):
            return active
        drawn = draw_cohort(jax.random.key(self.seed), jnp.int32(self.progress.round), len(active), size)
        return [active[place] for place in np.asarray(drawn)]

    def ask(
        self,
        route: str,
        requests: Mapping[str, bytes],
        needed: int | None = None,
        due: Collection[str] = (),
        doing: str | None = None,
    ) -> dict[str, Reply]:
        """One exchange of the present round: see `Exchange.exchange`. Who is silent or damaged is reported."""
        exchanged = self.exchange.exchange(self.progress.round, route, requests, needed, due)
        self.report("silent", exchanged.silent, doing)
        self.reject(exchanged.damaged)
        return exchanged.replies

    def report(self, kind: FaultKind, reasons: Mapping[str, str | Refusal], doing: str | None = None) -> None:
        """Record what keeps clients from being counted, and what is done about it, where it is not what rounds do."""
        if doing is None and self.policy.quorum is None:
            doing = "the round waits for it and asks again"
        elif doing is None:
            doing = "rounds go on without it, and it is asked again"
        self.faults.report(self.progress.round, kind, reasons, doing)

    def reject(self, reasons: Mapping[str, str]) -> None:
        """Count uploads that were not acceptable; the next request asks for a new answer."""
        for name, why in reasons.items():
            if not self.roster.knows(name):  # it is being greeted
                continue
            participant = self.roster[name]
            participant.rejections += 1
            count = f"{participant.rejections} of {self.policy.rejections}"
            self.round_log.note("rejected", self.progress.round, client=name, why=why, attempt=participant.rejections)
            self.faults.report(
                self.progress.round,
                "rejected",
                {name: why},
                f"it is asked for a new answer, and kept out after {count}",
            )

    def start_afresh(self, why: str, **facts: object) -> None:
        """All memories are made anew at the present model: recorded, and saved before any message about it is sent."""
        self.progress.start_afresh(self.algorithm)
        self.round_log.note("started afresh", self.progress.round, why=why, clients=self.roster.active, **facts)
        self.checkpoints.write(self.progress)

    def memory_lost(self, name: str) -> None:
        """A client no longer has the memory it ended its last round with."""
        if jax.tree.leaves(self.handshake.shapes.client):
            self.start_afresh(f"{name} lost its memory")
        else:  # between rounds this method's clients remember nothing
            self.roster[name].base = None
