"""Secure sums over a transport: the exchanges of one attempt at a round, as the server drives them.

Two exchanges bring everybody's keys and shares, once an attempt; each phase then takes one for the masked uploads and
one to unmask their sum, and one more where a site vanished after masking. Whatever falls short of what is needed ends
the attempt, and the round is asked again with fresh keys.
"""

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedlin.checks import printable
from fedlin.core import Message
from fedlin.engines.federation import wire
from fedlin.engines.federation.exchange import Reply
from fedlin.engines.federation.replies import Refusal, SortedReplies, refusal
from fedlin.engines.federation.secure_encoding import (
    SumTerms,
    check_clear,
    check_noise,
    clear_size,
    count_words,
    mean_upload,
    shared_noise,
    sum_of_weights,
    sum_terms,
)
from fedlin.engines.federation.secure_keys import Attempt, Directory, Offer
from fedlin.engines.federation.secure_masks import Words
from fedlin.engines.federation.secure_messages import (
    MaskRequest,
    UnmaskRequest,
    read_offered,
    read_table,
    sum_context,
    write_directory,
    write_keys,
)
from fedlin.engines.federation.secure_opening import Opened, open_secrets
from fedlin.engines.federation.secure_shares import LEAST, SHARE, threshold_of, tolerated
from fedlin.engines.federation.secure_sum import unmasked_sum
from fedlin.engines.federation.session import Session
from fedlin.engines.federation.wire import Header, Kind, Task
from fedlin.errors import FederationError, WireError

TRIES = 3  # times that shares are asked for before an attempt is given up


@dataclass
class SecureSums:
    """What the server keeps from one attempt to the next."""

    number: int = 0  # of the latest attempt
    round: int = -1
    known: dict[int, "KnownSum"] = field(default_factory=dict)  # of the present round, by phase

    def next_attempt(self, session: Session) -> Attempt:
        """One with a larger number than any before, also before a restart."""
        self.number = max(self.number + 1, time.time_ns())
        if session.progress.round != self.round:
            self.round = session.progress.round
            self.known.clear()
        return Attempt(session.run, self.round, self.number)


class KnownSum(NamedTuple):
    """A sum that was unmasked."""

    uploads: Mapping[str, bytes]  # what names each upload in it
    sorted_replies: SortedReplies


class MaskedPhase(NamedTuple):
    """One phase of an attempt, as it is asked."""

    header: Header  # of the task
    name: str  # the route
    like: Message  # an upload
    tasks: Mapping[str, Task]
    states: Mapping[str, bytes]  # that each task leads to
    body: bytes
    digest: bytes  # of the body


