"""The gate of a site's processes: the server reaches what a run needs, and nobody else anything.

FLARE's own process at a site reads files, deletes folders, runs commands and ends processes where a message asks it
to, and trusts whoever sends it. Here a message of the server's is dropped unless it is one of those that a server sends
in a job of fedlin's (`flare_permissions.py`); of what it may ask, `flare_requests.py` says what is answered. On the
site's own machine its processes hear each other, by the site's certificate, and nobody else's.
"""

from pathlib import Path

from nvflare.fuel.f3.message import Message

from fedlin.transports.flare_messages import SERVER
from fedlin.transports.flare_permissions import refusal_at_site
from fedlin.transports.refusals import Refusals


class SiteGate:
    """Lets the server ask, and the site's own processes.

    Args:
        kit: The site's folder.
        name: The name in the site's certificate.
    """

    def __init__(self, kit: Path, name: str) -> None:
        self.name = name
        self._refusals = Refusals(kit)

    def stranger(self, peer: str | None) -> str | None:
        """Why nobody of this name may connect to a process of this site."""
        return None if peer == self.name else "only this site's own processes connect here"

    def passes(self, peer: str | None, message: Message) -> bool:
        """Whether a message may go on."""
        if peer == self.name:
            return True
        reason = refusal_at_site(self.name, message) if peer is None else self.stranger(peer)
        if reason is not None:
            self.refuse(peer, reason)
        return reason is None

    def refuse(self, peer: str | None, reason: str) -> None:
        """Report that something of a participant's was dropped."""
        self._refusals.dropped(SERVER if peer is None else peer, reason)
