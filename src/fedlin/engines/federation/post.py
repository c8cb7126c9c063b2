"""Sends requests and sorts the replies: those that count, those that came too late, those that are not acceptable."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np

from fedlin.core import Message
from fedlin.engines import wire
from fedlin.engines.federation.policy import Policy
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

    def __init__(self, transport: Transport, run: bytes, policy: Policy) -> None:
        self.transport = transport
        self.run = run
        self.policy = policy
        self.sent = 0
        self.received = 0
        self.stale = 0  # replies to earlier requests, dropped

    def exchange(
        self, route: str, requests: Mapping[str, bytes], needed: int | None
    ) -> tuple[dict[str, Letter], dict[str, str]]:
        """The letters by name in the order of the requests, and why others were not accepted.

        With `needed` the exchange may end as soon as so many have answered.
        """
        names = {name: wire.identify(request) for name, request in requests.items()}
        answers: dict[str, bool] = {}

        def enough(replies: Mapping[str, bytes]) -> bool:
            for name in replies.keys() - answers.keys():
                answers[name] = self._answers(replies[name], names.get(name))
            return sum(answers.values()) >= (needed or 0)

        replies = self.transport.exchange(
            route, requests, list(requests), self.policy.timeout, None if needed is None else enough
        )
        self.sent += sum(map(len, requests.values()))
        self.received += sum(map(len, replies.values()))
        letters, refused = {}, {}
        for name in requests:
            if name in replies:
                try:
                    letter = self._open(replies[name])
                except WireError as cause:
                    refused[name] = str(cause)
                    continue
                if letter is not None and letter.reply.request == names[name]:
                    letters[name] = letter
                else:
                    self.stale += 1
        return letters, refused

    def _open(self, raw: bytes) -> Letter | None:
        stamp, rest = wire.unseal(raw)
        reply, body = wire.read_reply(rest)
        return Letter(stamp.kind, reply, body) if stamp.run == self.run else None

    def _answers(self, raw: bytes, request: bytes | None) -> bool:
        try:
            letter = self._open(raw)
        except WireError:
            return False
        return letter is not None and letter.kind in ANSWERS and letter.reply.request == request


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
        try:
            if letter.kind != Kind.UPLOAD:
                declined[name] = reason(letter)
                continue
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
    """Why a client refused."""
    if letter.kind != Kind.REFUSED:
        return f"a {letter.kind.name} message is no answer here."
    return str(wire.read_facts(letter.body).get("reason", "no reason given"))[:1000]


def _check_norm(upload: Message, bound: float | None) -> None:
    if bound is None:
        return
    norm = np.sqrt(sum(float(np.sum(np.asarray(leaf, np.float64) ** 2)) for leaf in jax.tree.leaves(decode(upload))))
    if not norm <= bound:
        raise WireError(f"the upload has norm {norm:.3g}, and {bound:.3g} is allowed.")
