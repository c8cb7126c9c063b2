"""Certificates as nobody should accept them."""

import datetime
import json
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from fedlin.deploy.project import Project


def expired_certificate(project: Project, name: str) -> tuple[Path, Path]:
    """Signed by the federation's own authority, for a year that is over."""
    state = json.loads((project.folder / "authority" / "cert.json").read_text())
    root = x509.load_pem_x509_certificate(state["root_cert"].encode())
    signer = serialization.load_pem_private_key(state["root_pri_key"].encode(), password=None)
    assert isinstance(signer, rsa.RSAPrivateKey)
    key = rsa.generate_private_key(65537, 2048)
    today = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(root.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=400))
        .not_valid_after(today - datetime.timedelta(days=35))
        .sign(signer, hashes.SHA256())
    )
    paths = project.folder / "expired.crt", project.folder / "expired.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    formats = (serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL)
    paths[1].write_bytes(key.private_bytes(*formats, serialization.NoEncryption()))
    return paths
