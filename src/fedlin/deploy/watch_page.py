"""The page of `fedlin federation watch`: for this machine alone, under an address that the folder's owner alone knows.

Other users of a machine can reach its ports, and a page from elsewhere can make a browser ask for them. The address has
a key that lies in the folder, readable by its owner, and is answered under the name of this machine's own address only.
"""

import json
import re
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from secrets import compare_digest, token_urlsafe

from fedlin.deploy.watch_metrics import CONTENT_TYPE, metrics_text
from fedlin.deploy.watch_snapshot import RunView, SiteView
from fedlin.engines.checkpoint import write_whole
from fedlin.errors import DeployError, FedLinError

HOST = "127.0.0.1"
KEY = ".watch-key"
_RANDOM = 16  # bytes of a key
_WHOLE = re.compile(r"[\w-]{22,}", re.ASCII)
_SECONDS = 10.0  # that a connection may say nothing
_PAGE = Path(__file__).with_name("watch.html")
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class WatchServer:
    """Serves a view until it is closed; `address` is where."""

    def __init__(self, folder: Path, view: RunView | SiteView, port: int) -> None:
        try:
            self._server = ThreadingHTTPServer((HOST, port), partial(_PageRequest, view, _key(folder)))
        except OSError as error:
            raise DeployError(f"port {port} cannot be used: {error.strerror}. Give another with --port.") from error
        self._server.daemon_threads = True
        self.address = f"http://{HOST}:{self._server.server_port}/{_key(folder)}/"

    def serve(self) -> None:
        """Answer until Ctrl-C, or until `close` from another thread."""
        try:
            self._server.serve_forever()
        except KeyboardInterrupt:
            pass
        finally:
            self._server.server_close()

    def close(self) -> None:
        """End `serve`."""
        self._server.shutdown()


def _key(folder: Path) -> str:
    path = folder / KEY
    key = path.read_text(encoding="ascii", errors="replace") if path.is_file() else ""
    if not _WHOLE.fullmatch(key):  # a file that was cut off would be a key that others can guess
        key = token_urlsafe(_RANDOM)
        write_whole(path, key.encode(), mode=0o600)
    return key


class _PageRequest(BaseHTTPRequestHandler):
    """The page, what it shows as JSON, and the metrics; nothing else."""

    timeout = _SECONDS  # any user of the machine can open connections, each of which has a thread

    def __init__(self, view: RunView | SiteView, key: str, *arguments: object) -> None:
        self._view = view
        self._key = key
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """The answer to any request."""
        own = self.headers.get("Host", "").partition(":")[0] in (HOST, "localhost")
        first, _, part = self.path.lstrip("/").partition("/")
        if not own or not compare_digest(first.encode(), self._key.encode()) or part not in ("", "data", "metrics"):
            self._send(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"There is nothing here.\n")
            return
        try:
            if part == "metrics":
                self._send(HTTPStatus.OK, CONTENT_TYPE, metrics_text(self._view.samples()).encode())
            elif part == "data":
                self._send(HTTPStatus.OK, "application/json", json.dumps(self._view.snapshot()).encode())
            else:
                self._send(HTTPStatus.OK, "text/html; charset=utf-8", _PAGE.read_bytes())
        except (FedLinError, OSError) as error:  # a folder that is being written, or has gone
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", f"{error}\n".encode())

    def _send(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **_HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: a page that looks every second would fill the screen."""