@dataclass
class SecureAttempt:
    """An attempt whose keys and shares are dealt."""

    session: Session
    sums: SecureSums
    attempt: Attempt
    directory: Directory
    envelopes: Mapping[str, Mapping[str, bytes]]  # from whom, to whom
    settled: Mapping[str, Mapping[bytes, list[str]]]  # by site and upload, in which sum alone it may count

    @property
    def names(self) -> list[str]:
        """Who takes part."""
        return [name for name in self.directory.names if name in self.envelopes]

    def collect(self, phase: MaskedPhase, needed: int, eager: bool, due: Collection[str]) -> SortedReplies:
        """Ask for a phase, and learn the mean of the uploads that arrived; no uploads where too few did."""
        ids = {name: wire.name_upload(phase.header, task, phase.digest) for name, task in phase.tasks.items()}
        known = self.sums.known.get(phase.header.phase)
        if known is not None and all(ids[name] == known.uploads[name] for name in ids.keys() & known.uploads.keys()):
            return known.sorted_replies  # what these uploads add up to, and no site lets them be added up otherwise
        terms = _terms(self.session, phase)
        members = sorted(ids)
        # A server that died before it heard of a sum asks for the same sum, and waits for who is in it.
        earlier = [names for name in members if (names := self.settled.get(name, {}).get(ids[name]))]
        if earlier:
            members, eager = [name for name in earlier[0] if name in ids], False
            needed = max(needed, len(earlier[0]))
        request = MaskRequest(self.attempt, members, terms)
        context = sum_context(phase.header, self.session.seed, phase.digest, request)
        masked, body = phase.header._replace(kind=Kind.MASK), phase.body + request.write()
        messages = {name: wire.write_task(masked, phase.tasks[name], body) for name in members}
        replies = self.session.ask(phase.name, messages, needed if eager else None, due)
        arrived = sort_masked(replies, phase.like, terms.width)
        sorted_replies = arrived.sorted_replies
        survivors = sorted(arrived.words)
        if sorted_replies.lost or len(survivors) < max(needed, self.directory.threshold):
            return sorted_replies._replace(uploads={})
        opened = self._open(phase.header, request.members, survivors)
        if opened is None:
            return sorted_replies._replace(uploads={})
        self.session.report("refused", opened.wrong)
        if missing := [name for name in request.members if name not in opened.secrets]:
            why = f"the shares of the secrets of {', '.join(missing)} do not belong together."
            self.session.round_log.note("not unmasked", self.session.progress.round, why=why)
            return sorted_replies._replace(uploads={})
        sums = unmasked_sum(self.directory, phase.header.phase, request.members, context, arrived.words, opened.secrets)
        weight = sum_of_weights({name: self.session.roster[name].weight for name in survivors})
        mean = mean_upload(phase.like, sums, arrived.clear, weight, terms)
        states = {name: phase.states[name] for name in survivors}
        sorted_replies = sorted_replies._replace(uploads=dict.fromkeys(survivors), mean=mean, states=states)
        self.sums.known[phase.header.phase] = KnownSum({name: ids[name] for name in survivors}, sorted_replies)
        return sorted_replies

    def _open(self, header: Header, members: Sequence[str], survivors: list[str]) -> Opened | None:
        """The secrets behind the masks, from the shares of a threshold of sites; None where fewer give any.

        Where some of these are wrong, the others' are asked for too.
        """
        threshold, confirmations = self.directory.threshold, dict[str, bytes]()
        if survivors != list(members):  # a site was lost: the others agree on which, before they reveal a share
            request = UnmaskRequest(self.attempt, survivors).write()
            confirmations = self._ask(
                header, Kind.CONFIRM, Kind.CONFIRMED, dict.fromkeys(survivors, request), threshold
            )
            if len(confirmations) < threshold:
                return None
        requests = {
            name: UnmaskRequest(
                self.attempt, survivors, confirmations, {sender: self.envelopes[sender][name] for sender in members}
            ).write()
            for name in survivors
        }
        shares: dict[str, list[bytes]] = {}
        for _ in range(TRIES):
            shares |= self._shares(header, requests, shares, threshold - len(shares))
            if len(shares) >= threshold:
                break
        if len(shares) < threshold:
            return None
        opened = open_secrets(self.directory, header.phase, members, survivors, shares)
        if len(opened.secrets) < len(members) and len(shares) < len(requests):
            shares |= self._shares(header, requests, shares, None)
            opened = open_secrets(self.directory, header.phase, members, survivors, shares)
        return opened

    def _shares(
        self, header: Header, requests: Mapping[str, bytes], known: Collection[str], needed: int | None
    ) -> dict[str, list[bytes]]:
        """The shares of those whose are not known yet."""
        missing = {name: request for name, request in requests.items() if name not in known}
        shares = self._ask(header, Kind.UNMASK, Kind.UNMASKED, missing, needed)
        return {name: [body[at : at + SHARE] for at in range(0, len(body), SHARE)] for name, body in shares.items()}

    def _ask(
        self, header: Header, kind: Kind, wanted: Kind, requests: Mapping[str, bytes], needed: int | None
    ) -> dict[str, bytes]:
        return ask_all(self.session, header._replace(kind=kind), wanted, requests, needed)


def open_attempt(
    session: Session, sums: SecureSums, asked: Sequence[str], needed: int, eager: bool, opening: bool
) -> SecureAttempt:
    """Have all who are asked offer keys and deal shares; who does both takes part.

    An `eager` quorum waits about twice as long for each as its latest answer took, so that who is there is in the sum.
    """
    threshold = check_sites(session)
    attempt = sums.next_attempt(session)
    header = Header(Kind.KEYS, session.run, session.progress.round, 0, opening)
    shapes = session.handshake.shapes
    phases = len(shapes.opening if opening else shapes.later)
    enough = needed if eager else None
    bodies = ask_all(session, header, Kind.OFFERED, dict.fromkeys(asked, write_keys(attempt)), enough, asked)
    offers, unreadable, settled = {}, {}, {}
    for name, body in bodies.items():
        try:
            offer, settled[name] = read_offered(body)
            offers[name] = Offer.read(offer, phases)
        except WireError as cause:
            unreadable[name] = Refusal(str(cause))
    session.report("refused", unreadable)
    directory = Directory.write(threshold, offers)
    dealt: dict[str, dict[str, bytes]] = {}
    if len(offers) >= max(needed, threshold):
        requests = dict.fromkeys(offers, write_directory(attempt, directory))
        header = header._replace(kind=Kind.SHARES)
        for name, body in ask_all(session, header, Kind.DEALT, requests, enough, asked).items():
            try:
                envelopes = read_table(body)
            except WireError as cause:
                session.report("refused", {name: Refusal(str(cause))})
                continue
            if envelopes.keys() == offers.keys():
                dealt[name] = envelopes
    read = Directory.read(directory, phases) if offers else Directory(threshold, {}, b"")
    return SecureAttempt(session, sums, attempt, read, dealt, settled)


