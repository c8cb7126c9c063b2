"""NVIDIA FLARE carries the messages: one pushed call for each, over the connections each site opened to the server.

The two classes are the components of a FLARE job. A job brings no code and names none: what to run is the choice of
whoever starts the process, in its environment, as an entry point "package.module:function". Payloads are bytes, since
FLARE sends arrays in transactions of their own, which are slower and outlast the timeout of a client that died.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from importlib import import_module
from typing import Any, TypeVar

try:
    from nvflare.collab import collab
    from nvflare.collab.api.exceptions import RunAborted
except ModuleNotFoundError as cause:
    message = "fedlin.transports.flare needs NVIDIA FLARE: pip install 'fedlin[flare]'."
    raise ModuleNotFoundError(message, name="nvflare") from cause

from fedlin.transports.transport import Enough, Handler, by_client

F = TypeVar("F", bound=Callable[..., Any])
_publish: Callable[[F], F] = collab.publish
_main: Callable[[F], F] = collab.main
PROGRAM = "FEDLIN_PROGRAM"  # the variable that names what a process runs
_CALLS = "nvflare.collab.runtime.cell_dispatcher"  # FLARE's log of them, two lines each
_THREADS = 64  # calls under way at once; a late client holds one until its timeout


class FlareTransport:
    """The server's side, alive while the job's main function runs."""

    def __init__(self, proxies: Sequence[Any]) -> None:
        self._sites = {proxy.name: proxy for proxy in proxies}
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="fedlin")

    def clients(self) -> Sequence[str]:
        """The sites this job was sent to."""
        return sorted(self._sites)

    def exchange(
        self,
        phase: str,
        payloads: bytes | Mapping[str, bytes],
        clients: Sequence[str],
        timeout: float,
        enough: Enough | None = None,
    ) -> Mapping[str, bytes]:
        """Call the named sites at once and gather what they answer in time; who fails is absent."""
        calls: dict[Future[bytes], str] = {}
        mail = by_client(payloads, clients)
        for name in self._sites.keys() & set(clients):
            calls[self._pool.submit(_call, self._sites[name], phase, mail[name], timeout)] = name
        replies: dict[str, bytes] = {}
        waiting, deadline = set(calls), time.monotonic() + timeout
        while waiting and not (replies and enough is not None and enough(replies)):
            done, waiting = wait(waiting, max(0.0, deadline - time.monotonic()), FIRST_COMPLETED)
            if not done:
                break
            for call in done:
                failure = call.exception()
                if failure is None:
                    replies[calls[call]] = call.result()
                elif isinstance(failure, RunAborted):  # the job is over, and nobody will answer any more
                    raise failure
        return replies

    def close(self) -> None:
        """Let go of the calls that nobody waits for any more."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _call(site: Any, phase: str, payload: bytes, timeout: float) -> bytes:
    reply = site(timeout=timeout).answer(phase, payload)
    assert isinstance(reply, bytes)
    return reply


def _program() -> Callable[..., Any]:
    module, _, function = os.environ[PROGRAM].partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def _whereabouts() -> tuple[str, str]:
    """This participant's name, and the folder of the kit it runs from, which outlives the job."""
    return str(collab.site_name), str(collab.workspace.get_root_dir())


class FlareServer:
    """The server's component: calls `program(transport, folder)`, and the job lasts as long."""

    @_main
    def run(self) -> None:
        """The job's main function."""
        logging.getLogger(_CALLS).setLevel(logging.WARNING)
        transport = FlareTransport(collab.clients)
        try:
            _program()(transport, _whereabouts()[1])
        finally:
            transport.close()


class FlareClient:
    """A site's component: `program(name, folder)` makes the handler that answers the server."""

    def __init__(self) -> None:
        self._handler: Handler | None = None
        self._turn = threading.Lock()

    @_publish
    def answer(self, phase: str, payload: bytes) -> bytes:
        """One message at a time, whatever thread it came on."""
        with self._turn:
            if self._handler is None:
                self._handler = _program()(*_whereabouts())
            return self._handler(phase, payload)
