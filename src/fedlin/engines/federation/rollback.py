"""What is done about a model that is ruined: the upload that did it is named, and the run goes back to before it."""

from collections.abc import Mapping

from fedlin.engines.federation.replies import norm
from fedlin.engines.federation.session import Session


def watch_norms(session: Session, norms: Mapping[str, Mapping[str, float]]) -> None:
    """Tell of an upload that stands out, and keep the checkpoint before it."""
    suspect = session.norms.enter(session.progress.round, norms, norm([session.progress.x]))
    if suspect is not None:
        facts = {
            "client": suspect.client,
            "norm": suspect.norm,
            "usual": suspect.usual,
            "largest": session.norms.largest,
        }
        session.round_log.note("outlier", session.progress.round, why=str(suspect), **facts)
    session.checkpoints.pinned = {known.round for known in session.norms.suspects}


def go_back(session: Session) -> None:
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
