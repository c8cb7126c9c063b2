"""The keys that sites offer each other for one attempt at a round.

They go through the server, and each offer is signed with its site's identity: a server that puts keys of its own in
their place is found out by every site.
"""

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from os import urandom
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from fedlin.errors import WireError
from fedlin.identities import Identity

KEY = 32  # bytes of a public key, and of a commitment
_LENGTH = struct.Struct("<I")


class Attempt(NamedTuple):
    """One attempt at a round, for which keys are good."""

    run: bytes
    round: int
    number: int  # larger for every attempt

    def statement(self, purpose: str, *parts: bytes) -> bytes:
        """What a site signs about this attempt."""
        place = [self.run, self.round.to_bytes(4), self.number.to_bytes(8)]
        return write_fields([b"fedlin", purpose.encode(), *place, *parts])


class Offer(NamedTuple):
    """The public keys of one site for one attempt."""

    share_key: bytes  # others encrypt their shares to it
    mask_keys: tuple[bytes, ...]  # one a phase: a key that had to be recovered is of no use in another phase
    commitments: tuple[bytes, ...]  # one a phase: SHA-256 of what the site's own mask follows from
    certificate: bytes
    signature: bytes

    def statement(self, attempt: Attempt, name: str) -> bytes:
        """What the site signs of it."""
        return attempt.statement("keys", name.encode(), self.share_key, *self.mask_keys, *self.commitments)

    def write(self) -> bytes:
        """As bytes."""
        return write_fields([self.share_key, *self.mask_keys, *self.commitments, self.certificate, self.signature])

    @classmethod
    def read(cls, body: bytes | memoryview, phases: int) -> "Offer":
        """What `write` wrote, with keys of the right length."""
        fields = read_fields(body)
        if len(fields) != 3 + 2 * phases or any(len(key) != KEY for key in fields[: 1 + 2 * phases]):
            raise WireError(f"keys for {phases} phases were to be offered, and something else was.")
        return cls(
            fields[0], tuple(fields[1 : 1 + phases]), tuple(fields[1 + phases : 1 + 2 * phases]), fields[-2], fields[-1]
        )


class SiteSecrets(NamedTuple):
    """What a site keeps to itself, in memory alone: a site that was restarted has left the attempt."""

    share_key: X25519PrivateKey
    mask_keys: tuple[X25519PrivateKey, ...]
    own_seeds: tuple[bytes, ...]  # what its own mask of each phase follows from

    @classmethod
    def draw(cls, phases: int) -> "SiteSecrets":
        """Fresh ones."""
        return cls(
            X25519PrivateKey.generate(),
            tuple(X25519PrivateKey.generate() for _ in range(phases)),
            tuple(urandom(KEY) for _ in range(phases)),
        )

    def offer(self, attempt: Attempt, identity: Identity) -> Offer:
        """The message to the other sites, signed."""
        offer = Offer(
            public_key(self.share_key),
            tuple(map(public_key, self.mask_keys)),
            tuple(hashlib.sha256(seed).digest() for seed in self.own_seeds),
            identity.certificate,
            b"",
        )
        return offer._replace(signature=identity.sign(offer.statement(attempt, identity.name)))


class Directory(NamedTuple):
    """All offers of an attempt, the same bytes for every site."""

    threshold: int
    offers: dict[str, Offer]  # in the order of the names
    digest: bytes

    @property
    def names(self) -> list[str]:
        """Who is in it; share number i + 1 is that of site i."""
        return list(self.offers)

    @staticmethod
    def write(threshold: int, offers: Mapping[str, Offer]) -> bytes:
        """As bytes."""
        pairs = [part for name in sorted(offers) for part in (name.encode(), offers[name].write())]
        return write_fields([threshold.to_bytes(4), *pairs])

    @classmethod
    def read(cls, body: bytes | memoryview, phases: int) -> "Directory":
        """What `write` wrote; the digest is that of its bytes."""
        fields = read_fields(body)
        if len(fields) < 3 or len(fields) % 2 == 0 or len(fields[0]) != 4:
            raise WireError("the list of all sites' keys cannot be read.")
        names = [_text(name) for name in fields[1::2]]
        if names != sorted(set(names)):
            raise WireError("the list of all sites' keys has a name twice, or is out of order.")
        offers = {name: Offer.read(one, phases) for name, one in zip(names, fields[2::2], strict=True)}
        return cls(int.from_bytes(fields[0]), offers, hashlib.sha256(body).digest())


def agree(private: X25519PrivateKey, public: bytes) -> bytes:
    """The secret of two key pairs (X25519), from one's private and the other's public key."""
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as cause:  # a point of small order
        raise WireError("a public key is not one that a site makes.") from cause


def public_key(private: X25519PrivateKey) -> bytes:
    """The public key of a private one, as it travels."""
    return private.public_key().public_bytes_raw()


def write_fields(parts: Sequence[bytes]) -> bytes:
    """Pieces of bytes, each after its length."""
    return b"".join([piece for part in parts for piece in (_LENGTH.pack(len(part)), part)])


def read_fields(body: bytes | memoryview) -> list[bytes]:
    """What `write_fields` wrote.

    >>> read_fields(write_fields([b"one", b"", b"two"]))
    [b'one', b'', b'two']
    """
    body, parts, first = bytes(body), list[bytes](), 0
    end = len(body)
    while first < end:
        if first + _LENGTH.size > end:
            raise WireError("a list of fields ends within a length.")
        (length,) = _LENGTH.unpack_from(body, first)
        begin = first + _LENGTH.size
        first = begin + length
        if first > end:
            raise WireError(f"a field of {length} bytes goes beyond the message.")
        parts.append(body[begin:first])
    return parts


def write_names(names: Iterable[str]) -> bytes:
    """Names, as one field."""
    return write_fields([name.encode() for name in names])


def read_names(field: bytes) -> list[str]:
    """What `write_names` wrote, if the names are in order and differ."""
    names = [_text(name) for name in read_fields(field)]
    if names != sorted(set(names)):
        raise WireError("a list of sites has a name twice, or is out of order.")
    return names


def _text(field: bytes) -> str:
    try:
        return field.decode()
    except UnicodeDecodeError as cause:
        raise WireError("a site's name cannot be read.") from cause
