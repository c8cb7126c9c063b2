"""Certificates of a federation's authority, and what their keys sign (RSA with PSS and SHA-256)."""

from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import Certificate, load_pem_x509_certificate
from cryptography.x509.oid import NameOID

from fedlin.errors import WireError

_PADDING = PSS(MGF1(SHA256()), PSS.DIGEST_LENGTH)
_DIGEST = SHA256()


class Signer:
    """One participant's certificate and key, `role`.crt and `role`.key in its startup folder."""

    def __init__(self, startup: Path, role: str) -> None:
        self.certificate = (startup / f"{role}.crt").read_bytes()
        key = load_pem_private_key((startup / f"{role}.key").read_bytes(), password=None)
        if not isinstance(key, RSAPrivateKey):
            raise WireError(f"{startup / role}.key is not an RSA key: make keys with fedlin federation.")
        self._key = key

    def sign(self, statement: bytes) -> bytes:
        """The signature of any bytes."""
        return self._key.sign(statement, _PADDING, _DIGEST)


class Sender:
    """Who alone may have signed: the holder of a certificate of the authority `root` in this name."""

    def __init__(self, root: bytes, name: str) -> None:
        self.name = name
        self._root = root
        self._key: RSAPublicKey | None = None

    @property
    def known(self) -> bool:
        """Whether its certificate has been seen."""
        return self._key is not None

    def introduce(self, certificate: bytes) -> None:
        """Take the sender's certificate if it was signed by the authority, is of these days and in its name."""
        try:
            shown = issued(certificate, self._root)
        except (ValueError, TypeError, InvalidSignature) as cause:
            raise WireError(f"the certificate of {self.name} was not signed by this federation's authority.") from cause
        first, last = shown.not_valid_before_utc, shown.not_valid_after_utc
        if not first <= datetime.now(UTC) <= last:
            raise WireError(f"the certificate of {self.name} is valid from {first:%Y-%m-%d} to {last:%Y-%m-%d}.")
        names = [entry.value for entry in shown.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        key = shown.public_key()
        if names != [self.name] or not isinstance(key, RSAPublicKey):
            raise WireError(f"the certificate is in the name of {names}, and {self.name} was expected.")
        self._key = key

    def signed(self, statement: bytes, signature: bytes) -> bool:
        """Whether this sender signed these bytes."""
        if self._key is None:
            raise WireError(f"the message came without a certificate of {self.name}.")
        try:
            self._key.verify(signature, statement, _PADDING, _DIGEST)
        except InvalidSignature:
            return False
        return True


class KitIdentity:
    """A site's identity in secure sums: the certificate and key of its startup kit.

    Args:
        startup: The kit's folder of keys.
        name: The site's name.
        sites: The names of all sites of the run; a certificate alone makes nobody one of them.
    """

    def __init__(self, startup: Path, name: str, sites: Collection[str]) -> None:
        self.name = name
        self._signer = Signer(startup, "client")
        self._root = (startup / "rootCA.pem").read_bytes()
        self._sites = frozenset(sites)
        self._known: dict[tuple[str, bytes], Sender] = {}

    @property
    def certificate(self) -> bytes:
        """As PEM."""
        return self._signer.certificate

    def sign(self, statement: bytes) -> bytes:
        """By the kit's key."""
        return self._signer.sign(statement)

    def check(self, name: str, certificate: bytes, statement: bytes, signature: bytes) -> None:
        """Raise a `WireError` unless the site of this name, certified by the federation's authority, signed."""
        if name not in self._sites:
            raise WireError(f"{name} is not a site of this run.")
        sender = self._known.get((name, certificate)) or Sender(self._root, name)
        if not sender.known:
            sender.introduce(certificate)
            self._known[name, certificate] = sender
        if not sender.signed(statement, signature):
            raise WireError(f"{name} did not sign this.")


def issued(certificate: bytes, root: bytes) -> Certificate:
    """The certificate, if the authority `root` signed it, both as PEM; otherwise an error of `cryptography`."""
    shown = load_pem_x509_certificate(certificate)
    shown.verify_directly_issued_by(load_pem_x509_certificate(root))
    return shown
