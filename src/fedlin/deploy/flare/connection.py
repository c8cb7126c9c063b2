"""Whether a site can reach its server, and if not, why: FLARE itself tries again without a word."""

import socket
import ssl
from pathlib import Path

from fedlin.deploy.flare.kits import Place

_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)  # how gRPC begins to speak
_SECONDS = 5.0


def check_connection(kit: Path) -> str | None:
    """None where the server speaks to who holds this kit; otherwise what is wrong."""
    place, startup = Place.read(kit), kit / "startup"
    where = f"{place.address}:{place.port}"
    context = ssl.create_default_context(cafile=str(startup / "rootCA.pem"))
    context.check_hostname = False  # FLARE checks the name in the certificate itself
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(startup / "client.crt", startup / "client.key")
    try:
        connection = socket.create_connection((place.address, place.port), timeout=_SECONDS)
    except OSError as error:
        return f"the server cannot be reached at {where} ({error}): is it started, and is its port open?"
    try:
        with connection, context.wrap_socket(connection, server_hostname=place.host) as speaking:
            speaking.sendall(_GREETING)
            if speaking.recv(1):
                return None
            return f"the server at {where} ended the connection: it does not accept this site's certificate."
    except ssl.SSLCertVerificationError:
        return f"the server at {where} is of another federation than this folder: copy startup/ anew."
    except TimeoutError:
        return f"the server at {where} takes connections, and does not answer within {_SECONDS:g} s: its process hangs."
    except (ssl.SSLError, OSError) as error:
        return f"the server at {where} does not accept this site's certificate, or is no server of FLARE ({error})."
