"""NVIDIA FLARE carries the messages: one pushed call for each, over the connections each site opened to the server.

The two classes at the end are the components of a FLARE job. A job brings no code and names none: what to run is the
choice of whoever starts the process, in its environment, as an entry point "package.module:function". Payloads are
bytes, since FLARE sends arrays in transactions of their own, which are slower and outlast the timeout of a client that
died. Requests and replies have codes that prove who sent them, and a site answers the server of its federation alone.
"""

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

try:
    from nvflare.apis.fl_constant import FLContextKey
    from nvflare.collab import collab
    from nvflare.collab.api.exceptions import RunAborted
except ModuleNotFoundError as cause:
    message = "fedlin.transports.flare needs NVIDIA FLARE: pip install 'fedlin[flare]'."
    raise ModuleNotFoundError(message, name="nvflare") from cause

from fedlin.audit import AuditTrail
from fedlin.errors import WireError
from fedlin.transports import flare_log_lines
from fedlin.transports.message_codes import Channel, Context, JobKey
from fedlin.transports.signatures import Signer
from fedlin.transports.transport import LOOK, PROGRAM, Enough, Handler, by_client

# At the start of a job FLARE imports PyTorch where it is installed, to be able to send tensors. Messages here are
# bytes, and a second of every process is much where there are many.
sys.modules.setdefault("nvflare.app_opt.pt.decomposers", None)  # type: ignore[arg-type] # which means: not there
flare_log_lines.shorten()

F = TypeVar("F", bound=Callable[..., Any])
_publish: Callable[[F], F] = collab.publish
_main: Callable[[F], F] = collab.main
SERVER = "server"  # what FLARE calls the server of every job
STATUS = "fedlin_status"  # what whoever sent the job may ask it
LOG = "fedlin.log"  # in the kit's folder: what fedlin itself has to say, in all jobs
_LOG_SIZE, _LOG_FILES = 1 << 20, 5  # bytes after which a new file is begun, and how many old ones are kept
CALLS = "nvflare.collab.runtime.cell_dispatcher"  # FLARE's log of them, two lines each
_QUESTIONS = 4.0  # a second for tasks, of all sites together: there are none, since calls are pushed
_GONE = "its process has ended, or its connection is gone"
_NOTHING = (b"", b"")  # the reply to who may not ask, and to what cannot be answered
_log = logging.getLogger(__name__)


class _Request(NamedTuple):
    exchange: int
    phase: str
    payload: bytes
    timeout: float


