"""One attempt at a round: every phase asked, answered, checked and averaged, and nothing changed until all is done."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from fedlin.core import Message
from fedlin.engines.federation import wire
from fedlin.engines.federation.phase_programs import broadcast, gradient_norm, update, update_from_mean
from fedlin.engines.federation.policy import is_power_of_two
from fedlin.engines.federation.replies import SortedReplies, norm, refusal, sort_uploads
from fedlin.engines.federation.secret import fresh
from fedlin.engines.federation.session import Session
from fedlin.engines.federation.wire import Header, Kind, Task
from fedlin.engines.opening import opening_rounds
from fedlin.engines.phase import Leaf, State
from fedlin.payloads import size


class Diverged(Exception):  # noqa: N818 - an end, not an error
    """Messages are no longer finite."""


class PlayedRound(NamedTuple):
    """A whole round."""

    server: State
    bases: dict[str, str]  # where each accepted upload left its client
    expected: list[str]  # whose answers the round was to have
    answered: list[str]
    gradient: float | None  # the norm of what the server takes for ∇f at the round's first model
    gradients: int
    bytes_up: int
    bytes_down: int
    norms: dict[str, dict[str, float]]  # ‖·‖ of each upload, by phase and client


def attempt_round(session: Session, names: Sequence[str]) -> PlayedRound | None:
    """The round as it would be; None where too few answered, and it has to be asked again from its start.

    Who answers a phase is asked the next one. A client that misses a later phase keeps what the server has counted of
    the earlier ones, and goes on from there when it is asked again.
    """
    needed = session.policy.needed(len(session.roster.active))
    expected = session.expected()
    names = _begin(session, [name for name in names if name in expected], needed)
    if len(names) < needed:
        return None
    progress, algorithm = session.progress, session.algorithm
    opening = bool(opening_rounds(algorithm, session.seed, progress.round, 1, progress.first)[0])
    server, bases = progress.server, {name: session.roster[name].base or "" for name in names}
    places = {name: place for place, name in enumerate(names)}
    tau, eta = session.numbers()
    gradient: float | None = None
    gradients = bytes_up = bytes_down = 0
    norms: dict[str, dict[str, float]] = {}
    eager = session.policy.quorum is not None and session.policy.eager
    due = _due(session, names)
    secure = None
    if session.secure is not None:
        from fedlin.engines.federation.secure_exchange import MaskedPhase, open_attempt  # needs cryptography

        secure = open_attempt(session, session.secure, names, needed, eager, opening)
        names = [name for name in names if name in secure.names]
        if len(names) < needed:
            return None
    for number, shape in enumerate(session.handshake.shapes.opening if opening else session.handshake.shapes.later):
        message = broadcast(algorithm, opening, number)(server)
        if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(message)):
            session.norms.enter(progress.round, norms, norm([progress.x]))
            raise Diverged
        header, body = Header(Kind.TASK, session.run, progress.round, number, opening), wire.pack(message)
        tasks = {}
        for name in names:
            participant = session.roster[name]
            numbers = (participant.index, session.seed, int(tau[participant.index]), float(eta[participant.index]))
            tasks[name] = Task(bytes.fromhex(bases[name]), *numbers, participant.rejections, places[name])
        if secure is None:
            messages = {name: wire.write_task(header, task, body) for name, task in tasks.items()}
            states = {name: wire.identify(message) for name, message in messages.items()}
            replies = session.ask(shape.name, messages, needed if eager else None, due)
            sorted_replies = sort_uploads(replies, shape.up, session.policy.norm_bound)
        else:
            digest = wire.body_digest(body)
            states = {name: wire.name_state(header, task, digest) for name, task in tasks.items()}
            phase = MaskedPhase(header, shape.name, shape.up, tasks, states, body, digest)
            sorted_replies = secure.collect(phase, needed, eager, due)
        if sorted_replies.diverged and not len(sorted_replies.rejected) == 1 < len(names):
            raise Diverged  # where one of several says so, it may be that one
        session.reject(sorted_replies.rejected)
        session.report("refused", sorted_replies.refused)
        if sorted_replies.lost:
            _restart_lost(session, sorted_replies, bases)
            return None
        if len(sorted_replies.uploads) < needed:
            return None
        norms[shape.name] = sorted_replies.norms
        server = _average(session, server, sorted_replies, shape.up, eta, opening, number)
        measure = gradient_norm(algorithm, opening, number)
        gradient = gradient if measure is None else float(measure(server))
        left = sorted_replies.states or states
        bases.update({name: left[name].hex() for name in sorted_replies.uploads})
        gradients += sorted_replies.calls
        bytes_up += len(sorted_replies.uploads) * sorted_replies.upload_bytes
        bytes_down += len(sorted_replies.uploads) * size(shape.down).total
        names = [name for name in sorted_replies.uploads if secure is None or name in secure.names]
    session.faults.clear(progress.round, dict.fromkeys(names))
    return PlayedRound(server, bases, expected, names, gradient, gradients, bytes_up, bytes_down, norms)


def _begin(session: Session, names: Sequence[str], needed: int) -> list[str]:
    """Give those who have yet to begin the model everyone began from; who has begun by now."""
    progress, roster = session.progress, session.roster
    late = [name for name in names if roster[name].base is None]
    missing = max(0, needed - (len(names) - len(late)))
    if not missing:
        # One that stays silent costs a wait, so where others are enough it is asked after 1, 2, 4, 8, ... rounds.
        late = [name for name in late if not roster[name].absences or is_power_of_two(roster[name].absences)]
    if late:
        body = wire.pack(progress.origin) if np.any(progress.origin) else b""
        request = wire.write_message(Header(Kind.BEGIN, session.run, progress.first), body)
        eager = session.policy.quorum is not None and session.policy.eager
        replies = session.ask("begin", dict.fromkeys(late, request), missing if eager else None, due=late)
        begun = {name for name, reply in replies.items() if reply.kind == Kind.BEGUN}
        for name in begun:
            roster[name].base = wire.identify(request).hex()
        session.report("refused", {name: refusal(replies[name]) for name in replies.keys() - begun})
    return [name for name in names if roster[name].base is not None]


def _due(session: Session, names: Sequence[str]) -> list[str]:
    """Who is waited for in this round although a quorum would do; whether they answer is then reported anew."""
    heard, roster = session.exchange.heard, session.roster
    due = [name for name in names if session.policy.is_due(roster[name].absences, heard=name in heard)]
    heard.difference_update(due)
    return due


def _restart_lost(session: Session, sorted_replies: SortedReplies, bases: dict[str, str]) -> None:
    """Who lacks the state its round began with has lost its memory; who lacks a later one can do it again."""
    for name in sorted_replies.lost:
        if bases[name] == session.roster[name].base:
            session.memory_lost(name)


def _average(
    session: Session, server: State, sorted_replies: SortedReplies, like: Message, eta: Leaf, opening: bool, number: int
) -> State:
    roster, dtype = session.roster, session.handshake.dtype
    present = np.array([name in sorted_replies.uploads for name in roster.active])
    steps = np.array([eta[roster[name].index] for name in roster.active], dtype)
    weights = roster.weights.astype(dtype)
    place = (np.uint32(session.seed), np.int32(session.progress.round))
    if session.secure is not None:
        program = update_from_mean(session.algorithm, opening, number)
        return program(server, sorted_replies.mean, weights, present, steps, *place)
    nothing = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), like)
    rows = [sorted_replies.uploads.get(name, nothing) for name in roster.active]
    secret = fresh(session.secret, b"".join(map(wire.pack, rows))) if session.secret else ()
    program = update(session.algorithm, opening, number, session.aggregate)
    return program(server, rows, weights, present, steps, *place, secret)
