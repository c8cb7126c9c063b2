"""What reads bytes in secure sums: a site's answers to any server, and what the server makes of any site's answers.

Three sites have offered keys and dealt shares, so that what is read is of an attempt that is under way.
"""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fedlin
from fedlin.engines.federation import wire
from fedlin.engines.federation.exchange import Reply
from fedlin.engines.federation.secure_encoding import sum_terms
from fedlin.engines.federation.secure_exchange import sort_masked
from fedlin.engines.federation.secure_keys import Attempt, Directory, Offer
from fedlin.engines.federation.secure_messages import (
    MaskRequest,
    UnmaskRequest,
    read_offered,
    read_table,
    write_directory,
    write_keys,
    write_offered,
    write_table,
)
from fedlin.engines.federation.secure_opening import open_secrets
from fedlin.engines.federation.secure_shares import SHARE, split_secret
from fedlin.engines.federation.wire import Header, Kind, ReplyHeader, Task
from fedlin.errors import WireError
from fedlin.identities import SiteIdentity

DIM, BOUND = 3, 10.0
NAMES = ["a", "b", "c"]
ASKED = [Kind.KEYS, Kind.SHARES, Kind.MASK, Kind.CONFIRM, Kind.UNMASK]


class Dealt(NamedTuple):
    """An attempt at the first round of FedAvg, by three sites of which the first is asked."""

    site: fedlin.Client
    attempt: Attempt
    directory: bytes
    envelopes: dict[str, bytes]  # what the others have dealt to it
    base: bytes


@cache
def dealt() -> Dealt:
    """Made once: a site refuses what comes twice, and answers of it what it was asked."""
    problem = fedlin.problems.quadratic(np.stack([np.eye(DIM)] * 3), np.ones((3, DIM)))
    identities = SiteIdentity.generate(NAMES)
    sites = {
        name: fedlin.Client(fedlin.fedavg(), problem.client(i), identity=identities[name], sites=3)
        for i, name in enumerate(NAMES)
    }
    run = sites["a"].handshake.fingerprint + b"fuzz"
    attempt = Attempt(run, 0, 1)
    begin = wire.write_message(Header(Kind.BEGIN, run))
    offers = {}
    for name, site in sites.items():
        site.handle("hello", wire.write_message(Header(Kind.HELLO, run), wire.write_facts(site.handshake.facts)))
        site.handle("begin", begin)
        offers[name] = Offer.read(read_offered(_asked(site, Kind.KEYS, run, write_keys(attempt)))[0], 1)
    directory = Directory.write(3, offers)
    tables = {
        name: read_table(_asked(site, Kind.SHARES, run, write_directory(attempt, directory)))
        for name, site in sites.items()
    }
    envelopes = {name: table["a"] for name, table in tables.items()}
    return Dealt(sites["a"], attempt, directory, envelopes, wire.identify(begin))


def _asked(site: fedlin.Client, kind: Kind, run: bytes, rest: bytes) -> bytes:
    _, answer = wire.read_message(site.handle("any", wire.write_message(Header(kind, run), rest)))
    return bytes(wire.read_reply(answer)[1])


def site_is_asked(data: bytes) -> object:
    """A message of a secure sum's, as if it were the next one of the attempt: the site answers or refuses."""
    place, kind = dealt(), ASKED[data[0] % len(ASKED)] if data else Kind.KEYS
    answers = place.site._secure
    assert answers is not None
    assert answers.site._present is not None
    present = answers.site._present
    begun = replace(present, phases={}, shares=None, directory=None if kind == Kind.SHARES else present.directory)
    answers.site._present = begun
    if kind in (Kind.CONFIRM, Kind.UNMASK):
        _asked(place.site, Kind.MASK, place.attempt.run, _upload_asked())
    message = wire.write_message(Header(kind, place.attempt.run), data[1:])
    header, _ = wire.read_message(place.site.handle("any", message))
    answers.site._present = present
    answers._replies.clear()
    if header.kind == Kind.REFUSED:
        raise WireError("the site has refused")
    return header


def server_reads_keys(data: bytes) -> object:
    """A site's keys, and in which sums its uploads count."""
    offer, _ = read_offered(data)
    return Offer.read(offer, 1)


def server_reads_a_table(data: bytes) -> object:
    """Envelopes by name."""
    return read_table(data)


def server_reads_an_upload(data: bytes) -> object:
    """A masked upload, dense or of places that all share; the reasons of a site that sends none."""
    sparse = fedlin.rand_k(2, shared=True).encode(jax.random.key(0), jnp.zeros(DIM))
    for like in (np.zeros(DIM), sparse):
        for kind in (Kind.MASKED, Kind.UNFIT, Kind.LOST, Kind.REFUSED):
            sort_masked({"a": Reply(kind, ReplyHeader(bytes(8), 1), memoryview(data))}, like, 8)
    return None


def server_opens_secrets(data: bytes) -> object:
    """One site's shares, beside the right ones of the others."""
    directory = Directory.read(dealt().directory, 1)
    each = [split_secret(bytes(32), 3, 3) for _ in NAMES]
    shares = {name: [split[number] for split in each] for number, name in enumerate(NAMES)}
    shares["a"] = [data[at : at + SHARE] for at in range(0, len(data), SHARE)]
    return open_secrets(directory, 0, NAMES, NAMES[1:], shares)


def _upload_asked() -> bytes:
    """A task whose upload is to be masked."""
    place, like = dealt(), np.zeros(DIM)
    request = MaskRequest(place.attempt, NAMES, sum_terms(like, np.ones(3), BOUND))
    task = Task(place.base, 0, 0, 1, 0.1)
    header = Header(Kind.MASK, place.attempt.run)
    return wire.write_task(header, task, wire.pack(like) + request.write())[wire.HEADER :]


def right() -> dict[str, list[bytes]]:
    """What each of them reads where nobody lies."""
    place = dealt()
    offer = Directory.read(place.directory, 1).offers["a"].write()
    unmask = UnmaskRequest(place.attempt, NAMES, {}, place.envelopes).write()
    later = place.attempt._replace(number=2)
    asked = [write_keys(later), write_directory(place.attempt, place.directory), _upload_asked(), unmask, unmask]
    return {
        "secure site": [bytes([number]) + rest for number, rest in enumerate(asked)],
        "keys": [write_offered(offer, {bytes(8): NAMES})],
        "table": [write_table(place.envelopes)],
        "masked upload": [wire.pack(np.ones(DIM)), wire.write_facts({"reason": "too large", "finite": False})],
        "shares": [b"".join(split_secret(bytes(32), 3, 3))],
    }


TARGETS = {
    "secure site": site_is_asked,
    "keys": server_reads_keys,
    "table": server_reads_a_table,
    "masked upload": server_reads_an_upload,
    "shares": server_opens_secrets,
}
