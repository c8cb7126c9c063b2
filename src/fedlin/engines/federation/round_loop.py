"""The rounds of a run: asked again until each is whole, made to count and evaluated, until the run is over."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fedlin.core import Array
from fedlin.engines.federation.attempt import Diverged, PlayedRound, attempt_round
from fedlin.engines.federation.central_metrics import CentralMetrics
from fedlin.engines.federation.evaluation import Evaluation, FederationEvaluator
from fedlin.engines.federation.membership import Membership
from fedlin.engines.federation.policy import LONGEST_PAUSE
from fedlin.engines.federation.replies import norm
from fedlin.engines.federation.rollback import go_back, watch_norms
from fedlin.engines.federation.session import Session
from fedlin.engines.interrupt import Interrupt
from fedlin.engines.simulation.stop import FAR
from fedlin.errors import FederationError
from fedlin.result import Status

OnRound = Callable[[int, Array, dict[str, Any]], object]


def play_rounds(
    session: Session,
    membership: Membership,
    evaluator: FederationEvaluator,
    stop: float | None,
    on_round: OnRound | None,
    central: CentralMetrics | None = None,
) -> Status:
    """Play what is left of a run; how it ended."""
    clock = _Clock(session.round_log.last("seconds"))
    with Interrupt() as interrupt:
        while (progress := session.progress).round < session.rounds:
            try:
                played, attempts = _persist(session, membership, interrupt)
                if played is None:
                    return "interrupted"
                watch_norms(session, played.norms)
                if not _near(np.asarray(played.server.x), progress.origin):
                    raise Diverged
            except Diverged:
                go_back(session)
                return "diverged"
            line = _commit(session, played, attempts, clock)
            if central is not None:
                values = central.after_round(session)
                line = {**line, **values}
                if evaluator.central in values:
                    evaluator.consider(evaluator.central, values[evaluator.central], Evaluation())
                if central.reached(values):
                    return "stopped"
            enough = on_round is not None and on_round(progress.round, progress.x, line) is True
            enough |= evaluator.after_round()
            if enough or (stop is not None and line["move"] <= stop):
                return "stopped"
    return "done"


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
        there = set(session.exchange.transport.clients())
        names = membership.update()
        played = None if names is None else attempt_round(session, names)
        if played is not None:
            return played, attempts
        if time.monotonic() - begun > session.policy.patience:
            raise FederationError(
                f"round {session.progress.round} did not get the answers it needs within {session.policy.patience:g} s"
                f"{session.faults.summary()}. What was done is saved if a folder was given: bring the clients back and "
                "make the same call again."
            )
        until = time.monotonic() + pause
        while time.monotonic() < until and not interrupt.asked and there >= set(session.exchange.transport.clients()):
            time.sleep(min(0.1, pause))
        pause = min(2 * pause, LONGEST_PAUSE)
    return None, attempts


def _near(x: Array, origin: Array) -> bool:
    # The largest entries, since in single precision the square of a large norm is no number.
    return bool(np.max(np.abs(x)) < FAR * (1 + np.max(np.abs(origin))))  # false for NaN too


def _commit(session: Session, played: PlayedRound, attempts: int, clock: _Clock) -> dict[str, Any]:
    """Make the round count: in memory, in the log, on disk."""
    progress, exchange, log = session.progress, session.exchange, session.round_log
    before = progress.x.astype(np.float64)
    progress.server = played.server
    progress.round += 1
    for name in played.expected:
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
        "move": norm([progress.x - before]),
        "gradient": played.gradient,
        **totals,
        "seconds": clock(),
        "answered": played.answered,
        "late": [name for name in played.expected if name not in played.answered],
        "stale": exchange.stale,
        "attempts": attempts,
        "took": {name: round(seconds, 3) for name, seconds in exchange.seconds.items()},
    }
    exchange.received = exchange.sent = exchange.stale = 0
    log.enter(line)
    session.checkpoints.write(progress)
    return line
