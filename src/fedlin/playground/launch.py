"""Starts marimo on the page, in this process and for this machine alone."""

import runpy
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

from fedlin.cache import keep_compiled
from fedlin.errors import ArgumentError

PAGE, HOST = Path(__file__).with_name("app.py"), "127.0.0.1"


def serve(port: int | None, browser: bool) -> None:
    """`marimo run` until Ctrl-C; without a port it takes the first free one from 2718 on.

    The page is read-only and reached from this machine only, so there is no password and no question on leaving.
    """
    if find_spec("marimo") is None:
        raise ArgumentError("the playground needs marimo, which is not installed: pip install 'fedlin[playground]'.")
    if port is not None:
        _check_free(port)
    keep_compiled()
    run = ["marimo", "--yes", "run", str(PAGE), "--host", HOST, "--no-token", "--no-sandbox", "--no-check"]
    sys.argv = [*run, *([] if port is None else ["--port", str(port)]), *([] if browser else ["--headless"])]
    runpy.run_module("marimo", run_name="__main__", alter_sys=True)


def _check_free(port: int) -> None:
    try:
        socket.create_server((HOST, port)).close()
    except OSError as cause:
        raise ArgumentError(f"port {port} cannot be used: {cause.strerror}. Name another, or none.") from cause
