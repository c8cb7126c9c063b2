"""How a site answers the messages of secure sums: from the uploads it would otherwise send as they are."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from fedlin.checks import positive_integer
from fedlin.core import Message
from fedlin.engines.federation import wire
from fedlin.engines.federation.handshake import Handshake
from fedlin.engines.federation.secret import own_secret
from fedlin.engines.federation.secure_encoding import check_terms, encode_upload, shared_noise
from fedlin.engines.federation.secure_masks import derive_key, normal_stream
from fedlin.engines.federation.secure_messages import (
    MaskedTask,
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
        sites: How many sites the federation has.
        quorum: The fewest of them that a sum is over; None: all.
        steps: The τ_i and η_i that were agreed for this site; None: those that the server says.
        folder: Where the site keeps what its noise follows from, and in which sums its uploads count.
        work: Computes an upload.
    """

    def __init__(
        self,
        handshake: Handshake,
        identity: Identity,
        weight: float,
        sites: int | None,
        quorum: int | None,
        steps: tuple[int, float] | None,
        folder: Path | None,
        work: Work,
    ) -> None:
        for name in ("sign", "check", "name", "certificate"):
            if not hasattr(identity, name):
                raise ArgumentError(
                    f"identity = {identity!r} is not allowed: give one such as fedlin.identities.SiteIdentity.generate "
                    "makes."
                )
        self.handshake = handshake
        self.weight = weight
        if sites is None:
            raise ArgumentError("sites = None is not allowed with an identity: give how many the federation has.")
        sites = max(LEAST, positive_integer("sites", sites))
        if quorum is not None and not threshold_of(sites) <= positive_integer("quorum", quorum) <= sites:
            raise ArgumentError(
                f"quorum = {quorum} is not allowed: a secure sum is over {threshold_of(sites)} to {sites} of {sites} "
                "sites."
            )
        self.site = SecureSite(identity, sites, quorum, folder)
        self.steps = steps
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
        offer = self.site.offer_keys(read_keys(header, rest), phases)
        self._replies.clear()
        counted = {upload: one.names for upload, one in self.site.records(header.run).sums.items()}
        return Kind.OFFERED, 0, write_offered(offer.write(), counted)

    def _deal(self, request: bytes, header: Header, rest: memoryview) -> tuple[Kind, int, bytes]:
        return Kind.DEALT, 0, write_table(self.site.deal_shares(*read_directory(header, rest)))

    def _mask(self, request: bytes, header: Header, rest: memoryview) -> tuple[Kind, int, bytes]:
        asked = read_masked_task(header, rest)
        like = self.handshake.phase(header.opening, header.phase).up
        self._check(asked, like)
        answered, rest = wire.read_message(self._work(asked.state, asked.header, asked.task), own=True)
        reply, body = wire.read_reply(rest)
        if answered.kind != Kind.UPLOAD:
            return answered.kind, 0, b""
        terms = asked.request.terms
        # The upload too, since eight bytes alone name the state that it was computed from.
        use = asked.digest + terms.write() + hashlib.sha256(body).digest()
        normals = normal_stream(derive_key(self._secret, "noise", use))
        try:
            words, clear = encode_upload(wire.unpack(body, like), self.weight, terms, normals)
        except WireError as cause:
            facts = wire.write_facts({"reason": str(cause), "finite": not isinstance(cause, NotFiniteError)})
            return Kind.UNFIT, 0, facts
        attempt, members = asked.request.attempt, asked.request.members
        self.site.mask(attempt, header.phase, members, asked.context, asked.upload, words, terms.write())
        return Kind.MASKED, reply.calls, clear + words.astype(words.dtype.newbyteorder("<"), copy=False).tobytes()

    def _check(self, asked: MaskedTask, like: Message) -> None:
        """Refuse what would make an upload, or the sum it counts in, tell more than was agreed."""
        terms, numbers = asked.request.terms, asked.numbers
        if self.steps is not None and (numbers.tau, numbers.eta) != self.steps:
            # Sites whose steps are next to nothing upload what the server knows, and the sum is that of the others.
            raise WireError(
                f"tau = {numbers.tau} and eta = {numbers.eta:g} were asked for, and {self.steps[0]} and "
                f"{self.steps[1]:g} were agreed."
            )
        self.site.records(asked.header.run).check_bound(terms.bound)
        check_terms(like, self.weight, terms)
        directory = self.site.directory(asked.request.attempt)
        sites = max(self.site.sites, len(directory.offers))
        mechanism = dict(enumerate(self.handshake.algorithm.mechanisms)).get(asked.header.phase)
        needed = shared_noise(mechanism, terms.heaviest, directory.threshold - tolerated(sites, directory.threshold))
        if terms.noise < needed * (1 - 1e-12):
            raise WireError(f"noise of {terms.noise:.3g} is to be added, and {needed:.3g} is needed.")

    def _confirm(self, request: bytes, header: Header, rest: memoryview) -> tuple[Kind, int, bytes]:
        asked = UnmaskRequest.read(header, rest)
        return Kind.CONFIRMED, 0, self.site.confirm(asked.attempt, header.phase, asked.survivors)

    def _unmask(self, request: bytes, header: Header, rest: memoryview) -> tuple[Kind, int, bytes]:
        asked = UnmaskRequest.read(header, rest)
        shares = self.site.unmask(asked.attempt, header.phase, asked.survivors, asked.envelopes, asked.confirmations)
        return Kind.UNMASKED, 0, b"".join(shares)
