"""A federation's own certificate authority: its folder holds the authority's key, its certificate and no other key.

Certificates it has issued are kept beside them, since they are public and `renew` needs the public keys in them.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fedlin.engines.checkpoint import write_whole
from fedlin.errors import DeployError

ROOT_KEY, ROOT = "root.key", "rootCA.pem"
ISSUED = "issued"
ORGANISATION = "fedlin"
_ROOT_DAYS, _DAYS = 3650, 360  # how long the authority's certificate and those it issues are valid


class Authority:
    """Signs certificates; made once by `create`, and read from its folder later."""

    def __init__(self, folder: Path) -> None:
        from nvflare.lighter.utils import load_crt_bytes, load_private_key_file

        self.folder = folder
        try:
            self.root = (folder / ROOT).read_bytes()
            self._key: Any = load_private_key_file(str(folder / ROOT_KEY))
            self._issuer = load_crt_bytes(self.root)
        except (OSError, ValueError) as error:
            raise DeployError(
                f"{folder} does not hold the authority's {ROOT_KEY} and {ROOT}: {error}. Bring them here."
            ) from error

    @classmethod
    def create(cls, folder: Path) -> "Authority":
        """A new authority, whose key its owner alone can read."""
        from nvflare.lighter.utils import Identity, generate_cert, serialize_cert

        key, pem = make_key()
        own = Identity(ORGANISATION)
        certificate = generate_cert(own, own, key, key.public_key(), valid_days=_ROOT_DAYS, ca=True)
        folder.mkdir(0o700, parents=True)
        write_whole(folder / ROOT_KEY, pem, mode=0o600)
        write_whole(folder / ROOT, serialize_cert(certificate), mode=0o600)
        return cls(folder)

    def issue(
        self,
        name: str,
        public_key: Any,
        *,
        role: str | None = None,
        address: str | None = None,
        start: datetime | None = None,
        days: int = _DAYS,
    ) -> bytes:
        """A certificate in this name as PEM; `role` is an admin's, `address` where the server is reached."""
        from nvflare.lighter.utils import Identity, generate_cert, serialize_cert

        begin = start or datetime.now(UTC)
        made = generate_cert(
            Identity(name, ORGANISATION, role),
            Identity(ORGANISATION),
            self._key,
            public_key,
            server_default_host=address,
            not_valid_before=begin,
            not_valid_after=min(begin + timedelta(days=days), self._issuer.not_valid_after_utc),
        )
        pem: bytes = serialize_cert(made)
        return pem

    def keep(self, name: str, certificate: bytes) -> None:
        """Remember what was issued to whom."""
        (self.folder / ISSUED).mkdir(0o700, exist_ok=True)
        write_whole(self.folder / ISSUED / f"{name}.crt", certificate, mode=0o600)

    def sign(self, request: bytes, names: set[str]) -> tuple[str, bytes]:
        """The name in a request and the certificate for it, if the request is whole and the name one of these."""
        from cryptography.x509 import load_pem_x509_csr
        from cryptography.x509.oid import NameOID

        try:
            signing_request = load_pem_x509_csr(request)
        except ValueError as error:
            raise DeployError(f"the request cannot be read: {error}.") from error
        if not signing_request.is_signature_valid:
            raise DeployError("the request is not signed with the key it names: make a new one.")
        common = [str(entry.value) for entry in signing_request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        if len(common) != 1 or common[0] not in names:
            raise DeployError(
                f"the request is in the name of {common}, and this federation's sites are {sorted(names)}."
            )
        certificate = self.issue(common[0], signing_request.public_key())
        self.keep(common[0], certificate)
        return common[0], certificate

    def renew(self, name: str, **details: Any) -> bytes:
        """A new certificate for the key of the last one that was issued in this name."""
        from nvflare.lighter.utils import load_crt_bytes

        try:
            former = load_crt_bytes((self.folder / ISSUED / f"{name}.crt").read_bytes())
        except (OSError, ValueError) as error:
            raise DeployError(f"no certificate of {name} is known to the authority: sign a request of its.") from error
        certificate = self.issue(name, former.public_key(), **details)
        self.keep(name, certificate)
        return certificate


def make_key() -> tuple[Any, bytes]:
    """A new private key, and the same as PEM."""
    from nvflare.lighter.utils import generate_keys, serialize_pri_key

    key, _ = generate_keys()
    pem: bytes = serialize_pri_key(key)
    return key, pem


def write_request(startup: Path, name: str) -> bytes:
    """A request for a certificate in this name, for the key in a site's startup folder, made there if there is none."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509 import CertificateSigningRequestBuilder, Name, NameAttribute
    from cryptography.x509.oid import NameOID
    from nvflare.lighter.utils import load_private_key_file

    path = startup / "client.key"
    if not path.exists():
        write_whole(path, make_key()[1], mode=0o600)
    subject = Name([NameAttribute(NameOID.COMMON_NAME, name)])
    request = CertificateSigningRequestBuilder().subject_name(subject).sign(load_private_key_file(str(path)), SHA256())
    return request.public_bytes(Encoding.PEM)
