"""A component of FLARE's server process that lets sites come back into a job that runs.

FLARE starts a job at the sites that are there when it begins; one that is started again stays outside until the next
job, and a process of the job that fails at one site ends the job for all. With this component the job goes on, it is
started at every site that lacks it, and the server's process of the job hears at once whose process has ended.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import RunProcessKey
from nvflare.apis.job_def import JobMetaKey
from nvflare.apis.job_scheduler_spec import DispatchInfo
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.message import Message
from nvflare.private.admin_defs import Message as Request
from nvflare.private.admin_defs import MsgHeader
from nvflare.private.admin_defs import ReturnCode as RequestStatus
from nvflare.private.defs import CellChannel, CellChannelTopic, ClientStatusKey, JobFailureMsgKey, TrainingTopic
from nvflare.private.fed.server.job_runner import JobRunner

from fedlin.checks import printable
from fedlin.transports.flare_messages import CHANNEL, ENDED, OVER, SERVER, UNABLE, tell
from fedlin.transports.flare_replies import guard_replies
from fedlin.transports.refusals import Refusals

_LOOK = 0.5  # seconds
_FIRST, _LAST = 5.0, 60.0  # seconds after which a site that lacks the job is tried again: more each time
_APART = 2.0  # the same for one that has registered anew, once in _LAST seconds
_LONGEST = 500  # characters of a report that go into the log
_ANSWER, _DEPLOY = 2.0, 10.0  # seconds in which a site says what runs there, and in which it takes a job
_log = logging.getLogger(__name__)


def _begin(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="fedlin-rejoin-site", daemon=True).start()


class JobProcesses(Protocol):
    """The processes of one job, as FLARE's server process knows them; several threads may ask for them at once."""

    def connected(self) -> set[str]:
        """The sites whose process of the job is connected."""

    def registered(self) -> Mapping[str, str]:
        """The sites whose own process is, each with a token that is another one once it was started again."""

    def lacks(self, name: str) -> bool:
        """Whether this site answers that no process of the job runs there."""

    def start(self, name: str) -> None:
        """Start the job there."""

    def tell_ended(self, name: str) -> None:
        """Tell the server's process of the job that a site's has ended, or has lost its connection."""


class _Try(NamedTuple):
    """When the job was started at a site last, or would have been, and when it is tried again."""

    token: str  # of the site's registration
    when: float
    next: float  # at the latest
    pause: float  # seconds from the next to the one after it
    renewed: float  # when the site was tried sooner last, since it had registered anew

    def due(self, token: str, now: float) -> bool:
        """Whether the site is to be tried again."""
        return now >= self.next or self._renews(token, now)

    def again(self, token: str, now: float) -> "_Try":
        """It is tried now."""
        if self._renews(token, now):
            return _Try(token, now, now + _FIRST, 2 * _FIRST, now)
        return _Try(token, now, now + self.pause, min(2 * self.pause, _LAST), self.renewed)

    def _renews(self, token: str, now: float) -> bool:
        return token != self.token and now >= max(self.when + _APART, self.renewed + _LAST)


