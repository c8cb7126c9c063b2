"""A component of FLARE's server process that lets sites come back into a job that runs.

FLARE starts a job at the sites that are there when it begins; one that is started again stays outside until the next
job, and a process of the job that fails at one site ends the job for all. With this component the job goes on, it is
started at every site that lacks it, and the server's process of the job hears at once whose process has ended.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
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
_APART = 2.0  # the same for one that has registered anew
_LONGEST = 500  # characters of a report that go into the log
_ANSWER, _DEPLOY = 2.0, 10.0  # seconds in which a site says what runs there, and in which it takes a job
_log = logging.getLogger(__name__)


class JobProcesses(Protocol):
    """The processes of one job, as FLARE's server process knows them."""

    def connected(self) -> set[str]:
        """The sites whose process of the job is connected."""

    def registered(self) -> Mapping[str, str]:
        """The sites whose own process is, each with a token that is another one once it was started again."""

    def lacking(self, names: Collection[str]) -> set[str]:
        """Which of these sites answer that no process of the job runs there."""

    def start(self, names: Collection[str]) -> None:
        """Start the job there."""

    def tell_ended(self, name: str) -> None:
        """Tell the server's process of the job that a site's has ended, or has lost its connection."""


class _Try(NamedTuple):
    """When the job was started at a site last, or would have been, and when it is tried again."""

    token: str  # of the site's registration
    when: float
    next: float  # as long as this is its registration
    pause: float  # seconds from the next to the one after it

    def due(self, token: str, now: float) -> bool:
        """Whether the site is to be tried again."""
        return now >= (self.next if token == self.token else self.when + _APART)

    def again(self, token: str, now: float) -> "_Try":
        """It is tried now."""
        pause = self.pause if token == self.token else _FIRST
        return _Try(token, now, now + pause, min(2 * pause, _LAST))


class RunningJob:
    """Watches over the sites' processes of one job.

    Args:
        processes: What FLARE knows of them.
        clock: Seconds.
    """

    def __init__(self, processes: JobProcesses, clock: Callable[[], float] = time.monotonic) -> None:
        self._processes = processes
        self._clock = clock
        self._connected: set[str] = set()
        begun = clock()  # when FLARE has started it at those that are there
        self._tries = {
            name: _Try(token, begun, begun + _FIRST, _FIRST) for name, token in processes.registered().items()
        }

    def look(self) -> None:
        """Tell of processes that ended since the last look, and start the job where it is missing."""
        connected, registered = self._processes.connected(), self._processes.registered()
        for name in sorted(self._connected - connected):
            self._processes.tell_ended(name)
        self._connected, now = connected, self._clock()
        for name in connected & self._tries.keys():
            if now >= self._tries[name].next:  # it was there for as long as the pause
                self._tries[name] = self._tries[name]._replace(pause=_FIRST)
        known = {name: self._tries.get(name, _Try("", now - _APART, now, _FIRST)) for name in registered}
        missing = {name for name in registered if name not in connected and known[name].due(registered[name], now)}
        if not missing:
            return
        self._tries |= {name: known[name].again(registered[name], now) for name in missing}
        if lacking := self._processes.lacking(missing):
            _log.info("the job is started at %s, where it does not run", ", ".join(sorted(lacking)))
            self._processes.start(lacking)


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

    def connected(self) -> set[str]:
        places = [name.partition(".") for name in list(self._core.agents)]
        return {name for name, _, job in places if job == self._job.job_id and name != SERVER}

    def registered(self) -> dict[str, str]:
        return {client.name: client.token for client in self._engine.get_clients()}

    def lacking(self, names: Collection[str]) -> set[str]:
        asked = self._clients(names)
        replies = self._send(dict.fromkeys(asked, Request(topic=TrainingTopic.CHECK_STATUS, body="")), _ANSWER)
        return {asked[token].name for token, reply in replies.items() if lacks(reply.body, self._job.job_id)}

    def start(self, names: Collection[str]) -> None:
        with self._engine.new_context() as fl_ctx:
            needs = {name: self._job.resource_spec.get(name, {}) for name in names}
            granted = self._engine.check_client_resources(self._job, needs, fl_ctx)
            (app,) = self._job.get_deployment()
            infos = {name: DispatchInfo(app, needs[name], token) for name, (enough, token) in granted.items() if enough}
            content = self._job.get_application(app, fl_ctx)
            sent = self._clients(infos)
            message = JobRunner._make_deploy_message(self._job, content, app, fl_ctx)
            taken = {sent[token].name: sent[token] for token in self._send(dict.fromkeys(sent, message), _DEPLOY)}
            if refusing := set(names) - taken.keys():
                _log.warning("%s did not take the job: see the log there", ", ".join(sorted(refusing)))
            self._take_part(taken)
            self._engine.start_client_job(self._job, {name: infos[name] for name in taken}, fl_ctx)

    def tell_ended(self, name: str) -> None:
        tell(self._core, FQCN.join([SERVER, self._job.job_id]), ENDED, name)

    def _take_part(self, clients: Mapping[str, Any]) -> None:
        """Note who takes part under which token, for whom the server's process of the job asks."""
        process = self._engine.run_processes[self._job.job_id]
        others = {
            token: client for token, client in process[RunProcessKey.PARTICIPANTS].items() if client.name not in clients
        }
        everyone = others | {client.token: client for client in clients.values()}
        process[RunProcessKey.PARTICIPANTS] = everyone
        self._job.meta[JobMetaKey.JOB_CLIENTS] = [client.to_dict() for client in everyone.values()]

    def _clients(self, names: Collection[str]) -> dict[str, Any]:
        return {client.token: client for client in self._engine.get_clients() if client.name in names}

    def _send(self, requests: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """What came of requests by token: the replies of those who could do what they were asked."""
        replies = self._engine.server.admin_server.send_requests_and_get_reply_dict(
            dict(requests), timeout_secs=timeout
        )
        return {
            token: reply
            for token, reply in replies.items()
            if reply is not None and reply.get_header(MsgHeader.RETURN_CODE, RequestStatus.OK) == RequestStatus.OK
        }


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
