"""Whether a kit's certificate will be accepted. FLARE starts with one that will not, and then waits without a word."""

from datetime import UTC, datetime
from pathlib import Path

from fedlin.errors import DeployError

_REMEDY = "make new certificates with fedlin federation renew, or send a request and have it signed"


def check_certificate(kit: Path) -> None:
    """Refuse a certificate that is not there, of another authority, not of these days, or of another key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    from fedlin.transports.signatures import issued

    startup = kit / "startup"
    own = startup / ("server.crt" if (startup / "fed_server.json").is_file() else "client.crt")
    try:
        certificate = issued(own.read_bytes(), (startup / "rootCA.pem").read_bytes())
        key = load_pem_private_key(own.with_suffix(".key").read_bytes(), password=None)
    except (OSError, ValueError) as error:
        raise DeployError(f"{own}, its key or rootCA.pem beside it cannot be read: {error}; {_REMEDY}.") from error
    except InvalidSignature as error:
        raise DeployError(f"{own} was not signed by this federation's authority: {_REMEDY}.") from error
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not first <= datetime.now(UTC) <= last:
        raise DeployError(f"{own} is valid from {first:%Y-%m-%d} to {last:%Y-%m-%d}, and not today: {_REMEDY}.")
    if certificate.public_key() != key.public_key():
        raise DeployError(f"{own} is not for the key beside it: {_REMEDY}.")


def check_same_authority(kits: list[Path]) -> None:
    """Refuse kits on this machine of which one is of another federation."""
    first = (kits[0] / "startup" / "rootCA.pem").read_bytes()
    for kit in kits[1:]:
        if (kit / "startup" / "rootCA.pem").read_bytes() != first:
            raise DeployError(f"{kit / 'startup'} is of another federation than {kits[0] / 'startup'}: copy its own.")
