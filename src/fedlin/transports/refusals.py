"""What was refused, in the log and the audit trail, seldom enough that nobody can fill a disk with it."""

import logging
import threading
import time
from pathlib import Path

from fedlin.audit import AuditTrail
from fedlin.transports.rate_limit import MINUTE

_MOST = 10  # reasons that are reported of one sender in a minute
_log = logging.getLogger(__name__)


class Refusals:
    """Reports refusals: the same of one sender once a minute, and ten reasons, since a sender can always find another.

    Args:
        kit: The folder whose audit trail has them.
    """

    def __init__(self, kit: Path) -> None:
        self._trail = AuditTrail(kit)
        self._said: dict[str, dict[str, float]] = {}  # what was reported of each sender of late, and when
        self._turn = threading.Lock()

    def report(self, sender: str, line: str, event: str, /, **facts: str) -> None:
        """Write a line to the log and an event to the trail.

        Args:
            sender: Whom the connection proves the sender to be, not what it says that it is.
            line: What the log has.
            event: What happened, in the trail.
            facts: The event's facts; `why` is the reason.
        """
        if self._is_news(sender, facts["why"]):
            _log.warning("%s", line)
            try:
                self._trail.record(event, **facts)
            except OSError as error:  # what was refused stays refused where the disk is full
                _log.warning("the audit trail does not have it: %s", error)

    def dropped(self, sender: str, why: str) -> None:
        """Report that a message, or whatever else came, was dropped.

        Args:
            sender: Who sent it.
            why: The reason.
        """
        self.report(sender, f"dropped a message of {sender}: {why}", "message dropped", sender=sender, why=why)

    def _is_news(self, sender: str, reason: str) -> bool:
        now = time.monotonic()
        with self._turn:
            said = {known: when for known, when in self._said.get(sender, {}).items() if now - when < MINUTE}
            self._said[sender] = said
            if reason in said or len(said) >= _MOST:
                return False
            said[reason] = now
            return True
