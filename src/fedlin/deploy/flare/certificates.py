"""Whether a kit's certificate will be accepted. FLARE starts with one that will not, and then waits without a word."""

from datetime import UTC, datetime
from pathlib import Path

from fedlin.errors import DeployError

_REMEDY = "make a new folder with fedlin federation init, and copy each startup/ anew"


def check_certificate(kit: Path) -> None:
    """Refuse to start with a certificate that is not there, of another authority, or not of these days."""
    from cryptography.exceptions import InvalidSignature

    from fedlin.transports.signatures import issued

    startup = kit / "startup"
    own = startup / ("server.crt" if (startup / "fed_server.json").is_file() else "client.crt")
    try:
        shown = issued(own.read_bytes(), (startup / "rootCA.pem").read_bytes())
    except (OSError, ValueError) as error:
        raise DeployError(f"{own} or rootCA.pem beside it cannot be read: {error}; {_REMEDY}.") from error
    except InvalidSignature as error:
        raise DeployError(f"{own} was not signed by this federation's authority: {_REMEDY}.") from error
    first, last = shown.not_valid_before_utc, shown.not_valid_after_utc
    if not first <= datetime.now(UTC) <= last:
        raise DeployError(f"{own} is valid from {first:%Y-%m-%d} to {last:%Y-%m-%d}, and not today: {_REMEDY}.")
