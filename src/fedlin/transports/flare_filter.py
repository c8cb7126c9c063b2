"""A component of FLARE's server process that lets a site reach the server and no other site.

All connections of a federation end at the server, which passes messages on by the names in their headers. FLARE lets a
site address another one, under any name it likes to give, and lets every participant ask any other process to end. With
this filter a message is dropped unless the certificate of the connection it came on allows it: a site's message has to
be for the server, in the site's own name, no longer than the run needs, and one of those that sites send
(`flare_permissions.py`); who is not a site in the server's settings, be it that it was one, is not heard at all. The
settings are those of the latest run.
"""

import logging
import tomllib
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, MessagePropKey, MessageType
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    StreamDataType,
    StreamHeaderKey,
)
from nvflare.private.defs import CellChannelTopic, CellMessageHeaderKeys

from fedlin.transports.flare_messages import SERVER
from fedlin.transports.flare_permissions import refusal
from fedlin.transports.message_limit import AGAIN, Part, PartCounter, read_limit
from fedlin.transports.refusals import Refusals

_TOKENS = 4  # of a name that are remembered
_STREAM = f"{STREAM_CHANNEL}:{STREAM_DATA_TOPIC}"  # where FLARE's processes wait for parts of messages
_PARTS = (StreamDataType.CHUNK, StreamDataType.FINAL)
_log = logging.getLogger(__name__)


class SiteFilter(FLComponent):  # type: ignore[misc] # FLARE has no types
    """Installs the filter when the server starts."""

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """FLARE's hook."""
        if event_type == EventType.SYSTEM_START:
            core = fl_ctx.get_engine().get_cell().core_cell
            host = core.identity_resolver.resolve(SERVER)
            core.add_incoming_filter("*", "*", _Filter(host, _kit(fl_ctx) / "federation.toml").check)


def _kit(fl_ctx: Any) -> Path:
    return Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_root_dir())


class _Filter:
    """Knows the server by the name in its certificate, and the sites by the server's settings, as they are now."""

    def __init__(self, host: str, settings: Path) -> None:
        self.host = host
        self.settings = settings
        self._read: tuple[float, set[str]] = (0.0, set())
        self._refusals = Refusals(settings.parent)
        self._parts = PartCounter()
        self._twins = TwinWatch()

    def sites(self) -> set[str] | None:
        """The names in the settings' table of sites; None before the first run.

        Where the file cannot be read, those of before: a run that goes on does not depend on it.
        """
        try:
            changed = self.settings.stat().st_mtime
        except FileNotFoundError:
            return None
        if changed != self._read[0]:
            known = self._read[1]
            try:
                known = set(tomllib.loads(self.settings.read_text(encoding="utf-8")).get("sites", {}))
            except (ValueError, AttributeError, TypeError, RecursionError) as error:
                _log.warning("%s cannot be read, and the sites are those of before: %s", self.settings, error)
            self._read = changed, known
        return self._read[1]

    def check(self, message: Message) -> Message | None:
        """None for a message that may go on; a message in its place for one that FLARE is to drop."""
        sender = str(message.get_prop(MessagePropKey.COMMON_NAME))
        if sender == self.host:
            return None
        header = message.get_header
        sites = self.sites()
        reason = refusal(sender, "@" not in sender if sites is None else sender in sites, message)
        if reason is None and "@" not in sender:
            reason = self._too_long(sender, message)
        if reason is None:
            if header(MessageHeaderKey.TOPIC) == CellChannelTopic.HEART_BEAT:
                self._look_for_twins(sender, str(header(CellMessageHeaderKeys.TOKEN)))
            return None
        if reason != AGAIN:
            line = f"dropped a message of {sender}: {reason}"
            self._refusals.report(sender, line, "message dropped", sender=sender, why=reason)
        return Message()

    def _look_for_twins(self, sender: str, token: str) -> None:
        why = "two machines take part under this name, each with a copy of its folder: jobs go to the one started last"
        if self._twins.seen(sender, token):
            self._refusals.report(sender, f"{sender}: {why}", "two machines", sender=sender, why=why)

    def _too_long(self, sender: str, message: Message) -> str | None:
        header = message.get_header
        length, limit = len(message.payload or b""), read_limit(self.settings.parent)
        declared = header(StreamHeaderKey.SIZE) or 0
        if not isinstance(declared, int):
            return "it does not say how long it is"
        if not _is_part(message):
            return self._parts.check(sender, Part(length, declared=declared), limit)
        stream, number = header(StreamHeaderKey.STREAM_ID), header(StreamHeaderKey.SEQUENCE)
        kind = header(StreamHeaderKey.DATA_TYPE)
        if kind not in _PARTS or not isinstance(stream, int) or not isinstance(number, int) or number < 0:
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
