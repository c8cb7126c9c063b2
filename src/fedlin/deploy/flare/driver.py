"""Sends the job to a federation and sends it again after a crash, until the run is over.

FLARE does not resume a job whose server was killed. The state of a run is therefore ours: the server's and each site's
folder hold it, and a job sent again goes on from there. Sites come and go while a job runs (`flare_rejoin.py`).
"""

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import redirect_stdout, suppress
from functools import partial
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, TypeVar

from fedlin.deploy.flare.job import CONFIG
from fedlin.deploy.flare.kits import ADMIN
from fedlin.deploy.runs import OUTCOME, Ending, outcome
from fedlin.deploy.settings import NAME
from fedlin.errors import FedLinError

STATUS = "fedlin_status"  # what a running job is asked
_UNABLE = "the server, which answers, but cannot take the job: see process.log there"
LONGEST = 60.0  # seconds one call of FLARE's may take
T = TypeVar("T")


def bounded(call: Callable[[], T], seconds: float = LONGEST) -> T:
    """What a call of FLARE's brings; TimeoutError where it does not end, as one may not whose server has died.

    >>> bounded(lambda: 3)
    3
    """
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:
            result.set_exception(error)

    Thread(target=run, daemon=True).start()
    return result.result(seconds)


class Driver:
    """One run, from the admin's kit: it begins with all sites, and later jobs can do with `needed` of them.

    `settle` is called once it is certain that no other run goes on, before a job is sent.
    """

    def __init__(
        self,
        admin: Path,
        job: Path,
        sites: Sequence[str],
        needed: int | None = None,
        settle: Callable[[], object] = lambda: None,
    ) -> None:
        self.admin = admin.resolve()
        self.job = job.resolve()
        self.sites = set(sites)
        self.needed = len(sites) if needed is None else needed
        self._settle = settle
        self.submissions = 0
        self.ended: str | None = None  # what FLARE says of the latest job that is over
        self.outcome: Ending | None = None  # what that job wrote about how the run ended
        self.awaited: str | None = None  # who is missing for a job to run
        self.other: str | None = None  # the name, if any, of a run that goes on with other settings than these
        self._session: Any = None
        self._job_id: str | None = None

    def advance(self) -> bool:
        """One look at the federation: submit if nothing runs; whether a job runs now."""
        former = self._session
        try:
            session = self.session()
            self.awaited = None
            if self._job_id is not None:
                status = str(bounded(lambda: session.get_job_meta(self._job_id))["status"])
                if not status.startswith("FINISHED"):
                    return True
                self.outcome = self._outcome(session, self._job_id)
                self._job_id, self.ended = None, status
                return False
            if self._adopt():
                return True
            self._settle()
            present = self.present()
            if self._enough(present):
                self._job_id = bounded(lambda: session.submit_job(str(self.job)))
                self.submissions += 1
                return True
            self.awaited = ", ".join(sorted(self.sites - present))
        except FedLinError:
            raise
        except Exception:  # FLARE raises many kinds where the server went away
            # A session that was opened just now was with a server that is there.
            self.awaited = "the server" if self._session is former else _UNABLE
            self.forget()
        return False

    def _adopt(self) -> bool:
        """Attend to a job that runs already, whose sender or whose session went away; whether there is one."""
        for job in self.running_jobs():
            self._job_id = job
            answer = self.ask({"events": 0})
            if answer is None:  # it crashed with its server
                continue
            if answer["settings"] == "":  # its run has not begun: the next look asks again
                self._job_id = None
                return True
            own = hashlib.sha256((self.job / CONFIG / NAME).read_bytes()).hexdigest()
            self.other = None if answer["settings"] == own else answer["run"]
            return True
        self._job_id = None
        return False

    def running_jobs(self) -> list[str]:
        """The ids of the jobs that run, as FLARE's server says: one that crashed with it may be among them."""
        jobs = bounded(self.session().list_jobs)
        return [str(job["job_id"]) for job in jobs if str(job["status"]) == "RUNNING"]

    def stop(self) -> list[str]:
        """End the jobs that run; which those were."""
        ended = []
        for job in self.running_jobs():
            with suppress(Exception):  # one of a server that crashed
                bounded(partial(self.session().abort_job, job))
                ended.append(job)
        return ended

    def present(self) -> set[str]:
        """The sites that are connected."""
        return {client.name for client in self._clients()}

    def _clients(self) -> list[Any]:
        clients: list[Any] = bounded(self.session().get_system_info).client_info
        return clients

    def _enough(self, present: set[str]) -> bool:
        """All sites, since a run begins with them; once it has begun, as many as its rounds need."""
        return len(present & self.sites) >= (self.needed if self.submissions else len(self.sites))

    def ask(self, data: dict[str, Any]) -> dict[str, Any] | None:
        """What the running job says of itself; None where none answers."""
        session, job = self._session, self._job_id
        if session is None or job is None:
            return None
        try:
            answer: dict[str, Any] = bounded(lambda: session.do_app_command(job, STATUS, data))
            return answer
        except TimeoutError:
            self.forget()
        except Exception:  # it has not begun, or is over
            return None
        return None

    def forget(self) -> None:
        """The server has gone, and with it the session and the job."""
        self._job_id = None
        if self._session is not None:
            session, self._session = self._session, None
            with suppress(Exception):
                bounded(session.close, 5.0)

    def session(self) -> Any:
        """FLARE's session with the server, opened where there is none."""
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        if self._session is None:
            with redirect_stdout(StringIO()):
                self._session = bounded(
                    lambda: new_secure_session(ADMIN, str(self.admin), timeout=5.0, auto_login_max_tries=1)
                )
        return self._session

    @staticmethod
    def _outcome(session: Any, job: str) -> Ending | None:
        """What a job that is over wrote about the run, where FLARE still has it."""
        with suppress(Exception), TemporaryDirectory() as scratch, redirect_stdout(StringIO()):
            place = Path(bounded(lambda: session.download_job_result(job, scratch)))
            return next((end for path in place.rglob(OUTCOME) if (end := outcome(path.parent))), None)
        return None
