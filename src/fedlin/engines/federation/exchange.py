"""Sends requests and sorts the replies: those that count, those that came too late, those that are not acceptable."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np

from fedlin.core import Message
from fedlin.engines.federation import wire
from fedlin.engines.federation.pending import Pending
from fedlin.engines.federation.policy import Policy
from fedlin.engines.federation.wire import Kind, ReplyHeader
from fedlin.errors import NotFiniteError, WireError
from fedlin.payloads import decode
from fedlin.transports.transport import Transport

ANSWERS = (Kind.GREETING, Kind.BEGUN, Kind.UPLOAD)


class Reply(NamedTuple):
    """A reply to the request that was sent, not to an earlier one."""

    kind: Kind
    header: ReplyHeader
    body: memoryview


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

    def exchange(
        self, played: int, route: str, requests: Mapping[str, bytes], needed: int | None
    ) -> tuple[dict[str, Reply], dict[str, str]]:
        """The replies by name in the order of the requests, and why others were not accepted.

        With `needed` the exchange may end as soon as so many have answered.
        """
        opened: dict[str, Reply | WireError | None] = {}

        def enough(replies: Mapping[str, bytes]) -> bool:
            for name in replies.keys() & requests.keys() - opened.keys():
                opened[name] = self._open(replies[name], requests[name])
                if isinstance(opened[name], Reply):
                    self.pending.hear(name)
            answers = sum(isinstance(reply, Reply) and reply.kind in ANSWERS for reply in opened.values())
            return needed is not None and answers >= needed

        self.pending.ask(played, route, list(requests))
        replies = self.transport.exchange(route, requests, list(requests), self.policy.timeout, enough)
        enough(replies)  # a transport need not ask about the last ones
        self.pending.go_on()
        self.sent += sum(map(len, requests.values()))
        self.received += sum(map(len, replies.values()))
        self.stale += sum(reply is None for reply in opened.values())
        found = {name: opened[name] for name in requests if name in opened}
        answers = {name: reply for name, reply in found.items() if isinstance(reply, Reply)}
        return answers, {name: str(cause) for name, cause in found.items() if isinstance(cause, WireError)}

    def _open(self, raw: bytes, request: bytes) -> Reply | WireError | None:
        """The reply, why it is none, or None where it answers an earlier request."""
        try:
            stamp, rest = wire.unseal(raw)
            reply, body = wire.read_reply(rest)
        except WireError as cause:
            return cause
        ours = stamp.run == self.run and reply.request == wire.identify(request)
        return Reply(stamp.kind, reply, body) if ours else None


class SortedReplies(NamedTuple):
    """The replies of one phase."""

    uploads: dict[str, Message]
    calls: int
    lost: list[str]  # clients without the state they were to go on from
    refused: dict[str, str]  # why an upload was not accepted
    declined: dict[str, str]  # why a client did not accept the request
    diverged: bool  # all that came was not finite


def sort_uploads(replies: Mapping[str, Reply], like: Message, norm_bound: float | None) -> SortedReplies:
    """Check every upload: structure, indices, finite numbers, and the norm if it is bounded."""
    uploads: dict[str, Message] = {}
    refused, declined, lost, calls, infinite = {}, {}, [], 0, 0
    for name, reply in replies.items():
        if reply.kind == Kind.LOST:
            lost.append(name)
            continue
        if reply.kind != Kind.UPLOAD:
            declined[name] = reason(reply)
            continue
        try:
            upload = wire.unpack(reply.body, like)
            _check_norm(upload, norm_bound)
        except WireError as cause:
            refused[name] = str(cause)
            infinite += isinstance(cause, NotFiniteError)
            continue
        uploads[name] = upload
        calls += reply.header.calls
    return SortedReplies(uploads, calls, lost, refused, declined, diverged=infinite > 0 and infinite == len(replies))


def reason(reply: Reply) -> str:
    """Why a client gave no answer of the kind it was asked for."""
    if reply.kind != Kind.REFUSED:
        return f"a {reply.kind.name} message is no answer here."
    try:
        return str(wire.read_facts(reply.body).get("reason", "no reason given"))[: wire.REASON_LIMIT]
    except WireError as cause:
        return str(cause)


def _check_norm(upload: Message, bound: float | None) -> None:
    if bound is None:
        return
    norm = np.sqrt(sum(float(np.sum(np.asarray(leaf, np.float64) ** 2)) for leaf in jax.tree.leaves(decode(upload))))
    if not norm <= bound:
        raise WireError(f"the upload has norm {norm:.3g}, and {bound:.3g} is allowed.")
