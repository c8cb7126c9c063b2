"""Who comes in, who leaves, and who is kept out."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fedlin.checks import shown
from fedlin.engines.checkpoint import write_whole
from fedlin.engines.federation import wire
from fedlin.engines.federation.policy import LONGEST_PAUSE
from fedlin.engines.federation.replies import Refusal, refusal
from fedlin.engines.federation.session import Session
from fedlin.engines.federation.wire import Header, Kind
from fedlin.engines.requirements import check_aggregate, check_clients, check_plan, check_uploads
from fedlin.errors import ArgumentError, FederationError, WireError

ABSENT = "it is not connected"
READMIT = "readmit.json"  # in the server's folder: the names of clients that the operator lets in again


def ask_readmission(folder: Path, name: str) -> None:
    """Let a client in again at the next round, besides those that were asked for and are still to come."""
    names = _read_names(folder / READMIT)
    write_whole(folder / READMIT, json.dumps([*names, name]).encode(), mode=0o600)


def _read_names(path: Path) -> list[str]:
    """The names in the operator's file; none where there is no file, or somebody wrote something else."""
    try:
        names = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, RecursionError):
        return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def register(session: Session) -> None:
    """Greet those the run begins with, and number them in the order of their names."""
    greeted: dict[str, float] = {}
    deadline, pause = time.monotonic() + session.policy.patience, session.policy.pause
    while True:
        reachable = session.exchange.transport.clients()
        wanted = _wanted(session.expect, reachable)
        if wanted is not None:
            names = sorted(wanted)
            refusals = _greet(session, {name: number for number, name in enumerate(names)}, greeted)
            _report(session, refusals)
            session.faults.clear(0, greeted)
            if set(wanted) <= greeted.keys():
                break
        elif session.expect is not None and not isinstance(session.expect, int):
            session.report("silent", dict.fromkeys(sorted(set(session.expect) - set(reachable)), ABSENT))
        if time.monotonic() > deadline:
            raise FederationError(
                f"only {', '.join(sorted(greeted)) or 'nobody'} answered within {session.policy.patience:g} s"
                f"{session.faults.summary()}, and the run is to begin with {session.expect or 'at least one client'}: "
                "start the clients, or expect fewer."
            )
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    for name in names:
        session.roster.admit(name, greeted[name])
    for name in ("quorum", "cohort"):
        count = getattr(session.policy, name)
        if count is not None and count > len(names):
            raise ArgumentError(
                f"policy.{name} = {count} is more than the {len(names)} clients: give at most that many."
            )
    check_plan(session.algorithm, *session.plan.rows(len(names), session.rounds))
    weights = np.array([greeted[name] for name in names])
    check_clients(session.algorithm, weights)
    check_uploads(check_aggregate(session.algorithm, session.aggregate, weights), session.policy.needed(len(names)))
    _check_share(session)
    facts = {
        "run": session.run.hex(),
        "clients": names,
        "weights": dict(zip(names, map(greeted.get, names), strict=True)),
    }
    session.round_log.note("began", 0, rounds=session.rounds, **facts, **session.handshake.facts)
    session.checkpoints.write(session.progress)


def _wanted(expect: int | Sequence[str] | None, reachable: Sequence[str]) -> list[str] | None:
    if expect is None or isinstance(expect, int):
        return list(reachable) if len(reachable) >= (expect or 1) else None
    return list(expect) if set(expect) <= set(reachable) else None


def _greet(
    session: Session, numbers: Mapping[str, int], greeted: dict[str, float], needed: int | None = None
) -> dict[str, Refusal]:
    """Say hello to clients with these numbers; fills in the weights of those who agree, and returns why others do not.

    A hello tells a client what the run will ask of it, so that its own limits can refuse before any work. Everyone is
    waited for, or so many as are `needed`.
    """
    ungreeted = {name: number for name, number in numbers.items() if name not in greeted}
    if not ungreeted:
        return {}
    count = max(max(numbers.values()) + 1, len(session.roster.participants))
    tau, eta = session.plan.rows(count, session.rounds)
    audit = session.round_log.audit
    head = {} if audit is None else {"trail": audit.head()}
    hellos = {}
    for name, number in ungreeted.items():
        plan = {"rounds": session.rounds, "tau": int(np.max(tau[..., number])), "eta": float(np.max(eta[..., number]))}
        terms = wire.write_facts({**session.handshake.facts, **plan, **head})
        hellos[name] = wire.write_message(Header(Kind.HELLO, session.run), terms)
    refusals = {}
    for name, reply in session.ask("hello", hellos, needed, due=hellos).items():
        if reply.kind != Kind.GREETING:
            refusals[name] = refusal(reply)
            continue
        try:
            facts = wire.read_facts(reply.body)
            greeted[name] = _weight(facts.get("weight"), (session.weights or {}).get(name))
            if audit is not None and isinstance(facts.get("trail"), str):
                audit.record("trail", of=name, digest=facts["trail"][:64])
        except WireError as cause:
            refusals[name] = Refusal(str(cause))
    return refusals