class RunningJob:
    """Watches over the sites' processes of one job.

    Each site is asked and started by itself, so that one which is slow to answer, or answers what nobody expects, costs
    the others nothing.

    Args:
        processes: What FLARE knows of them.
        clock: Seconds.
        begin: Does something that may take long, without waiting for it.
    """

    def __init__(
        self,
        processes: JobProcesses,
        clock: Callable[[], float] = time.monotonic,
        begin: Callable[[Callable[[], None]], None] = _begin,
    ) -> None:
        self._processes = processes
        self._clock = clock
        self._begin = begin
        self._connected: set[str] = set()
        self._asked: set[str] = set()  # the sites that are being tried
        begun = clock()  # when FLARE has started it at those that are there
        self._tries = {
            name: _Try(token, begun, begun + _FIRST, _FIRST, begun - _LAST)
            for name, token in processes.registered().items()
        }

    def look(self) -> None:
        """Tell of processes that ended since the last look, and begin to start the job where it is missing."""
        connected, registered = self._processes.connected(), self._processes.registered()
        for name in sorted(self._connected - connected):
            self._processes.tell_ended(name)
        self._connected, now = connected, self._clock()
        for name in connected & self._tries.keys():
            if now >= self._tries[name].next:  # it was there for as long as the pause
                self._tries[name] = self._tries[name]._replace(pause=_FIRST)
        for name in sorted(registered.keys() - connected - self._asked):
            known = self._tries.get(name, _Try("", now - _APART, now, _FIRST, now - _LAST))
            if known.due(registered[name], now):
                self._tries[name] = known.again(registered[name], now)
                self._asked.add(name)
                self._begin(partial(self._start, name))

    def _start(self, name: str) -> None:
        """Start the job at a site unless it runs there."""
        try:
            if self._processes.lacks(name):
                _log.info("the job is started at %s, where it does not run", name)
                self._processes.start(name)
        except Exception:  # FLARE raises many kinds where a job or a site goes away meanwhile
            _log.exception("the job could not be started at %s", name)
        finally:
            self._asked.discard(name)


class Rejoin(FLComponent):  # type: ignore[misc] # FLARE has no types
    """Watches over the jobs that run, as long as the server does."""

    def __init__(self) -> None:
        super().__init__()
        self._over = threading.Event()
        self._ended: set[str] = set()  # jobs that their own processes say are over

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """FLARE's hook."""
        if event_type == EventType.SYSTEM_START:
            engine = fl_ctx.get_engine()
            guard_replies(engine, Refusals(Path(engine.args.workspace)))
            engine.get_cell().register_request_cb(
                channel=CellChannel.SERVER_MAIN,
                topic=CellChannelTopic.REPORT_JOB_FAILURE,
                cb=lambda report: pass_on(report, engine),
            )
            engine.get_cell().register_request_cb(channel=CHANNEL, topic=OVER, cb=self._note_end)
            threading.Thread(target=self._watch, args=(engine,), name="fedlin-rejoin", daemon=True).start()
        elif event_type == EventType.SYSTEM_END:
            self._over.set()

    def _note_end(self, word: Message) -> None:
        job = bytes(word.payload or b"").decode(errors="replace")
        if word.get_header(MessageHeaderKey.ORIGIN) == FQCN.join([SERVER, job]):
            self._ended.add(job)

    def _watch(self, engine: Any) -> None:
        jobs: dict[str, RunningJob] = {}
        while not self._over.wait(_LOOK):
            try:
                started = dict(engine.job_runner.running_jobs)
                self._ended &= started.keys()
                running = {
                    name: job
                    for name, job in started.items()
                    if name in engine.run_processes and name not in self._ended and not job.run_aborted
                }
                jobs = {
                    name: jobs.get(name) or RunningJob(_FlareProcesses(engine, job)) for name, job in running.items()
                }
                for job in jobs.values():
                    job.look()
            except Exception:  # FLARE raises many kinds where a job or a site goes away meanwhile
                _log.exception("looking after the sites of a job failed")


def pass_on(report: Message, engine: Any) -> Message:
    """Tell the server's process of a job that a site's has failed, and FLARE that it has ended; what FLARE replies."""
    job = report.payload.get(JobFailureMsgKey.JOB_ID) if isinstance(report.payload, dict) else None
    site, why = str(report.get_header(MessageHeaderKey.ORIGIN)), shown_end(report)
    reply: Message = engine.server.process_job_failure(harmless(report))
    if (
        isinstance(job, str)
        and job in engine.run_processes
        and reply.get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.OK
    ):
        tell(engine.get_cell().core_cell, FQCN.join([SERVER, job]), UNABLE, f"{site} {why}")
    return reply