class FlareTransport:
    """The server's side, alive while the job's main function runs.

    A site is sent one call at a time: while it has not answered, the newest request to it waits, so that a site that
    is frozen costs the others nothing.

    Args:
        proxies: FLARE's proxies of the sites.
        key: The server's key of this job.
        root: The certificate of the federation's authority, as PEM.
    """

    def __init__(self, proxies: Sequence[Any], key: JobKey, root: bytes) -> None:
        self.failures: dict[str, str] = {}  # why who was asked last did not answer
        self._sites = {proxy.name: proxy for proxy in proxies}
        self._channels = {name: Channel(root, name, key) for name in self._sites}
        self._key = key
        lock = threading.Lock()
        self._changed = threading.Condition(lock)  # a site has answered or failed
        self._asked = {name: threading.Condition(lock) for name in self._sites}  # a site's thread has something to do
        self._waiting: dict[str, _Request] = {}  # the newest request to each site that was not sent yet
        self._exchange = 0
        self._replies: dict[str, bytes] = {}  # to the present exchange, and late ones to earlier exchanges
        self._pending: set[str] = set()  # who has neither answered the present exchange nor failed in it
        self._enough: Enough | None = None  # of the present exchange
        self._ended: BaseException | None = None  # why no exchange goes on: the job is over, or `enough` failed
        self._closed = False
        for name in self._sites:
            threading.Thread(target=self._call_site, args=(name,), name=f"fedlin-{name}", daemon=True).start()

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
        """Call the named sites at once and gather what they answer in time; `failures` tells why others did not."""
        messages, deadline = by_client(payloads, clients), time.monotonic() + timeout
        asked = self._sites.keys() & set(clients)
        with self._changed:
            self._exchange += 1
            self.failures = {}
            self._pending, self._enough = set(asked), enough
            self._waiting = {name: _Request(self._exchange, phase, messages[name], timeout) for name in asked}
            for name in asked:
                self._asked[name].notify()
            while not self._over():
                left = deadline - time.monotonic()
                if left <= 0:
                    self.failures |= dict.fromkeys(self._pending, f"no answer within {timeout:g} s")
                    break
                self._changed.wait(min(left, LOOK))
            if self._ended is not None:
                raise self._ended
            self._waiting, self._enough = {}, None
            replies, self._replies = self._replies, {}
            return replies

    def close(self) -> None:
        """Let go of the calls that nobody waits for any more."""
        with self._changed:
            self._closed = True
            for asked in self._asked.values():
                asked.notify()

    def _over(self) -> bool:
        """Whether the present exchange has what it was for.

        Asked by whoever brings a reply, so that the thread that waits is not woken for those before the last.
        """
        if not self._pending or self._ended is not None:
            return True
        try:
            return bool(self._replies) and self._enough is not None and self._enough(self._replies)
        except BaseException as error:
            self._ended = error
            return True

    def _call_site(self, name: str) -> None:
        """Send a site its requests, one after the other."""
        while True:
            with self._changed:
                self._asked[name].wait_for(lambda: self._closed or name in self._waiting)
                if self._closed:
                    return
                request = self._waiting.pop(name)
            reply, failure, begun = None, "", time.monotonic()
            try:
                reply = self._call(name, request)
            except RunAborted as aborted:  # the job is over, and nobody will answer any more
                self._ended = aborted
            except Exception as error:
                late = isinstance(getattr(error, "cause", None), TimeoutError)
                failure = f"the call failed with {type(error).__name__}: {error}"
                if late:  # FLARE says the same of a process that has ended, as soon as it has
                    ended = time.monotonic() - begun < request.timeout / 2
                    failure = _GONE if ended else f"no answer within {request.timeout:g} s"
            with self._changed:
                if reply is not None:
                    self._replies[name] = reply
                if request.exchange == self._exchange:
                    self._pending.discard(name)
                    if reply is None:
                        self.failures[name] = failure
                if self._over():
                    self._changed.notify()

    def _call(self, name: str, request: _Request) -> bytes:
        channel, context = self._channels[name], Context(self._key.job, name, request.phase)
        site = self._sites[name](timeout=request.timeout)
        if not channel.open:
            channel.introduce(site.introduce(self._key.introduction))
        code = channel.code(context, request.payload)
        reply, reply_code = site.answer(request.phase, bytes(request.payload), code)
        if not reply:
            raise WireError(f"{name} refused the call; its own log tells why.")
        channel.check(context._replace(request=code), reply, reply_code)
        assert isinstance(reply, bytes)
        return reply


def _program() -> Callable[..., Any]:
    module, _, function = os.environ[PROGRAM].partition(":")
    program: Callable[..., Any] = getattr(import_module(module), function)
    return program


def _here() -> tuple[str, Path, str]:
    """This participant's name, the folder of the kit it runs from, which outlives the job, and the job's id."""
    return str(collab.site_name), Path(collab.workspace.get_root_dir()), str(collab.fl_ctx.get_job_id())


def _sent(job: str) -> str:
    """The folder of what came with the job."""
    return str(collab.workspace.get_app_config_dir(job))


def _open_log(kit: Path) -> None:
    log = RotatingFileHandler(kit / LOG, maxBytes=_LOG_SIZE, backupCount=_LOG_FILES, encoding="utf-8")
    log.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger("fedlin").addHandler(log)


def _register_status(kit: Path) -> None:
    """Let whoever sent the job ask for its status, where the program's module has a function that tells it."""
    module, _, _ = os.environ[PROGRAM].partition(":")
    tell = getattr(import_module(module), "tell_status", None)
    if tell is not None:
        command = lambda topic, data, context: tell(str(kit), data or {})  # noqa: E731
        collab.fl_ctx.get_engine().register_app_command(STATUS, command)


