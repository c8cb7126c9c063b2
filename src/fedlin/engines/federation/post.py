"""Sends requests and sorts the replies: those that count, those that came too late, those that are not acceptable."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np

from fedlin.core import Message
from fedlin.engines import wire
from fedlin.engines.federation.policy import Policy
from fedlin.engines.federation.waiting import Waiting
from fedlin.engines.wire import Kind, Reply
from fedlin.errors import NotFiniteError, WireError
from fedlin.payloads import decode
from fedlin.transports.transport import Transport

ANSWERS = (Kind.GREETING, Kind.BEGUN, Kind.UPLOAD)


class Letter(NamedTuple):
    """A reply to the request that was sent, not to an earlier one."""

    kind: Kind
    reply: Reply
    body: memoryview


class Post:
    """One transport, and the count of all that went through it."""

    def __init__(self, transport: Transport, run: bytes, policy: Policy, waiting: Waiting) -> None:
        self.transport = transport
        self.run = run
        self.policy = policy
        self.waiting = waiting
        self.sent = 0
        self.received = 0
        self.stale = 0  # replies to earlier requests, dropped

    def exchange(
        self, played: int, route: str, requests: Mapping[str, bytes], needed: int | None
    ) -> tuple[dict[str, Letter], dict[str, str]]:
        """The letters by name in the order of the requests, and why others were not accepted.

        With `needed` the exchange may end as soon as so many have answered.
        """
        opened: dict[str, Letter | WireError | None] = {}

        def enough(replies: Mapping[str, bytes]) -> bool:
            for name in replies.keys() & requests.keys() - opened.keys():
                opened[name] = self._open(replies[name], requests[name])
                if isinstance(opened[name], Letter):
                    self.waiting.hear(name)
            answers = sum(isinstance(letter, Letter) and letter.kind in ANSWERS for letter in opened.values())
            return needed is not None and answers >= needed

        self.waiting.ask(played, route, list(requests))
        replies = self.transport.exchange(route, requests, list(requests), self.policy.timeout, enough)
        enough(replies)  # a transport need not ask about the last ones
        self.waiting.go_on()
        self.sent += sum(map(len, requests.values()))
        self.received += sum(map(len, replies.values()))
        self.stale += sum(letter is None for letter in opened.values())
        found = {name: opened[name] for name in requests if name in opened}
        letters = {name: letter for name, letter in found.items() if isinstance(letter, Letter)}
        return letters, {name: str(cause) for name, cause in found.items() if isinstance(cause, WireError)}

    def _open(self, raw: bytes, request: bytes) -> Letter | WireError | None:
        """The letter, why it is none, or None where it answers an earlier request."""
        try:
            stamp, rest = wire.unseal(raw)
            reply, body = wire.read_reply(rest)
        except WireError as cause:
            return cause
        ours = stamp.run == self.run and reply.request == wire.identify(request)
        return Letter(stamp.kind, reply, body) if ours else None


class Sorted(NamedTuple):
    """The letters of one phase."""

    uploads: dict[str, Message]
    calls: int
    lost: list[str]  # clients without the state they were to go on from
    refused: dict[str, str]  # why an upload was not accepted
    declined: dict[str, str]  # why a client did not accept the request
    diverged: bool  # all that came was not finite


def sort_uploads(letters: Mapping[str, Letter], like: Message, norm_bound: float | None) -> Sorted:
    """Check every upload: structure, indices, finite numbers, and the norm if it is bounded."""
    uploads: dict[str, Message] = {}
    refused, declined, lost, calls, infinite = {}, {}, [], 0, 0
    for name, letter in letters.items():
        if letter.kind == Kind.LOST:
            lost.append(name)
            continue
        if letter.kind != Kind.UPLOAD:
            declined[name] = reason(letter)
            continue
        try:
            upload = wire.unpack(letter.body, like)
            _check_norm(upload, norm_bound)
        except WireError as cause:
            refused[name] = str(cause)
            infinite += isinstance(cause, NotFiniteError)
            continue
        uploads[name] = upload
        calls += letter.reply.calls
    return Sorted(uploads, calls, lost, refused, declined, diverged=infinite > 0 and infinite == len(letters))


def reason(letter: Letter) -> str:
    """Why a client gave no answer of the kind it was asked for."""
    if letter.kind != Kind.REFUSED:
        return f"a {letter.kind.name} message is no answer here."
    try:
        return str(wire.read_facts(letter.body).get("reason", "no reason given"))[: wire.REASON_LIMIT]
    except WireError as cause:
        return str(cause)


def _check_norm(upload: Message, bound: float | None) -> None:
    if bound is None:
        return
    norm = np.sqrt(sum(float(np.sum(np.asarray(leaf, np.float64) ** 2)) for leaf in jax.tree.leaves(decode(upload))))
    if not norm <= bound:
        raise WireError(f"the upload has norm {norm:.3g}, and {bound:.3g} is allowed.")