def _report(session: Session, refusals: Mapping[str, Refusal]) -> None:
    """Record who refuses to begin; an error where its owner could not repair it while the others wait."""
    for name, refused in refusals.items():
        if not refused.reference:
            raise FederationError(f"{name} refused to take part: {refused}")
    session.report("refused", refusals)


def _weight(value: object, approved: float | None) -> float:
    if not isinstance(value, int | float) or not wire.is_finite(value) or value <= 0:
        raise WireError(f"weight = {shown(value)} is not allowed: a client counts with a finite number above 0.")
    if approved is not None and value != approved:
        raise WireError(f"it declares the weight {value:g}, and {approved:g} is approved: agree on one.")
    return float(value)


def _check_share(session: Session) -> None:
    for name, why in _too_heavy(session, {name: session.roster[name].weight for name in session.roster.active}).items():
        raise FederationError(f"{name} {why}")


def _too_heavy(session: Session, weights: Mapping[str, float]) -> dict[str, str]:
    """Of clients with these weights, who would have too large a share of all, and nobody has approved its weight."""
    limit, total = session.policy.max_share, sum(weights.values())
    if limit is None or len(weights) == 1:
        return {}
    return {
        name: f"declares the weight {weight:g}, which is {weight / total:.1%} of all, and at most {limit:.0%} is "
        "allowed: approve its weight by name, raise policy.max_share, or ask its owner."
        for name, weight in weights.items()
        if weight > limit * total and name not in (session.weights or {})
    }


