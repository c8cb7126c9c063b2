"""The gate of the server's own process, which lets a site reach the server and no site another.

All connections of a federation end at the server, which passes messages on by the names in their heads. FLARE lets a
site address another one, under any name it likes to give, and lets every participant ask any other process to end. Here
a message is dropped unless the certificate of the connection it came on allows it: a site's message has to be for the
server, in the site's own name, no longer than the run needs, and one of those that sites send
(`flare_permissions.py`); who is not a site in the server's settings, be it that it was one, cannot connect. The
settings are those of the latest run.
"""

import logging
import tomllib
from pathlib import Path

from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, MessageType
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    StreamDataType,
    StreamHeaderKey,
)
from nvflare.private.defs import CellChannelTopic, CellMessageHeaderKeys

from fedlin.transports.flare_permissions import refusal_at_server
from fedlin.transports.message_limit import AGAIN, Part, PartCounter, read_limit
from fedlin.transports.refusals import Refusals

_TOKENS = 4  # of a name that are remembered
_STREAM = f"{STREAM_CHANNEL}:{STREAM_DATA_TOPIC}"  # where FLARE's processes wait for parts of messages
_PARTS = (StreamDataType.CHUNK, StreamDataType.FINAL)
_STRANGER = "it is not a site of this federation"
_log = logging.getLogger(__name__)


class ServerGate:
    """Knows the sites by the server's settings, as they are now.

    Args:
        kit: The server's folder.
        host: The name in the server's certificate.
    """

    def __init__(self, kit: Path, host: str) -> None:
        self.host = host
        self._kit = kit
        self._settings = kit / "federation.toml"
        self._read: tuple[float, set[str]] = (0.0, set())
        self._refusals = Refusals(kit)
        self._parts = PartCounter()
        self._twins = TwinWatch()

    def sites(self) -> set[str] | None:
        """The names in the settings' table of sites; None before the first run.

        Where the file cannot be read, or is gone, those of before: a run that goes on does not depend on it.
        """
        try:
            changed = self._settings.stat().st_mtime
        except OSError:
            return self._read[1] if self._read[0] else None
        if changed != self._read[0]:
            known = self._read[1]
            try:
                known = set(tomllib.loads(self._settings.read_text(encoding="utf-8")).get("sites", {}))
            except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
                _log.warning("%s cannot be read, and the sites are those of before: %s", self._settings, error)
            self._read = changed, known
        return self._read[1]

    def stranger(self, peer: str | None) -> str | None:
        """Why nobody of this name may connect; FLARE's users and the server's own processes may."""
        if peer is None:
            return "its certificate has no name"
        if "@" in peer or peer == self.host:
            return None
        sites = self.sites()
        return None if sites is None or peer in sites else _STRANGER

    def passes(self, peer: str | None, message: Message) -> bool:
        """Whether a message may go on."""
        if peer == self.host:
            return True
        reason = self.stranger(peer)
        if peer is None or reason is not None:
            self.refuse(peer, str(reason))
            return False
        reason = refusal_at_server(peer, message)
        if reason is None and "@" not in peer:
            reason = self._too_long(peer, message)
        if reason is None:
            if message.get_header(MessageHeaderKey.TOPIC) == CellChannelTopic.HEART_BEAT:
                self._look_for_twins(peer, str(message.get_header(CellMessageHeaderKeys.TOKEN)))
            return True
        if reason != AGAIN:
            self.refuse(peer, reason)
        return False

    def refuse(self, peer: str | None, reason: str) -> None:
        """Report that something of a participant's was dropped."""
        self._refusals.dropped(str(peer), reason)

    def _look_for_twins(self, sender: str, token: str) -> None:
        why = "two machines take part under this name, each with a copy of its folder: jobs go to the one started last"
        if self._twins.seen(sender, token):
            self._refusals.report(sender, f"{sender}: {why}", "two machines", sender=sender, why=why)

    def _too_long(self, sender: str, message: Message) -> str | None:
        header = message.get_header
        length, limit = len(message.payload or b""), read_limit(self._kit)
        declared = header(StreamHeaderKey.SIZE) or 0
        if not _is_part(message):
            return self._parts.check(sender, Part(length, declared=declared), limit)
        stream, number = header(StreamHeaderKey.STREAM_ID), header(StreamHeaderKey.SEQUENCE)
        kind = header(StreamHeaderKey.DATA_TYPE)
        if kind not in _PARTS or stream is None or number is None or number < 0:
            return "it does not say which part of a message it is"
        # Each of a participant's processes counts its streams by itself, and each receiver puts together what it gets.
        name = f"{stream} {header(MessageHeaderKey.ORIGIN)} {header(MessageHeaderKey.DESTINATION)}"
        return self._parts.check(sender, Part(length, name, number, kind == StreamDataType.FINAL, declared), limit)


class TwinWatch:
    """Finds names under which two machines are alive, by the tokens that FLARE gave them when they registered.

    A site that is started again has a new token, and the former is not seen any more; one message may have been late.

    >>> watch = TwinWatch()
    >>> [watch.seen("south", token) for token in "aaabbab"], [watch.seen("south", token) for token in "ab"]
    ([False, False, False, False, False, False, False], [True, False])
    """

    def __init__(self) -> None:
        self._tokens: dict[str, dict[str, int]] = {}  # of each name: how often each was seen after a newer one

    def seen(self, name: str, token: str) -> bool:
        """A sign of life; whether it is at least the second of one that is not the newest of this name."""
        known = self._tokens.setdefault(name, {})
        if token not in known:
            known[token] = 0
            while len(known) > _TOKENS:
                del known[next(iter(known))]
            return False
        newest = next(reversed(known))
        known[token] += token != newest
        return token != newest and known[token] > 1


def _is_part(message: Message) -> bool:
    """Whether its receiver will put a message together with others, whatever else its sender says that it is."""
    header = message.get_header
    place = f"{header(MessageHeaderKey.CHANNEL)}:{header(MessageHeaderKey.TOPIC)}"
    if place != _STREAM or header(MessageHeaderKey.MSG_TYPE) != MessageType.REQ:
        return False
    return not header(StreamHeaderKey.ERROR_MSG)  # with which a sender says that it gives the rest up