def shown_end(report: Message) -> str:
    """What a site says of how its process of a job ended, in a line."""
    content = report.payload if isinstance(report.payload, dict) else {}
    why = f"{content.get(JobFailureMsgKey.REASON)} ({content.get(JobFailureMsgKey.CODE)})"
    return printable(why, _LONGEST)


def harmless(report: Message) -> Message:
    """A site's report of how its process of a job ended, without a reason to end the job for all, as FLARE would."""
    if isinstance(report.payload, dict):
        site = printable(str(report.get_header(MessageHeaderKey.ORIGIN)), _LONGEST)
        _log.warning("%s reports that its process of a job has failed: %s", site, shown_end(report))
        report.payload = {**report.payload, JobFailureMsgKey.CODE: None}
    return report


class _FlareProcesses:
    """The processes of a job, by way of FLARE's engine."""

    def __init__(self, engine: Any, job: Any) -> None:
        self._engine = engine
        self._job = job
        self._core = engine.get_cell().core_cell
        self._noting = threading.Lock()

    def connected(self) -> set[str]:
        places = [name.partition(".") for name in list(self._core.agents)]
        return {name for name, _, job in places if job == self._job.job_id and name != SERVER}

    def registered(self) -> dict[str, str]:
        return {client.name: client.token for client in self._engine.get_clients()}

    def lacks(self, name: str) -> bool:
        reply = self._ask(name, Request(topic=TrainingTopic.CHECK_STATUS, body=""), _ANSWER)
        return reply is not None and lacks(reply.body, self._job.job_id)

    def start(self, name: str) -> None:
        with self._engine.new_context() as fl_ctx:
            needs = self._job.resource_spec.get(name, {})
            enough, token = self._engine.check_client_resources(self._job, {name: needs}, fl_ctx).get(name, (False, ""))
            (app,) = self._job.get_deployment()
            content = self._job.get_application(app, fl_ctx)
            message = JobRunner._make_deploy_message(self._job, content, app, fl_ctx)
            if not enough or self._ask(name, message, _DEPLOY) is None:
                _log.warning("%s did not take the job: see the log there", name)
                return
            self._take_part(self._engine.get_client_from_name(name))
            self._engine.start_client_job(self._job, {name: DispatchInfo(app, needs, token)}, fl_ctx)

    def tell_ended(self, name: str) -> None:
        tell(self._core, FQCN.join([SERVER, self._job.job_id]), ENDED, name)

    def _take_part(self, client: Any) -> None:
        """Note that a site takes part, and under which token, for which the server's process of the job asks."""
        with self._noting:
            process = self._engine.run_processes[self._job.job_id]
            others = {
                token: other
                for token, other in process[RunProcessKey.PARTICIPANTS].items()
                if other.name != client.name
            }
            everyone = process[RunProcessKey.PARTICIPANTS] = others | {client.token: client}
            self._job.meta[JobMetaKey.JOB_CLIENTS] = [one.to_dict() for one in everyone.values()]

    def _ask(self, name: str, request: Any, timeout: float) -> Any:
        """The reply of a site that could do what it was asked; None where it could not, or has left."""
        client = self._engine.get_client_from_name(name)
        requests = {} if client is None else {client.token: request}
        replies = self._engine.server.admin_server.send_requests_and_get_reply_dict(requests, timeout_secs=timeout)
        reply = next(iter(replies.values()), None)
        refused = reply is None or reply.get_header(MsgHeader.RETURN_CODE, RequestStatus.OK) != RequestStatus.OK
        return None if refused else reply


def lacks(status: object, job: str) -> bool:
    """Whether a site that says this of itself has no process of a job; a site may say anything.

    >>> lacks('{"running_jobs": [{"job_id": "other"}]}', "job"), lacks("nonsense", "job")
    (True, False)
    """
    try:
        return job not in {
            entry[ClientStatusKey.JOB_ID] for entry in json.loads(str(status))[ClientStatusKey.RUNNING_JOBS]
        }
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
