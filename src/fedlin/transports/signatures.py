"""Messages signed with the sender's certificate, so that who sent one is proven whatever carried it.

What carries a message may name the wrong sender: NVIDIA FLARE routes by a name in the message, which a participant that
runs software of its own can write. A signature covers the job, the site, the phase and the bytes, so that a message is
accepted from the server of the federation alone, by the site it was meant for, in the job it was sent in; a reply also
covers the signature of its request.

Certificates have RSA keys, whose signatures (PSS with SHA-256) take longer to make than all else that is done for a
small message. So they sign once a job: a key on the curve P-256 that is made for the job, is never written down, and
signs its messages (ECDSA with SHA-256).
"""

import json
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509 import Certificate, load_pem_x509_certificate
from cryptography.x509.oid import NameOID

from fedlin.errors import WireError
from fedlin.transports.transport import digest

_PADDING = PSS(MGF1(SHA256()), PSS.DIGEST_LENGTH)
_DIGEST = SHA256()
_ECDSA = ECDSA(_DIGEST)


class Context(NamedTuple):
    """What a message is about, besides its bytes: who signs it and who checks it must mean the same."""

    job: str
    site: str
    phase: str
    request: bytes = b""  # the signature of the request that a reply answers

    def statement(self, message: bytes) -> bytes:
        """The bytes that are signed; JSON has no zero byte, so that no two messages have the same."""
        return json.dumps([self.job, self.site, self.phase, self.request.hex()]).encode() + b"\0" + digest(message)


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


class JobSigner:
    """Signs one participant's messages of one job, by a key that its certificate vouches for in the `introduction`."""

    def __init__(self, signer: Signer, job: str) -> None:
        self._key = generate_private_key(SECP256R1())
        point = self._key.public_key().public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
        voucher = signer.sign(_vouch(job, point))
        self.introduction = json.dumps([signer.certificate.decode(), point.hex(), voucher.hex()]).encode()

    def sign(self, context: Context, message: bytes) -> bytes:
        """The signature of a message."""
        return self._key.sign(context.statement(message), _ECDSA)


class JobSender:
    """Who alone may have sent a message of a job: whom a certificate of the authority `root` gives this name."""

    def __init__(self, root: bytes, name: str, job: str) -> None:
        self.name = name
        self._root = root
        self._job = job
        self._key: EllipticCurvePublicKey | None = None

    @property
    def known(self) -> bool:
        """Whether it has introduced itself."""
        return self._key is not None

    def introduce(self, introduction: bytes) -> None:
        """Take the sender's key of this job if its certificate is good and vouches for it."""
        try:
            certificate, point, voucher = json.loads(introduction)
            shown, encoded, signature = certificate.encode(), bytes.fromhex(point), bytes.fromhex(voucher)
            key = EllipticCurvePublicKey.from_encoded_point(SECP256R1(), encoded)
        except (ValueError, TypeError, AttributeError, RecursionError) as cause:
            raise WireError(f"what {self.name} sent is no introduction.") from cause
        sender = Sender(self._root, self.name)
        sender.introduce(shown)
        if not sender.signed(_vouch(self._job, encoded), signature):
            raise WireError(f"the certificate of {self.name} does not vouch for its key of this job.")
        self._key = key

    def check(self, context: Context, message: bytes, signature: bytes) -> None:
        """Refuse a message that this sender did not sign."""
        if self._key is None:
            raise WireError(f"the message came without an introduction of {self.name}.")
        try:
            self._key.verify(signature, context.statement(message), _ECDSA)
        except InvalidSignature as cause:
            raise WireError(f"{self.name} did not sign this message for this site, job and phase.") from cause


def _vouch(job: str, point: bytes) -> bytes:
    """What a certificate's key signs for a job's key; no other statement begins like it."""
    return json.dumps(["key of a job", job]).encode() + b"\0" + point


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
