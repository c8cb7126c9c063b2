"""The server of a federation: the same rounds as `simulate`, on machines that may be slow, restart or vanish."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fedlin.checks import finite, positive, positive_integer
from fedlin.core import Algorithm
from fedlin.engines.checkpoint import digest, open_folder
from fedlin.engines.federation.attempt import Diverged, PlayedRound, attempt_round
from fedlin.engines.federation.exchange import Exchange
from fedlin.engines.federation.handshake import Handshake
from fedlin.engines.federation.membership import Membership, greet_again, register
from fedlin.engines.federation.pending import Pending
from fedlin.engines.federation.policy import LONGEST_PAUSE, Policy
from fedlin.engines.federation.roster import Roster
from fedlin.engines.federation.round_log import FederationResult, RoundLog
from fedlin.engines.federation.secret import secret_words
from fedlin.engines.federation.server_state import ServerCheckpoints, ServerState
from fedlin.engines.federation.session import Session
from fedlin.engines.interrupt import Interrupt
from fedlin.engines.simulation.program import FAR
from fedlin.engines.simulation.run import check_seed
from fedlin.errors import ArgumentError, FederationError
from fedlin.plan import Plan
from fedlin.precision import precision
from fedlin.result import Status
from fedlin.transports.transport import Transport

Array = NDArray[Any]
OnRound = Callable[[int, Array, dict[str, Any]], object]


def serve(
    algorithm: Algorithm[Any, Any],
    transport: Transport,
    plan: Plan,
    rounds: int,
    *,
    dim: int | None = None,
    x0: ArrayLike | None = None,
    dtype: DTypeLike = np.float64,
    seed: int = 0,
    secret: bytes | None = None,
    policy: Policy | None = None,
    folder: str | PathLike[str] | None = None,
    expect: int | Sequence[str] | None = None,
    weights: Mapping[str, float] | None = None,
    name: str = "",
    stop: float | None = None,
    on_round: OnRound | None = None,
) -> FederationResult:
    """Run the rounds of a federation with the clients a transport reaches.

    Args:
        algorithm: The method, as every client has it.
        transport: What carries the messages.
        plan: τ_i and η_i; its entries belong to the clients in the order of their names.
        rounds: How many rounds to play.
        dim: The entries of the model, where it starts from zeros.
        x0: The model to start from; give this or `dim`.
        dtype: The precision, where `x0` does not say it.
        seed: What all draws are a function of.
        secret: Where the method has the server add noise for privacy, what the noise also depends on, as a `Client`'s
            does: every client knows the seed. b"" draws as `simulate` does.
        policy: Whom a round waits for, and what is accepted.
        folder: Where the server saves after every round; the same call goes on from there.
        expect: The clients the run begins with, a number or their names.
        weights: The weights that the clients of these names have to declare.
        name: What tells this run from another one with the same settings.
        stop: The run ends early once a round moves the model by at most this.
        on_round: Called as on_round(rounds played, x, measures) after every round; True ends the run.

    Returns:
        The model, what every round cost, who was counted and what happened. A run that diverges goes back to the model
        before the upload that stands out, and names it.

    >>> import fedlin
    >>> from fedlin.transports.loopback import Loopback
    >>> problem = fedlin.problems.least_squares(clients=2, dim=3, samples=9)
    >>> plan = fedlin.theory.strongly_convex(problem, tau=[2, 5])
    >>> sites = {f"site-{i}": fedlin.Client(fedlin.fedlin(), problem.client(i)).handle for i in range(2)}
    >>> result = fedlin.serve(fedlin.fedlin(), Loopback(sites), plan, rounds=200, dim=3)
    >>> simulated = fedlin.simulate(fedlin.fedlin(), problem, plan, rounds=200)
    >>> bool(abs(result.x - simulated.x).max() < 1e-12)
    True
    """
    rounds = positive_integer("rounds", rounds)
    start = _start(dim, x0, dtype)
    policy = Policy.everyone() if policy is None else policy
    for given, value, kind in (("algorithm", algorithm, Algorithm), ("plan", plan, Plan), ("policy", policy, Policy)):
        if not isinstance(value, kind):
            raise ArgumentError(f"{given} = {value!r} is not allowed: give a fedlin {kind.__name__}.")
    policy.check(algorithm)
    if stop is not None:
        positive("stop", stop)
    if isinstance(expect, str):
        raise ArgumentError(f"expect = {expect!r} is not allowed: give a number of clients, or a list of their names.")
    if expect is not None and not isinstance(expect, Sequence):
        positive_integer("expect", expect)
    handshake = Handshake(algorithm, start.size, start.dtype)
    identity = {
        "contract": json.dumps(handshake.facts),
        "seed": str(check_seed(seed)),
        "starting point": digest(start),
        "plan": digest(plan.tau, plan.eta),
    }
    if name:
        identity["name"] = name
    run = handshake.fingerprint + hashlib.sha256(json.dumps(identity).encode()).digest()[:4]
    place = None if folder is None else open_folder(folder, 0o700)
    with precision(handshake.dtype), closing(Pending(place)) as pending:
        checkpoints = ServerCheckpoints(place, handshake, identity)
        progress = checkpoints.read()
        session = Session(
            handshake,
            plan,
            rounds,
            int(seed),
            secret_words(secret, algorithm, place, central=True),
            policy,
            expect,
            weights,
            Exchange(transport, run, policy, pending),
            RoundLog(place),
            checkpoints,
            progress or ServerState.start(algorithm, start, Roster()),
        )
        if progress is None:
            register(session)
        else:
            session.round_log.resume(progress.round)
            session.round_log.note("resumed", progress.round, rounds=rounds)
            greet_again(session)
        return _play(session, Membership(session, place), stop, on_round)


def _start(dim: int | None, x0: ArrayLike | None, dtype: DTypeLike) -> Array:
    if (dim is None) == (x0 is None):
        raise ArgumentError(
            f"dim = {dim!r} and x0 = {x0!r}: give one of them, the size of the model or the model itself."
        )
    if x0 is None:
        if np.dtype(dtype) not in (np.float32, np.float64):
            raise ArgumentError(f"dtype = {dtype!r} is not allowed: choose float32 or float64.")
        return np.zeros(positive_integer("dim", dim), dtype)
    point = finite("x0", x0, ArgumentError)
    if point.ndim != 1 or point.size == 0:
        raise ArgumentError(f"x0 has shape {point.shape}: give a vector.")
    return point


def _play(session: Session, membership: Membership, stop: float | None, on_round: OnRound | None) -> FederationResult:
    progress = session.progress
    clock = _Clock(session.round_log.last("seconds"))
    status: Status = "done"
    with Interrupt() as interrupt:
        while progress.round < session.rounds:
            try:
                played, attempts = _persist(session, membership, interrupt)
                if played is not None:
                    _watch_norms(session, played.norms)
                    if not _near(np.asarray(played.server.x), progress.origin):
                        raise Diverged
            except Diverged:
                status = "diverged"
                _go_back(session)
                break
            if played is None:
                status = "interrupted"
                break
            line = _commit(session, played, attempts, clock)
            enough = on_round is not None and on_round(progress.round, progress.x, line) is True
            if enough or (stop is not None and line["move"] <= stop):
                status = "stopped"
                break
    progress = session.progress
    if status != "done":
        session.round_log.note(status, progress.round)
    columns = session.round_log.columns(progress.round)
    return FederationResult(
        session.algorithm.name,
        status,
        progress.x,
        **columns,
        events=session.round_log.events,
        clients=session.roster.active,
        seed=session.seed,
        absent=session.roster.absent,
    )


class _Clock:
    """Seconds of the whole run, those before a restart included."""

    def __init__(self, before: float) -> None:
        self._zero = time.monotonic() - before

    def __call__(self) -> float:
        return time.monotonic() - self._zero


def _persist(session: Session, membership: Membership, interrupt: Interrupt) -> tuple[PlayedRound | None, int]:
    """Ask for a round until it is whole; no round if the user wants to end."""
    begun = time.monotonic()
    attempts, pause = 0, session.policy.pause
    while not interrupt.asked:
        attempts += 1
        asked = membership.update()
        played = None if asked is None else attempt_round(session, asked)
        if played is not None:
            return played, attempts
        if time.monotonic() - begun > session.policy.patience:
            raise FederationError(
                f"round {session.progress.round} did not get the answers it needs within {session.policy.patience:g} s"
                f"{session.faults.summary()}. What was done is saved if a folder was given: bring the clients back and "
                "make the same call again."
            )
        until = time.monotonic() + pause
        while time.monotonic() < until and not interrupt.asked:
            time.sleep(min(0.1, pause))
        pause = min(2 * pause, LONGEST_PAUSE)
    return None, attempts


def _watch_norms(session: Session, norms: Mapping[str, Mapping[str, float]]) -> None:
    """Tell of an upload that stands out, and keep the checkpoint before it."""
    suspect = session.norms.enter(session.progress.round, norms)
    if suspect is not None:
        facts = {"client": suspect.client, "norm": suspect.norm, "usual": suspect.usual}
        session.round_log.note("outlier", session.progress.round, why=str(suspect), **facts)
    session.checkpoints.pinned = {one.round for one in session.norms.suspects}


def _go_back(session: Session) -> None:
    """Return to the model before the upload that stands out, or to where it moved least, and say which and why.

    Memories have moved on since, so that they are made anew there. Without a folder there is nothing to go back to.
    """
    suspect = session.norms.suspect()
    why = "no upload stands out: give smaller steps" if suspect is None else str(suspect)
    lines = session.round_log.lines
    last = suspect.round if suspect is not None else min(lines, key=lambda number: lines[number]["move"], default=0)
    rounds = [number for number in session.checkpoints.rounds() if number <= last]
    before = session.checkpoints.read(latest=max(rounds)) if rounds else None
    if before is None:
        session.round_log.note("ruined", session.progress.round, why=why)
        return
    ruined = session.progress.round
    session.checkpoints.remove_after(before.round)
    session.round_log.forget_after(before.round)
    session.progress = before
    culprit = {} if suspect is None else {"client": suspect.client, "norm": suspect.norm, "usual": suspect.usual}
    session.round_log.note("went back", before.round, why=why, ruined=ruined, **culprit)
    session.norms.clear()
    session.start_afresh("the model diverged")


def _near(x: Array, origin: Array) -> bool:
    # The largest entries, since in single precision the square of a large norm is no number.
    return bool(np.max(np.abs(x)) < FAR * (1 + np.max(np.abs(origin))))  # false for NaN too


def _commit(session: Session, played: PlayedRound, attempts: int, clock: _Clock) -> dict[str, Any]:
    """Make the round count: in memory, in the log, on disk."""
    progress, exchange, log = session.progress, session.exchange, session.round_log
    before = progress.x.astype(np.float64)
    progress.server = played.server
    progress.round += 1
    for name in progress.roster.active:
        participant = progress.roster[name]
        participant.base = played.bases.get(name, participant.base)
        answered = name in played.answered
        participant.absences = 0 if answered else participant.absences + 1
        participant.rejections = 0 if answered else participant.rejections
    sums = {
        "bytes_up": played.bytes_up,
        "bytes_down": played.bytes_down,
        "wire_up": exchange.received,
        "wire_down": exchange.sent,
        "gradients": played.gradients,
    }
    totals = {name: log.last(name) + value for name, value in sums.items()}
    line = {
        "round": progress.round,
        "move": float(np.linalg.norm(progress.x - before)),
        "gradient": played.gradient,
        **totals,
        "seconds": clock(),
        "answered": played.answered,
        "late": [name for name in progress.roster.active if name not in played.answered],
        "stale": exchange.stale,
        "attempts": attempts,
    }
    exchange.received = exchange.sent = exchange.stale = 0
    log.enter(line)
    session.checkpoints.write(progress)
    return line
