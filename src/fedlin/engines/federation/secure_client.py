"""How a site answers the messages of secure sums: from the uploads it would otherwise send as they are."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedlin.checks import positive_integer
from fedlin.engines.federation import wire
from fedlin.engines.federation.handshake import Handshake
from fedlin.engines.federation.secret import own_secret
from fedlin.engines.federation.secure_encoding import check_noise, encode_upload, shared_noise
from fedlin.engines.federation.secure_messages import (
    MaskRequest,
    UnmaskRequest,
    read_directory,
    read_keys,
    read_masked_task,
    write_offered,
    write_table,
)
from fedlin.engines.federation.secure_shares import LEAST, threshold_of, tolerated
from fedlin.engines.federation.secure_site import SecureSite
from fedlin.engines.federation.wire import Header, Kind, ReplyHeader
from fedlin.errors import ArgumentError, NotFiniteError, WireError
from fedlin.identities import Identity

Work = Callable[[bytes, Header, memoryview], bytes]  # the reply to a task, with the upload as it is


class SecureAnswers:
    """A site's answers, the same bytes to a message that comes twice.

    Args:
        handshake: What is run.
        identity: What the site signs with.
        weight: What the site's upload counts, whatever the server says.
        sites: How many sites the federation has; fewer than the threshold of so many are no sum.
        folder: Where the site keeps what its noise follows from.
        work: Computes an upload.
    """

    def __init__(
        self, handshake: Handshake, identity: Identity, weight: float, sites: int, folder: Path | None, work: Work
    ) -> None:
        for name in ("sign", "check", "name", "certificate"):
            if not hasattr(identity, name):
                raise ArgumentError(
                    f"identity = {identity!r} is not allowed: give one such as fedlin.identities.SiteIdentity.generate "
                    "makes."
                )
        self.handshake = handshake
        self.weight = weight
        self.site = SecureSite(identity, threshold_of(max(LEAST, positive_integer("sites", sites))))
        self._work = work
        noised = any(mechanism is not None and mechanism.central for mechanism in handshake.algorithm.mechanisms)
        self._secret = own_secret(folder) if noised else b""
        self._replies: dict[bytes, bytes] = {}  # of the present attempt
        self.kinds = {
            Kind.KEYS: self._offer,
            Kind.SHARES: self._deal,
            Kind.MASK: self._mask,
            Kind.CONFIRM: self._confirm,
            Kind.UNMASK: self._unmask,
        }

    def answer(self, request: bytes, header: Header, rest: memoryview) -> bytes:
        """The reply to a message of one of `kinds`."""
        if request not in self._replies:
            kind, calls, body = self.kinds[header.kind](request, header, rest)
            self._replies[request] = wire.write_reply(header._replace(kind=kind), ReplyHeader(request, calls), body)
        return self._replies[request]

    def _offer(self, request: bytes, header: Header, rest: memoryview) -> tuple[Kind, int, bytes]:
        shapes = self.handshake.shapes
        phases = len(shapes.opening if header.opening else shapes.later)
        offer = self.site.offer_keys(read_keys(header.run, rest), phases)
        self._replies.clear()
        return Kind.OFFERED, 0, write_offered(offer.write(), self.site.unmasked)

    def _deal(self, request: bytes, header: Header, rest: memoryview) -> tuple[Kind, int, bytes]:
        return Kind.DEALT, 0, write_table(self.site.deal_shares(*read_directory(header.run, rest)))

    def _mask(self, request: bytes, header: Header, rest: memoryview) -> tuple[Kind, int, bytes]:
        asked = read_masked_task(header, rest)
        self._check_noise(header, asked.request)
        answered, rest = wire.read_message(self._work(asked.state, asked.header, asked.task), own=True)
        reply, body = wire.read_reply(rest)
        if answered.kind != Kind.UPLOAD:
            return answered.kind, 0, b""
        like = self.handshake.phase(header.opening, header.phase).up
        noise = np.random.Generator(np.random.Philox(key=_words(self._secret + asked.state)))
        try:
            words, clear = encode_upload(wire.unpack(body, like), self.weight, asked.request.terms, noise)
        except WireError as cause:
            facts = wire.write_facts({"reason": str(cause), "finite": not isinstance(cause, NotFiniteError)})
            return Kind.UNFIT, 0, facts
        words = words.copy()
        self.site.mask(asked.request.attempt, header.phase, asked.request.members, asked.context, asked.state, words)
        return Kind.MASKED, reply.calls, clear + words.astype(words.dtype.newbyteorder("<"), copy=False).tobytes()

    def _check_noise(self, header: Header, request: MaskRequest) -> None:
        """Refuse less noise than the account of privacy needs with as many sites as may be on the server's side."""
        mechanism = dict(enumerate(self.handshake.algorithm.mechanisms)).get(header.phase)
        threshold = self.site.threshold(request.attempt)
        honest = threshold - tolerated(request.terms.sites, threshold)
        needed = shared_noise(mechanism, request.terms.heaviest, honest)
        if request.terms.noise < needed * (1 - 1e-12):
            raise WireError(f"noise of {request.terms.noise:.3g} is to be added, and {needed:.3g} is needed.")
        check_noise(request.terms)

    def _confirm(self, request: bytes, header: Header, rest: memoryview) -> tuple[Kind, int, bytes]:
        asked = UnmaskRequest.read(header.run, rest)
        return Kind.CONFIRMED, 0, self.site.confirm(asked.attempt, header.phase, asked.survivors)

    def _unmask(self, request: bytes, header: Header, rest: memoryview) -> tuple[Kind, int, bytes]:
        asked = UnmaskRequest.read(header.run, rest)
        shares = self.site.unmask(asked.attempt, header.phase, asked.survivors, asked.envelopes, asked.confirmations)
        return Kind.UNMASKED, 0, b"".join(shares)


def _words(secret: bytes) -> int:
    """128 bits that follow from a secret."""
    return int.from_bytes(hashlib.sha256(secret).digest()[:16])
