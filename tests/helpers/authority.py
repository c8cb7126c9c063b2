"""An authority and the certificates it signs, without the rest of a federation."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID


class Authority:
    """Writes kits as FLARE has them into `folder`, each under the name in its certificate."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = rsa.generate_private_key(65537, 2048)
        self._server = ""
        self.root = self.certificate("authority", self._key.public_key())

    def certificate(self, name: str, key: rsa.RSAPublicKey | None = None, days: tuple[int, int] = (-1, 1)) -> bytes:
        """A certificate in this name, valid from the first of two days from now to the second."""
        today = datetime.now(UTC)
        subject, issuer = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, part)]) for part in (name, "authority"))
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key or self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(today + timedelta(days=days[0]))
            .not_valid_after(today + timedelta(days=days[1]))
        )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def kit(self, role: str, name: str) -> None:
        """The startup folder of the server or of a site; the server comes first."""
        startup = self.folder / name / "startup"
        startup.mkdir(parents=True)
        key = rsa.generate_private_key(65537, 2048)
        formats = (serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL)
        (startup / f"{role}.key").write_bytes(key.private_bytes(*formats, serialization.NoEncryption()))
        (startup / f"{role}.crt").write_bytes(self.certificate(name, key.public_key()))
        (startup / "rootCA.pem").write_bytes(self.root)
        if role == "server":
            self._server = name
        settings = {"servers": [{"identity": self._server}], "client": {"fqsn": name}}
        (startup / f"fed_{role}.json").write_text(json.dumps(settings))
