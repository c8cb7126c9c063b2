"""Certificates and keys for a federation on this machine; on real ones an authority of yours signs."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

DAYS = 30


def write_private(path: Path, key: ec.EllipticCurvePrivateKey, form: PrivateFormat) -> None:
    """For the owner's eyes only, from the first moment on."""
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, form, NoEncryption()))


def make_authority(folder: Path) -> None:
    """`ca.pem`, and with its signature `server.pem` and `server.key`, for 127.0.0.1 alone."""
    authority, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    issuer, subject = _name("fedlin example authority"), _name("localhost")
    whole = x509.BasicConstraints(ca=True, path_length=0)
    ca = _begin(issuer, issuer, authority).add_extension(whole, critical=True).sign(authority, hashes.SHA384())
    places = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
    signed = _begin(subject, issuer, server).add_extension(places, critical=False).sign(authority, hashes.SHA384())
    (folder / "ca.pem").write_bytes(ca.public_bytes(Encoding.PEM))
    (folder / "server.pem").write_bytes(signed.public_bytes(Encoding.PEM))
    write_private(folder / "server.key", server, PrivateFormat.PKCS8)


def make_key(folder: Path, name: str) -> Path:
    """A SuperNode's key pair, as `ssh-keygen -t ecdsa -b 384` would make it; returns the private one."""
    key = ec.generate_private_key(ec.SECP384R1())
    write_private(folder / name, key, PrivateFormat.OpenSSH)
    (folder / f"{name}.pub").write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    return folder / name


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common)])


def _begin(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=DAYS))
    )
