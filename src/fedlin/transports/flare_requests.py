"""What the server may ask of FLARE's own process at a site: what starts, watches and ends a job, and nothing else.

FLARE answers whoever asks it to run a command, to read a file or to delete a folder, and looks for a permission only
where the question says that it needs one.
"""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from shutil import rmtree
from typing import Any
from uuid import UUID
from zipfile import BadZipFile, ZipFile

from nvflare.fuel.f3.message import Message
from nvflare.fuel.hci.proto import ReplyKeyword
from nvflare.private.admin_defs import Message as Request
from nvflare.private.admin_defs import error_reply
from nvflare.private.defs import RequestHeader, TrainingTopic, new_cell_message
from nvflare.private.fed.client.admin import FedAdminAgent

from fedlin.checks import printable
from fedlin.transports.flare_messages import SERVER
from fedlin.transports.refusals import Refusals

ANSWERED = frozenset(
    {
        TrainingTopic.CHECK_STATUS,
        TrainingTopic.CHECK_RESOURCE,
        TrainingTopic.CANCEL_RESOURCE,
        TrainingTopic.DEPLOY,
        TrainingTopic.START_JOB,
        TrainingTopic.ABORT,
        TrainingTopic.NOTIFY_JOB_STATUS,  # which the site's own process of the job asks
    }
)
_OF_NO_JOB = (TrainingTopic.CHECK_STATUS, TrainingTopic.CANCEL_RESOURCE)
_REFUSED = "this site does not answer that"
_NAME = 80  # characters of a topic that are told
_FILES, _SIZE = 1000, 64 << 20  # of a job, which are settings and no data: their number, and bytes
_KEPT = 3  # folders of jobs


def limit_requests(kit: Path, put: Callable[[Any, str, Any], None] = setattr) -> None:
    """Have FLARE's own process at a site answer those requests alone.

    Args:
        kit: The site's folder.
        put: What replaces a function of FLARE's.
    """
    original, refusals = FedAdminAgent._dispatch_request, Refusals(kit)

    def dispatch(agent: FedAdminAgent, message: Message) -> Message:
        reason = unanswered(message.payload)
        if reason is None:
            if message.payload.topic == TrainingTopic.DEPLOY:
                remove_jobs(kit)
            answer: Message = original(agent, message)
            return answer
        refusals.report(SERVER, f"refused a request of the server: {reason}", "request refused", why=reason)
        return new_cell_message({}, error_reply(f"{ReplyKeyword.NOT_AUTHORIZED}: {_REFUSED}"))

    put(FedAdminAgent, "_dispatch_request", dispatch)


def unanswered(request: object) -> str | None:
    """Why a request is not answered; None where it is."""
    topic, headers, body = (getattr(request, name, None) for name in ("topic", "headers", "body"))
    if not isinstance(request, Request) or not isinstance(headers, dict):  # one may have been sent without
        return "it is no request"
    job = headers.get(RequestHeader.JOB_ID)
    if not isinstance(topic, str) or topic not in ANSWERED:
        return f"it asks for {printable(str(topic), _NAME)}, which no job needs"
    if job is None and topic in _OF_NO_JOB:
        return None
    if not _is_job(job):  # FLARE makes the name of a folder of it
        return f"it asks for {topic} of a job that is called {printable(str(job), _NAME)}"
    return _unpackable(body) if topic == TrainingTopic.DEPLOY else None


def remove_jobs(kit: Path) -> None:
    """Remove what FLARE has left of jobs, but for the latest: each has a folder, and FLARE removes none."""
    jobs = sorted((path for path in kit.iterdir() if _is_job(path.name)), key=lambda path: path.stat().st_mtime)
    for path in jobs[:-_KEPT]:
        rmtree(path, ignore_errors=True)


def _is_job(name: object) -> bool:
    try:
        return isinstance(name, str) and str(UUID(name)) == name
    except ValueError:
        return False


def _unpackable(packed: object) -> str | None:
    """Why FLARE is not to unpack a job, which it does before it looks who has signed it; None where it may."""
    try:
        with ZipFile(BytesIO(packed)) as job:  # type: ignore[arg-type] # where it is none, that is told
            files = job.infolist()
    except (BadZipFile, TypeError, ValueError, NotImplementedError, OSError):
        return "it sends a job that cannot be read"
    if len(files) > _FILES or sum(file.file_size for file in files) > _SIZE:
        return f"it sends a job of more than {_FILES} files or {_SIZE >> 20} MB"
    return None
