"""Who a site is to other sites: what it signs with in secure sums, and by what it knows the others.

An identity is what a deployment has for it: over NVIDIA FLARE the certificate and key of the site's startup kit, in one
process the key pairs that `SiteIdentity.generate` makes. Needs the extra `secure`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedlin.errors import ArgumentError, WireError


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
