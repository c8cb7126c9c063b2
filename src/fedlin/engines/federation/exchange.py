"""Sends requests and gathers the replies: those that answer them, those that came too late, those that are damaged."""

import time
from collections import deque
from collections.abc import Collection, Mapping
from typing import NamedTuple

from fedlin.checks import printable
from fedlin.engines.federation import wire
from fedlin.engines.federation.pending import Pending
from fedlin.engines.federation.policy import Policy
from fedlin.engines.federation.wire import Kind, ReplyHeader
from fedlin.errors import WireError
from fedlin.transports.transport import Transport

ANSWERS = (
    *(Kind.GREETING, Kind.BEGUN, Kind.UPLOAD, Kind.METRICS, Kind.RECEIVED),
    *(Kind.OFFERED, Kind.DEALT, Kind.MASKED, Kind.CONFIRMED, Kind.UNMASKED),
)
UNKNOWN = 1.0  # seconds an answer is taken to need where none has come yet
MARGIN = 0.1  # seconds more than twice of what an answer took
LATEST = 8  # answers of a client that tell how long the next may take: on a busy machine one tells little
REMEMBERED = 16  # requests to each client whose late answers tell how long it takes


class Reply(NamedTuple):
    """A reply to the request that was sent, not to an earlier one."""

    kind: Kind
    header: ReplyHeader
    body: memoryview


class Gathered(NamedTuple):
    """What came of an exchange, by client in the order of the requests."""

    replies: dict[str, Reply]
    damaged: dict[str, str]  # why what came is no message
    silent: dict[str, str]  # why nothing came from those who were waited for


class Exchange:
    """One transport, and the count of all that went through it."""

    def __init__(self, transport: Transport, run: bytes, policy: Policy, pending: Pending) -> None:
        self.transport = transport
        self.run = run
        self.policy = policy
        self.pending = pending
        self.sent = 0
        self.received = 0
        self.stale = 0  # replies to earlier requests, dropped
        self.seconds: dict[str, float] = {}  # that each client's latest answer took, in time or not
        self.heard: set[str] = set()  # who has answered, in time or not, since it was last waited for in particular
        self._took: dict[str, deque[float]] = {}  # the same of its latest few
        self._asked: dict[str, dict[bytes, float]] = {}  # when the latest requests to each client began, by identifier

    def exchange(
        self,
        played: int,
        route: str,
        requests: Mapping[str, bytes],
        needed: int | None = None,
        due: Collection[str] = (),
    ) -> Gathered:
        """Ask, and wait for everyone; with `needed` only until so many have answered and those who are `due` have.

        Who is due is waited for about twice as long as the slowest of its latest answers took, so that one that does
        not answer at all costs little.
        """
        begun, opened, seen = time.monotonic(), dict[str, Reply | WireError | None](), dict[str, bytes]()
        wait = {name: 2 * max(self._took.get(name, (UNKNOWN,))) + MARGIN for name in due if name in requests}
        early = False
        for name, request in requests.items():
            self._remember(name, wire.identify(request), begun)

        def enough(replies: Mapping[str, bytes]) -> bool:
            nonlocal early
            for name, raw in replies.items():
                if seen.get(name) is not raw:  # a late reply to an earlier request may come before the one awaited
                    seen[name] = raw
                    opened[name] = self._open(name, raw, requests.get(name))
                    if isinstance(opened[name], Reply):
                        self.pending.answered(name)
                    self.received += len(raw)
                    self.stale += opened[name] is None
            answers = sum(isinstance(reply, Reply) and reply.kind in ANSWERS for reply in opened.values())
            waited = time.monotonic() - begun
            early = needed is not None and answers >= needed
            return early and all(waited > limit or opened.get(name) is not None for name, limit in wait.items())

        self.pending.begin(played, route, list(requests))
        replies = self.transport.exchange(route, requests, list(requests), self.policy.timeout, enough)
        enough(replies)  # a transport need not ask about the last ones
        self.pending.end()
        self.sent += sum(map(len, requests.values()))
        answers = {name: opened[name] for name in requests if opened.get(name) is not None}
        return Gathered(
            {name: reply for name, reply in answers.items() if isinstance(reply, Reply)},
            {name: str(cause) for name, cause in answers.items() if isinstance(cause, WireError)},
            self._silent([name for name in requests if name not in answers], early),
        )

    def _silent(self, missing: list[str], early: bool) -> dict[str, str]:
        """Why nothing came from whom; who was merely not waited for any longer is not silent."""
        told: Mapping[str, str] = getattr(self.transport, "failures", {})
        failures = {name: printable(why, wire.REASON_LIMIT) for name, why in told.items()}  # it may quote the client
        if early:
            return {name: why for name, why in failures.items() if name in missing}
        return {name: failures.get(name, f"no answer within {self.policy.timeout:g} s") for name in missing}

    def _remember(self, name: str, request: bytes, when: float) -> None:
        asked = self._asked.setdefault(name, {})
        asked.setdefault(request, when)
        while len(asked) > REMEMBERED:
            del asked[next(iter(asked))]

    def _open(self, name: str, raw: bytes, request: bytes | None) -> Reply | WireError | None:
        """The reply, why it is none, or None where it answers an earlier request."""
        try:
            header, rest = wire.read_message(raw)
            reply, body = wire.read_reply(rest)
        except WireError as cause:
            return cause
        asked = self._asked.get(name, {}).pop(reply.request, None)
        if asked is not None:
            self.seconds[name] = time.monotonic() - asked
            self._took.setdefault(name, deque(maxlen=LATEST)).append(self.seconds[name])
            self.heard.add(name)
        ours = request is not None and header.run == self.run and reply.request == wire.identify(request)
        return Reply(header.kind, reply, body) if ours else None
