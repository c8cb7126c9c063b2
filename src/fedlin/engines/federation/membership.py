"""Who comes in, who leaves, and who is kept out."""

import time
from collections.abc import Sequence

import numpy as np

from fedlin.engines.federation import wire
from fedlin.engines.federation.exchange import reason
from fedlin.engines.federation.session import Session
from fedlin.engines.federation.wire import Kind, Stamp
from fedlin.engines.requirements import check_plan
from fedlin.errors import ArgumentError, FederationError, WireError


def register(session: Session) -> None:
    """Greet those the run begins with, and number them in the order of their names."""
    greeted: dict[str, float] = {}
    deadline = time.monotonic() + session.policy.patience
    while True:
        reachable = session.exchange.transport.clients()
        wanted = _wanted(session.expect, reachable)
        if wanted is not None:
            refusals = _greet(session, [name for name in wanted if name not in greeted], greeted)
            if refusals:
                name, why = next(iter(refusals.items()))
                raise FederationError(f"{name} refused to take part: {why}")
            if set(wanted) <= greeted.keys():
                break
        if time.monotonic() > deadline:
            raise FederationError(
                f"only {', '.join(sorted(greeted)) or 'nobody'} answered within {session.policy.patience:g} s, and the "
                f"run is to begin with {session.expect or 'at least one client'}: start the clients, or expect fewer."
            )
        time.sleep(session.policy.pause)
    for name in sorted(wanted):
        session.roster.admit(name, greeted[name])
    quorum = session.policy.quorum
    if quorum is not None and quorum > len(wanted):
        raise ArgumentError(f"policy.quorum = {quorum} is more than the {len(wanted)} clients: give at most that many.")
    check_plan(session.algorithm, *session.plan.rows(len(wanted), session.rounds))
    session.round_log.note("began", 0, clients=sorted(wanted), **session.handshake.facts)
    session.checkpoints.write(session.progress)


def _wanted(expect: int | Sequence[str] | None, reachable: Sequence[str]) -> list[str] | None:
    if expect is None or isinstance(expect, int):
        return list(reachable) if len(reachable) >= (expect or 1) else None
    return list(expect) if set(expect) <= set(reachable) else None


def _greet(session: Session, names: Sequence[str], greeted: dict[str, float]) -> dict[str, str]:
    """Say hello; fills in the weights of those who agree, and returns why others do not."""
    if not names:
        return {}
    hello = wire.seal(Stamp(Kind.HELLO, session.run), wire.write_facts(session.handshake.facts))
    replies, _ = session.ask("hello", dict.fromkeys(names, hello))
    refusals = {}
    for name, reply in replies.items():
        try:
            if reply.kind != Kind.GREETING:
                raise WireError(reason(reply))
            greeted[name] = _weight(wire.read_facts(reply.body).get("weight"))
        except WireError as cause:
            refusals[name] = str(cause)
    return refusals


def _weight(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value) or value <= 0:
        raise WireError(f"weight = {value!r} is not allowed: a client counts with a finite number above 0.")
    return float(value)


class Membership:
    """Changes of membership between attempts at a round. Each changes f = Σ w_i f_i, and is recorded as such."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._ignored: set[str] = set()  # strangers who were asked once and cannot come in

    def tend(self) -> list[str] | None:
        """Let in, let go, shut out; then who is to be asked, or None while too few can be reached."""
        session = self.session
        reachable = session.exchange.transport.clients()
        changes = [*self._shut_out(), *self._let_go(), *self._let_in(reachable)]
        if changes:
            if not session.roster.active:
                raise FederationError(f"no client is left: {'; '.join(changes)}. See the log for what they sent.")
            weights = dict(zip(session.roster.active, session.roster.weights.tolist(), strict=True))
            session.start_afresh("; ".join(changes), weights=weights)
        active = session.roster.active
        present = [name for name in active if name in reachable]
        return present if len(present) >= session.policy.needed(len(active)) else None

    def _shut_out(self) -> list[str]:
        participants = self.session.roster.participants
        bad = [n for n in self.session.roster.active if participants[n].rejections >= self.session.policy.rejections]
        for name in bad:
            participants[name].standing = "quarantined"
        return [f"{name} was quarantined" for name in bad]

    def _let_go(self) -> list[str]:
        limit, participants = self.session.policy.forget_after, self.session.roster.participants
        gone = [n for n in self.session.roster.active if limit is not None and participants[n].absences >= limit]
        for name in gone:
            participants[name].standing = "left"
        return [f"{name} left" for name in gone]

    def _let_in(self, reachable: Sequence[str]) -> list[str]:
        session = self.session
        self._ignored &= set(reachable)
        new = [name for name in reachable if not session.roster.knows(name) and name not in self._ignored]
        if session.expect is not None and not isinstance(session.expect, int):
            new = [name for name in new if name in session.expect]
        returning = [name for name in new if name in session.roster.participants]
        if session.plan.tau.ndim or session.plan.eta.ndim:  # a plan by client has no numbers for a stranger
            self._turn_away({name: "the plan has no numbers for it" for name in new if name not in returning})
            new = returning
        greeted: dict[str, float] = {}
        refusals = _greet(session, new, greeted)
        self._turn_away({**{name: "no answer to hello" for name in new if name not in greeted}, **refusals})
        for name, weight in greeted.items():
            session.roster.admit(name, weight)
        return [f"{name} joined" for name in greeted]

    def _turn_away(self, reasons: dict[str, str]) -> None:
        for name, why in reasons.items():
            self._ignored.add(name)
            self.session.round_log.note("not admitted", self.session.progress.round, client=name, why=why)
