"""Who takes part in secure sums: each site's lasting identity, and the keys it offers for one attempt at a round.

Keys go through the server, and each offer is signed with its site's identity: a server that puts keys of its own in
their place is found out by every site. An identity is what a deployment has for it: over NVIDIA FLARE the certificate
and key of the site's startup kit, in one process the key pairs that `SiteIdentity.generate` makes.
"""

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import urandom
from typing import NamedTuple, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from fedlin.errors import ArgumentError, WireError

KEY = 32  # bytes of a public key, and of a commitment
_LENGTH = struct.Struct("<I")


class Identity(Protocol):
    """What a site signs with, and how it checks what others signed."""

    @property
    def name(self) -> str:
        """The site's name, as the server knows it."""

    @property
    def certificate(self) -> bytes:
        """What the site shows to others, and may be a public key."""

    def sign(self, statement: bytes) -> bytes:
        """The site's signature."""

    def check(self, name: str, certificate: bytes, statement: bytes, signature: bytes) -> None:
        """Raise a `WireError` unless the site of this name signed the statement."""


@dataclass(frozen=True)
class SiteIdentity:
    """A site's Ed25519 key, and the public keys of those it knows.

    Args:
        name: The site's name.
        key: Its private key.
        known: The public keys of all sites by name, as 32 bytes each.
    """

    name: str
    key: Ed25519PrivateKey = field(repr=False)
    known: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def generate(cls, names: Iterable[str]) -> dict[str, "SiteIdentity"]:
        """Identities for sites in one process, all of which know each other.

        Args:
            names: The sites' names.

        Returns:
            An identity for each name.

        >>> sorted(SiteIdentity.generate(["a", "b", "c"]))
        ['a', 'b', 'c']
        """
        keys = {name: Ed25519PrivateKey.generate() for name in names}
        if not keys:
            raise ArgumentError("names is empty: give the name of every site.")
        known = {name: key.public_key().public_bytes_raw() for name, key in keys.items()}
        return {name: cls(name, key, known) for name, key in keys.items()}

    @property
    def certificate(self) -> bytes:
        """The public key."""
        return self.known[self.name]

    def sign(self, statement: bytes) -> bytes:
        """64 bytes."""
        return self.key.sign(statement)

    def check(self, name: str, certificate: bytes, statement: bytes, signature: bytes) -> None:
        """Raise a `WireError` unless the site of this name, as it is known here, signed the statement."""
        if self.known.get(name) != certificate:
            raise WireError(f"{name} shows a key that is not the one known here.")
        try:
            Ed25519PublicKey.from_public_bytes(certificate).verify(signature, statement)
        except InvalidSignature as cause:
            raise WireError(f"{name} did not sign this.") from cause


class Attempt(NamedTuple):
    """One attempt at a round, for which keys are good."""

    run: bytes
    number: int  # larger for every attempt

    def statement(self, purpose: str, *parts: bytes) -> bytes:
        """What a site signs about this attempt."""
        return write_fields([b"fedlin", purpose.encode(), self.run, self.number.to_bytes(8), *parts])


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
    mask_keys: tuple[bytes, ...]
    own_seeds: tuple[bytes, ...]  # what its own mask of each phase follows from

    @classmethod
    def draw(cls, phases: int) -> "SiteSecrets":
        """Fresh ones."""
        return cls(
            X25519PrivateKey.generate(),
            tuple(X25519PrivateKey.generate().private_bytes_raw() for _ in range(phases)),
            tuple(urandom(KEY) for _ in range(phases)),
        )

    def offer(self, attempt: Attempt, identity: Identity) -> Offer:
        """What others are told, signed."""
        share_key = self.share_key.public_key().public_bytes_raw()
        offer = Offer(
            share_key,
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


def agree(private: bytes, public: bytes) -> bytes:
    """The secret of two key pairs (X25519), from one's private and the other's public key."""
    try:
        return X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as cause:  # a point of small order
        raise WireError("a public key is not one that a site makes.") from cause


def public_key(private: bytes) -> bytes:
    """The public key of a private one."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def write_fields(parts: Sequence[bytes]) -> bytes:
    """Pieces of bytes, each after its length."""
    return b"".join(piece for part in parts for piece in (_LENGTH.pack(len(part)), part))


def read_fields(body: bytes | memoryview) -> list[bytes]:
    """What `write_fields` wrote.

    >>> read_fields(write_fields([b"one", b"", b"two"]))
    [b'one', b'', b'two']
    """
    view, parts, first = memoryview(body), list[bytes](), 0
    while first < len(view):
        if first + _LENGTH.size > len(view):
            raise WireError("a list of fields ends within a length.")
        (length,) = _LENGTH.unpack_from(view, first)
        first += _LENGTH.size
        if first + length > len(view):
            raise WireError(f"a field of {length} bytes goes beyond the message.")
        parts.append(bytes(view[first : first + length]))
        first += length
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