def _quieten(sites: int) -> None:
    """Let sites ask the server for tasks less often than at the job's start; they learn of its end that much later."""
    runner = collab.fl_ctx.get_prop(FLContextKey.RUNNER)
    runner.config.task_request_interval = max(2.0, sites / _QUESTIONS)


class FlareServer:
    """The server's component: calls `program(transport, kit, sent)`, and the job lasts as long."""

    @_main
    def run(self) -> None:
        """The job's main function."""
        logging.getLogger(CALLS).setLevel(logging.WARNING)
        _, kit, job = _here()
        _open_log(kit)
        _register_status(kit)
        _quieten(len(collab.clients))
        startup = kit / "startup"
        key = JobKey(Signer(startup, "server"), job)
        transport = FlareTransport(collab.clients, key, (startup / "rootCA.pem").read_bytes())
        try:
            _program()(transport, str(kit), _sent(job))
        finally:
            transport.close()


class _Site(NamedTuple):
    """What a site's component asks FLARE for once a job."""

    name: str
    kit: Path
    job: str
    key: JobKey
    server: Channel


class FlareClient:
    """A site's component: `program(name, kit, sent)` makes the handler that answers the server."""

    def __init__(self) -> None:
        self._handler: Handler | None = None
        self._turn = threading.Lock()
        self._own: _Site | None = None

    @_publish
    def introduce(self, introduction: bytes) -> bytes:
        """This site's introduction in exchange for the server's; nothing to others."""
        try:
            with self._turn:
                return self._introduce(str(collab.caller), introduction)
        except Exception:
            _log.exception("an introduction was not answered")
            return b""

    @_publish
    def answer(self, phase: str, payload: bytes, code: bytes) -> tuple[bytes, bytes]:
        """The reply and its code; nothing to others than the server.

        One message at a time, whatever thread it came on. No exception leaves: FLARE would send its text, and with it
        whatever data it quotes.
        """
        try:
            with self._turn:
                return self._answer(str(collab.caller), phase, payload, code)
        except BaseException:
            _log.exception("a message of phase %.80r was not answered", phase)
            return _NOTHING

    def _introduce(self, caller: str, introduction: bytes) -> bytes:
        site = self._site()
        try:
            _check_caller(caller)
            site.server.introduce(introduction)
        except WireError as refusal:
            _refuse(site.kit, caller, "introduction", refusal)
            return b""
        return site.key.introduction

    def _answer(self, caller: str, phase: str, payload: bytes, code: bytes) -> tuple[bytes, bytes]:
        site = self._site()
        context = Context(site.job, site.name, phase)
        try:
            _check_caller(caller)
            site.server.check(context, payload, code)
        except WireError as refusal:
            _refuse(site.kit, caller, phase, refusal)
            return _NOTHING
        if self._handler is None:
            self._handler = _program()(site.name, str(site.kit), _sent(site.job))
        reply = self._handler(phase, payload)
        return reply, site.server.code(context._replace(request=code), reply)

    def _site(self) -> _Site:
        if self._own is None:
            name, kit, job = _here()
            _open_log(kit)
            key = JobKey(Signer(kit / "startup", "client"), job)
            settings = json.loads((kit / "startup" / "fed_client.json").read_text(encoding="utf-8"))
            root, server = (kit / "startup" / "rootCA.pem").read_bytes(), settings["servers"][0]["identity"]
            self._own = _Site(name, kit, job, key, Channel(root, server, key))
        return self._own


def _check_caller(caller: str) -> None:
    if caller != SERVER:
        raise WireError("sites answer the server alone.")


def _refuse(kit: Path, caller: str, phase: str, why: WireError) -> None:
    """Write down that somebody was refused."""
    _log.warning("refused a call in the name of %.80r: %s", caller, why)
    AuditTrail(kit).record("call refused", caller=caller[:64], phase=phase[:64], why=str(why))
