"""NVIDIA FLARE carries the messages of a federation: the server's side.

FLARE's server runs a job of one component, which calls the program and lasts as long. Each site runs the component of
`flare_site.py`, and sends word once it is there, also when it was started again in the middle of the job. From then on
it is asked; requests and replies have codes that prove who sent them.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

try:
    from nvflare.apis.impl.controller import Controller
except ModuleNotFoundError as cause:
    message = "fedlin.transports.flare needs NVIDIA FLARE: pip install 'fedlin[flare]'."
    raise ModuleNotFoundError(message, name="nvflare") from cause

from fedlin.errors import DeployError, WireError
from fedlin.transports.flare_job import job_place, open_log, program, program_module
from fedlin.transports.flare_messages import (
    ANSWER,
    ENDED,
    INTRODUCE,
    NOTHING,
    OVER,
    READY,
    SERVER,
    UNABLE,
    Messenger,
    Sealed,
    tell,
)
from fedlin.transports.message_codes import Channel, Context, JobKey
from fedlin.transports.transport import GONE, LOOK, Enough, by_client

STATUS = "fedlin_status"  # what whoever sent the job may ask it
_RENEWAL = 1.0  # seconds in which a site has one process: whoever sends word of ever more of them costs little
_WORD, _REPORT = 1 << 10, 4 << 10  # bytes of a name or a key, and of why a site's process has failed
_START = 5.0  # seconds in which the sites' processes usually are there: nobody is said to be missing before
Send = Callable[[str, str, Sealed, float, str], Sealed]  # (site, topic, message, timeout, phase) -> reply
_log = logging.getLogger(__name__)


class JobAbortedError(Exception):
    """FLARE has been told to end the job, and nobody will answer any more."""


class _Request(NamedTuple):
    exchange: int
    phase: str
    payload: bytes
    timeout: float


class _Process:
    """A site's process: what names it, when it sent word, and the word to its thread that there is work."""

    def __init__(self, identity: bytes, asked: threading.Condition) -> None:
        self.identity = identity
        self.asked = asked
        self.since = time.monotonic()