class Membership:
    """Changes of membership between attempts at a round. Each changes f = Σ w_i f_i, and is recorded as such."""

    def __init__(self, session: Session, folder: Path | None) -> None:
        self.session = session
        self._readmit = None if folder is None else folder / READMIT
        self._ignored: set[str] = set()  # unknown clients that were asked once and cannot take part

    def update(self) -> list[str] | None:
        """Let clients in and out; then who is to be asked, or None while too few can be reached."""
        session = self.session
        reachable = session.exchange.transport.clients()
        changes = [*self._quarantine(), *self._let_go(), *self._readmitted(), *self._let_in(reachable)]
        if changes:
            if not session.roster.active:
                raise FederationError(f"no client is left: {'; '.join(changes)}. See the log for what they sent.")
            check_clients(session.algorithm, session.roster.weights)
            check_uploads(session.aggregate, session.policy.needed(len(session.roster.active)))
            weights = dict(zip(session.roster.active, session.roster.weights.tolist(), strict=True))
            session.start_afresh("; ".join(changes), weights=weights)
        self._greet_again(reachable)
        active = session.roster.active
        present = [name for name in active if name in reachable]
        session.report("silent", {name: ABSENT for name in active if name not in reachable})
        return present if len(present) >= session.policy.needed(len(active)) else None

    def _quarantine(self) -> list[str]:
        session = self.session
        bad = [n for n in session.roster.active if session.roster[n].rejections >= session.policy.rejections]
        for name in bad:
            session.roster[name].state = "quarantined"
            why = session.faults.open.get(name, ("rejected", "its uploads were rejected"))[1]
            session.faults.report(
                session.progress.round,
                "quarantined",
                {name: why},
                "the run goes on without it until it is let in again",
            )
        return [f"{name} was quarantined" for name in bad]

    def _let_go(self) -> list[str]:
        limit, participants = self.session.policy.forget_after, self.session.roster.participants
        gone = [n for n in self.session.roster.active if limit is not None and participants[n].absences >= limit]
        for name in gone:
            participants[name].state = "left"
        return [f"{name} left" for name in gone]

    def _readmitted(self) -> list[str]:
        """Treat whom the operator lets in again as one that left, so that it is greeted like one that comes back."""
        if self._readmit is None or not self._readmit.exists():
            return []
        taken = self._readmit.replace(self._readmit.with_suffix(".taken"))  # what comes meanwhile is for the next round
        names = _read_names(taken)
        taken.unlink()
        for name in names:
            participant = self.session.roster.participants.get(name)
            if participant is not None and participant.state == "quarantined":
                participant.state = "left"
                self._ignored.discard(name)
                self.session.round_log.note("readmitted", self.session.progress.round, client=name)
        return []

    def _let_in(self, reachable: Sequence[str]) -> list[str]:
        session = self.session
        self._ignored &= set(reachable)
        new = [name for name in reachable if not session.roster.knows(name) and name not in self._ignored]
        if session.expect is not None and not isinstance(session.expect, int):
            new = [name for name in new if name in session.expect]
        known = session.roster.participants
        if session.plan.tau.ndim or session.plan.eta.ndim:  # a plan by client has no numbers for an unknown client
            self._turn_away({name: "the plan has no numbers for it" for name in new if name not in known})
            new = [name for name in new if name in known]
        if session.algorithm.clients is not None:
            why = f"{session.algorithm.name} is made for {session.algorithm.clients} clients"
            self._turn_away({name: why for name in new if name not in known})
            new = [name for name in new if name in known]
        strangers = [name for name in new if name not in known]
        numbers = {name: known[name].index if name in known else len(known) + strangers.index(name) for name in new}
        greeted: dict[str, float] = {}
        refusals = _greet(session, numbers, greeted)
        outside = {name: "no answer to hello" for name in new if name not in greeted} | self._unequal(greeted)
        outside |= self._owning({name: weight for name, weight in greeted.items() if name not in outside})
        self._turn_away({**outside, **{name: str(why) for name, why in refusals.items()}})
        greeted = {name: weight for name, weight in greeted.items() if name not in outside}
        for name, weight in greeted.items():
            session.roster.admit(name, weight)
            session.faults.clear(session.progress.round, {name: None})
        return [f"{name} joined" for name in greeted]

    def _unequal(self, greeted: Mapping[str, float]) -> dict[str, str]:
        """Who declares another weight than the others where all have to count alike, and why it stays out."""
        session = self.session
        if session.aggregate.is_mean or not session.roster.active:
            return {}
        common = session.roster[session.roster.active[0]].weight
        return {
            name: f"it declares the weight {weight:g}, and {session.aggregate} counts all alike, with {common:g}"
            for name, weight in greeted.items()
            if weight != common
        }

    def _owning(self, greeted: Mapping[str, float]) -> dict[str, str]:
        """Who would have too large a share of all that take part then, and why it stays out.

        The heaviest first: what stays out is no part of all, and no other hides behind it.
        """
        session, known = self.session, self.session.roster.participants
        weights = {name: known[name].weight for name in session.roster.active} | dict(greeted)
        changed = {name for name in greeted if name not in known or known[name].weight != greeted[name]}
        outside: dict[str, str] = {}
        while heavy := {name: why for name, why in _too_heavy(session, weights).items() if name in changed}:
            heaviest = max(heavy, key=weights.__getitem__)
            outside[heaviest] = f"it {heavy[heaviest]}"
            del weights[heaviest]
        return outside

    def _greet_again(self, reachable: Sequence[str]) -> None:
        """Greet those who refuse to answer, since they may have taken part in another run meanwhile."""
        session = self.session
        refusing = [
            n for n in session.roster.active if n in reachable and session.faults.open.get(n, ("",))[0] == "refused"
        ]
        greeted: dict[str, float] = {}
        refusals = _greet(session, {name: session.roster[name].index for name in refusing}, greeted)
        _tell_of_weights(session, greeted)
        session.report("refused", refusals)

    def _turn_away(self, reasons: dict[str, str]) -> None:
        for name, why in reasons.items():
            self._ignored.add(name)
            self.session.round_log.note("not admitted", self.session.progress.round, client=name, why=why)


def greet_again(session: Session) -> None:
    """Greet the clients of a run that goes on, since each may have taken part in another run meanwhile."""
    reachable = session.exchange.transport.clients()
    active = {name: session.roster[name].index for name in session.roster.active if name in reachable}
    greeted: dict[str, float] = {}
    _report(session, _greet(session, active, greeted, session.policy.needed(len(session.roster.active))))
    _tell_of_weights(session, greeted)


def _tell_of_weights(session: Session, greeted: Mapping[str, float]) -> None:
    """Who declares another weight than it counts with: its data have changed since the run began."""
    for name, weight in greeted.items():
        if weight != session.roster[name].weight:
            counted = f"{session.roster[name].weight:g}, as when it was let in, until another run begins"
            why = f"declares the weight {weight:g} now, and counts with {counted}"
            session.round_log.note("another weight", session.progress.round, client=name, why=why)