def check_sites(session: Session) -> int:
    """The threshold; an error where the sites that are left are too few for a sum that hides one of them."""
    sites, active = len(session.roster.participants), len(session.roster.active)
    threshold = threshold_of(max(sites, LEAST))
    needed = session.policy.needed(active)
    if needed < threshold:
        raise FederationError(
            f"rounds would go on with {needed} of {sites} sites, and a secure sum is over at least {threshold}: "
            + ("bring sites back, or let them in again." if session.policy.quorum is None else "raise policy.quorum.")
        )
    return threshold


def ask_all(
    session: Session,
    header: Header,
    wanted: Kind,
    requests: Mapping[str, bytes],
    needed: int | None,
    due: Collection[str] = (),
) -> dict[str, bytes]:
    """One exchange: the bodies of the wanted answers; the reasons of those who refuse are recorded."""
    messages = {name: wire.write_message(header, request) for name, request in requests.items()}
    replies = session.ask(header.kind.name.lower(), messages, needed, due)
    refused = {name: refusal(reply) for name, reply in replies.items() if reply.kind != wanted}
    session.report("refused", refused)
    return {name: bytes(reply.body) for name, reply in replies.items() if name not in refused}


class Arrived(NamedTuple):
    """The masked uploads of a phase, sorted."""

    sorted_replies: SortedReplies
    words: dict[str, Words]
    clear: bytes  # the places that all of them share


def sort_masked(replies: Mapping[str, Reply], like: Message, width: int) -> Arrived:
    """What can be told of masked uploads: their lengths, and that all have the same places."""
    words: dict[str, Words] = {}
    clear: dict[str, bytes] = {}
    lost, calls, infinite = list[str](), 0, 0
    rejected: dict[str, str] = {}
    refused: dict[str, Refusal] = {}
    split, whole = clear_size(like), clear_size(like) + width * count_words(like)
    for name, reply in replies.items():
        if reply.kind == Kind.LOST:
            lost.append(name)
        elif reply.kind == Kind.UNFIT:
            facts = _facts(reply)
            rejected[name] = printable(str(facts.get("reason", "no reason given")), wire.REASON_LIMIT)
            infinite += facts.get("finite") is False
        elif reply.kind != Kind.MASKED:
            refused[name] = refusal(reply)
        elif len(reply.body) != whole:
            rejected[name] = f"the masked upload has {len(reply.body)} bytes and this phase's has {whole}."
        else:
            clear[name] = bytes(reply.body[:split])
            words[name] = np.frombuffer(reply.body[split:], f"<u{width}").astype(f"u{width}", copy=False)
            calls += reply.header.calls
    wrong = {own: why for own in set(clear.values()) if (why := _wrong_places(like, own))}
    common = Counter(own for own in clear.values() if own not in wrong).most_common(1)
    places = common[0][0] if common else b""
    for name in [name for name, own in clear.items() if own in wrong or own != places]:
        rejected[name] = wrong.get(clear[name], "its upload has other places than the others', and all draw the same.")
        del words[name]
    diverged = infinite > 0 and infinite == len(replies)
    return Arrived(SortedReplies({}, {}, calls, lost, rejected, refused, diverged, whole), words, places)


def _wrong_places(like: Message, places: bytes) -> str:
    try:
        check_clear(like, places)
    except WireError as cause:
        return str(cause)
    return ""


def _facts(reply: Reply) -> dict[str, object]:
    try:
        return wire.read_facts(reply.body)
    except WireError as cause:
        return {"reason": str(cause)}


def _terms(session: Session, phase: MaskedPhase) -> SumTerms:
    """The terms of a phase's sum, from the weights of all who may take part in it."""
    roster, bound = session.roster, session.policy.norm_bound
    assert bound is not None
    weights = np.array([roster[name].weight for name in roster.active])
    mechanism = dict(enumerate(session.algorithm.mechanisms)).get(phase.header.phase)
    sites = len(roster.participants)
    threshold = threshold_of(max(sites, LEAST))
    noise = shared_noise(mechanism, float(weights.max()), threshold - tolerated(sites, threshold))
    terms = sum_terms(phase.like, weights, bound, noise, sites)
    check_noise(terms)
    return terms
