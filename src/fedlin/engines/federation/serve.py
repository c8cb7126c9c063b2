"""The server of a federation: the same rounds as `simulate`, on machines that may be slow, restart or vanish."""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fedlin.checks import finite, positive, positive_integer
from fedlin.core import Algorithm
from fedlin.engines.checkpoint import digest, open_folder
from fedlin.engines.federation.contract import Contract
from fedlin.engines.federation.door import Door, register
from fedlin.engines.federation.ledger import FederationResult, Ledger
from fedlin.engines.federation.policy import Policy
from fedlin.engines.federation.post import Post
from fedlin.engines.federation.progress import Progress, Saves
from fedlin.engines.federation.roster import Roster
from fedlin.engines.federation.secret import secret_words
from fedlin.engines.federation.session import Session
from fedlin.engines.federation.turn import Diverged, Turn, take_turn
from fedlin.engines.federation.waiting import Waiting
from fedlin.engines.interrupt import Interrupt
from fedlin.engines.member import check_seed
from fedlin.engines.program import FAR
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
    stop: float | None = None,
    on_round: OnRound | None = None,
) -> FederationResult:
    """Run `rounds` rounds with the clients a transport reaches, from `x0` or from zeros of `dim` entries.

    The run begins once `expect` clients (a number, or their names) can be reached; the plan's entries belong to them in
    the order of their names. With a `folder` the server saves after every round, and the same call goes on from there.
    It ends early when the model moves by at most `stop`, or when `on_round(rounds played, x, measures)` returns True.
    Where the method has the server add noise for privacy, it also depends on a `secret`, as a `Client`'s does: every
    client knows the seed. secret=b"" draws as `simulate` does.

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
    for name, value, kind in (("algorithm", algorithm, Algorithm), ("plan", plan, Plan), ("policy", policy, Policy)):
        if not isinstance(value, kind):
            raise ArgumentError(f"{name} = {value!r} is not allowed: give a fedlin {kind.__name__}.")
    policy.check(algorithm)
    if stop is not None:
        positive("stop", stop)
    if isinstance(expect, str):
        raise ArgumentError(f"expect = {expect!r} is not allowed: give a number of clients, or a list of their names.")
    if expect is not None and not isinstance(expect, Sequence):
        positive_integer("expect", expect)
    contract = Contract(algorithm, start.size, start.dtype)
    identity = {
        "contract": json.dumps(contract.facts),
        "seed": str(check_seed(seed)),
        "starting point": digest(start),
        "plan": digest(plan.tau, plan.eta),
    }
    run = contract.fingerprint + hashlib.sha256(json.dumps(identity).encode()).digest()[:4]
    place = None if folder is None else open_folder(folder)
    with precision(contract.dtype), closing(Waiting(place)) as waiting:
        saves = Saves(place, contract, identity)
        progress = saves.read()
        session = Session(
            contract,
            plan,
            rounds,
            int(seed),
            secret_words(secret, algorithm, place, central=True),
            policy,
            expect,
            Post(transport, run, policy, waiting),
            Ledger(place),
            saves,
            progress or Progress.start(algorithm, start, Roster()),
        )
        if progress is None:
            register(session)
        else:
            session.ledger.resume(progress.round)
            session.ledger.note("resumed", progress.round)
        return _play(session, stop, on_round)


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


def _play(session: Session, stop: float | None, on_round: OnRound | None) -> FederationResult:
    progress, door = session.progress, Door(session)
    clock = _Clock(session.ledger.last("seconds"))
    status: Status = "done"
    with Interrupt() as interrupt:
        while progress.round < session.rounds:
            try:
                turn, attempts = _persist(session, door, interrupt)
            except Diverged:
                status = "diverged"
                break
            if turn is None:
                status = "interrupted"
                break
            if not _near(np.asarray(turn.server.x), progress.origin):
                status = "diverged"
                break
            line = _commit(session, turn, attempts, clock)
            enough = on_round is not None and on_round(progress.round, progress.x, line) is True
            if enough or (stop is not None and line["move"] <= stop):
                status = "stopped"
                break
    if status != "done":
        session.ledger.note(status, progress.round)
    columns = session.ledger.columns(progress.round)
    return FederationResult(
        session.algorithm.name,
        status,
        progress.x,
        **columns,
        events=session.ledger.events,
        clients=session.roster.active,
        seed=session.seed,
    )


class _Clock:
    """Seconds of the whole run, those before a restart included."""

    def __init__(self, before: float) -> None:
        self._zero = time.monotonic() - before

    def __call__(self) -> float:
        return time.monotonic() - self._zero


def _persist(session: Session, door: Door, interrupt: Interrupt) -> tuple[Turn | None, int]:
    """Ask for a round until it is whole; no turn if the user wants to end."""
    deadline = time.monotonic() + session.policy.patience
    attempts = 0
    while not interrupt.asked:
        attempts += 1
        asked = door.tend()
        turn = None if asked is None else take_turn(session, asked)
        if turn is not None:
            return turn, attempts
        if time.monotonic() > deadline:
            raise FederationError(
                f"round {session.progress.round} did not get the answers it needs within "
                f"{session.policy.patience:g} s. What was done is "
                "saved if a folder was given: bring the clients back and make the same call again."
            )
        time.sleep(session.policy.pause)
    return None, attempts


def _near(x: Array, origin: Array) -> bool:
    # The largest entries, since in single precision the square of a large norm is no number.
    return bool(np.max(np.abs(x)) < FAR * (1 + np.max(np.abs(origin))))  # false for NaN too


def _commit(session: Session, turn: Turn, attempts: int, clock: _Clock) -> dict[str, Any]:
    """Make the round count: in memory, in the log, on disk."""
    progress, post, ledger = session.progress, session.post, session.ledger
    before = progress.x.astype(np.float64)
    progress.server = turn.server
    progress.round += 1
    for name in progress.roster.active:
        seat = progress.roster[name]
        seat.base = turn.bases.get(name, seat.base)
        answered = name in turn.answered
        seat.absences = 0 if answered else seat.absences + 1
        seat.rejections = 0 if answered else seat.rejections
    sums = {
        "bytes_up": turn.bytes_up,
        "bytes_down": turn.bytes_down,
        "wire_up": post.received,
        "wire_down": post.sent,
        "gradients": turn.gradients,
    }
    totals = {name: ledger.last(name) + value for name, value in sums.items()}
    line = {
        "round": progress.round,
        "move": float(np.linalg.norm(progress.x - before)),
        "gradient": turn.gradient,
        **totals,
        "seconds": clock(),
        "answered": turn.answered,
        "late": [name for name in progress.roster.active if name not in turn.answered],
        "stale": post.stale,
        "attempts": attempts,
    }
    post.received = post.sent = post.stale = 0
    ledger.enter(line)
    session.saves.write(progress)
    return line