class FlareTransport:
    """The server's side, alive while the job's main function runs.

    A site is sent one request at a time: while it has not answered, the newest request to it waits, so that a site that
    is frozen costs the others nothing.

    Args:
        send: Sends a message to a site and returns its reply; `TimeoutError` where none comes in time,
            `ConnectionError` where nobody is there to give one.
        make_key: Makes a key pair of the server's for this job and a site: one for each process of the site, so that no
            two messages have codes of the same numbers.
        root: The certificate of the federation's authority, as PEM.
        aborted: Whether the job is over.
    """

    def __init__(
        self, send: Send, make_key: Callable[[str], JobKey], root: bytes, aborted: Callable[[], bool] = lambda: False
    ) -> None:
        self.failures: dict[str, str] = {}  # why who was asked last did not answer
        self._send = send
        self._make_key = make_key
        self._root = root
        self._aborted = aborted
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)  # a site has answered, failed or come
        self._processes: dict[str, _Process] = {}  # the latest of each site that sent word
        self._present: set[str] = set()  # the sites whose process was not found to have ended
        self._unable: dict[str, str] = {}  # why the sites whose process has failed say that it has
        self._waiting: dict[str, _Request] = {}  # the newest request to each site that was not sent yet
        self._exchange = 0
        self._replies: dict[str, bytes] = {}  # to the present exchange, and late ones to earlier exchanges
        self._pending: set[str] = set()  # who has neither answered the present exchange nor failed in it
        self._enough: Enough | None = None  # of the present exchange
        self._failed: BaseException | None = None  # why no exchange goes on
        self._closed = False

    def ready(self, name: str, identity: bytes) -> bool:
        """A site's process has sent word; whether it has taken the place of another one."""
        with self._changed:
            known = self._processes.get(name)
            new = known is None or known.identity != identity
            if new and known is not None and time.monotonic() - known.since < _RENEWAL:
                return False
            if new or name not in self._present:  # whose thread may wait for the answer to what was lost
                asked = threading.Condition(self._lock)
                process = self._processes[name] = _Process(identity, asked)
                if known is not None:
                    known.asked.notify()
                    self._fail(name, GONE)
                run = threading.Thread(target=self._ask_site, args=(name, process), name=f"fedlin-{name}", daemon=True)
                run.start()
            self._present.add(name)
            self._changed.notify_all()
            return new and known is not None

    def ended(self, name: str) -> None:
        """A site's process has ended, or has lost its connection: it may be there again already."""
        with self._changed:
            self._present.discard(name)
            self._fail(name, GONE)
            self._changed.notify_all()

    def unable(self, name: str, why: str, everyone: set[str]) -> None:
        """A site reports that its process has failed. Where no site has one that did not, the job ends."""
        with self._changed:
            self._unable[name] = why
            if not self._processes and self._unable.keys() >= everyone:
                reasons = "; ".join(f"{site}: {self._unable[site]}" for site in sorted(everyone))
                self._failed = DeployError(f"no site can start the job: {reasons}. See log.txt in the sites' folders.")
                self._changed.notify_all()

    def wait_for(self, names: set[str], seconds: float) -> None:
        """Wait until these sites' processes are there, or so long."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._present >= names or self._failed is not None or self._aborted(), seconds
            )

    def clients(self) -> Sequence[str]:
        """The sites whose process is there."""
        with self._changed:
            self._check()
            return sorted(self._present)

    def exchange(
        self,
        phase: str,
        payloads: bytes | Mapping[str, bytes],
        clients: Sequence[str],
        timeout: float,
        enough: Enough | None = None,
    ) -> Mapping[str, bytes]:
        """Ask the named sites at once and gather what they answer in time; `failures` tells why others did not."""
        messages, deadline = by_client(payloads, clients), time.monotonic() + timeout
        with self._changed:
            asked = self._present & set(clients)
            self._exchange += 1
            self.failures = dict.fromkeys((self._processes.keys() & set(clients)) - asked, GONE)
            self._pending, self._enough = set(asked), enough
            self._waiting = {name: _Request(self._exchange, phase, messages[name], timeout) for name in asked}
            for name in asked:
                self._processes[name].asked.notify()
            while not self._over():
                self._check()
                left = deadline - time.monotonic()
                if left <= 0:
                    self.failures |= dict.fromkeys(self._pending, _late(timeout))
                    break
                self._changed.wait(min(left, LOOK))
            self._check()
            self._waiting, self._enough = {}, None
            replies, self._replies = self._replies, {}
            return replies

    def close(self) -> None:
        """Let go of the requests that nobody waits for any more."""
        with self._changed:
            self._closed = True
            for process in self._processes.values():
                process.asked.notify()

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed
        if self._aborted():
            raise JobAbortedError

    def _over(self) -> bool:
        """Whether the present exchange has what it was for.

        Asked by whoever brings a reply, so that the thread that waits is not woken for those before the last.
        """
        if not self._pending or self._failed is not None:
            return True
        try:
            return bool(self._replies) and self._enough is not None and self._enough(self._replies)
        except BaseException as error:
            self._failed = error
            return True

    def _fail(self, name: str, why: str) -> None:
        """No answer of this site will come to the present exchange."""
        if name in self._pending:
            self._pending.discard(name)
            self.failures[name] = why

    def _ask_site(self, name: str, process: _Process) -> None:
        """Send a site's process its requests, one after the other, as long as it is the site's latest."""
        link: tuple[JobKey, Channel] | None = None
        while True:
            with self._changed:
                process.asked.wait_for(lambda: self._left(name, process) or name in self._waiting)
                if self._left(name, process):
                    return
                request = self._waiting.pop(name)
            reply, failure = None, ""
            try:
                if link is None:
                    key = self._make_key(name)
                    link = key, Channel(self._root, name, key)
                reply = self._ask(*link, request)
            except TimeoutError:
                failure = _late(request.timeout)
            except ConnectionError:
                failure = GONE
            except Exception as error:
                failure = f"the call failed with {type(error).__name__}: {error}"
            with self._changed:
                if self._left(name, process):
                    return
                if reply is not None:
                    self._replies[name] = reply
                if failure == GONE:
                    self._present.discard(name)
                if request.exchange == self._exchange:
                    if reply is None:
                        self._fail(name, failure)
                    self._pending.discard(name)
                if self._over():
                    self._changed.notify_all()

    def _left(self, name: str, process: _Process) -> bool:
        return self._closed or self._processes[name] is not process

    def _ask(self, key: JobKey, channel: Channel, request: _Request) -> bytes:
        name, context = key.site, Context(key.job, key.site, request.phase)
        if not channel.open:
            shown = self._send(name, INTRODUCE, Sealed(key.introduction), request.timeout, "")
            channel.introduce(shown.payload)
        try:
            code = channel.code(context, request.payload)
            reply = self._send(name, ANSWER, Sealed(bytes(request.payload), code), request.timeout, request.phase)
            if not reply.payload:
                raise WireError(f"{name} refused the call; its own log tells why.")
            channel.check(context._replace(request=code), *reply)
        except Exception:
            # The next request waits until an introduction is answered: the site may know other keys, and to one that
            # does not answer nothing is sent that is long.
            channel.close()
            raise
        return reply.payload


def _late(timeout: float) -> str:
    return f"no answer within {timeout:g} s"


class FlareServer(Controller):  # type: ignore[misc] # FLARE has no types
    """The server's component: calls `program(transport, kit, sent)`, and the job lasts as long."""

    def start_controller(self, fl_ctx: Any) -> None:
        """FLARE's hook before the run: from now on sites may send word."""
        self.place = job_place(fl_ctx)
        self._signal = fl_ctx.get_run_abort_signal()
        open_log(self.place.kit)
        engine = fl_ctx.get_engine()
        _register_status(engine)
        messenger = Messenger(self.place.cell, self.place.job)
        self.transport = FlareTransport(
            messenger.send,
            lambda site: self.place.key("server", site),
            self.place.root,
            lambda: bool(self._signal.triggered),
        )

        def ready(cell: str, phase: str, word: Sealed) -> Sealed:
            name = cell.partition(".")[0]
            if cell != messenger.name(name):
                return NOTHING
            again = self.transport.ready(name, word.payload)
            if again or engine.get_client_from_name(name) is None:
                # It has registered anew, and this process still knows it by what it was told then, or not at all.
                engine.sync_clients_from_main_process()
            return NOTHING

        def ended(cell: str, phase: str, word: Sealed) -> Sealed:
            if cell == SERVER:
                self.transport.ended(word.payload.decode())
            return NOTHING

        def unable(cell: str, phase: str, word: Sealed) -> Sealed:
            if cell == SERVER:
                name, _, why = word.payload.decode().partition(" ")
                self.transport.unable(name, why, {site.name for site in engine.get_clients()})
            return NOTHING

        messenger.serve(READY, ready, _WORD)
        messenger.serve(UNABLE, unable, _REPORT)
        messenger.serve(ENDED, ended, _WORD)

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        """The job's main function; what it raises ends the job as one that failed."""
        try:
            self.transport.wait_for({site.name for site in fl_ctx.get_engine().get_clients()}, _START)
            program()(self.transport, str(self.place.kit), self.place.sent)
        except JobAbortedError:
            _log.info("the job was ended")
            raise
        finally:
            tell(self.place.cell.core_cell, SERVER, OVER, self.place.job)
            self.transport.close()

    def stop_controller(self, fl_ctx: Any) -> None:
        """FLARE's hook after the run."""

    def process_result_of_unknown_task(self, *_: Any) -> None:
        """FLARE's hook for the results of its own kind of tasks, of which a job here has none."""


def _register_status(engine: Any) -> None:
    """Let whoever sent the job ask for its status, where the program's module has a function that tells it."""
    tell = getattr(program_module(), "tell_status", None)
    if tell is not None:
        engine.register_app_command(STATUS, lambda topic, data, context: tell(data or {}))
