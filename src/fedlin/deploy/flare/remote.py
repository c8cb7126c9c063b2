"""A federation on many machines: what runs on each of them, and on that of who sends the job."""

import time
from collections.abc import Callable
from pathlib import Path

from fedlin.deploy.event_lines import Event
from fedlin.deploy.flare.certificates import check_certificate
from fedlin.deploy.flare.connection import check_connection
from fedlin.deploy.flare.driver import Driver
from fedlin.deploy.flare.kits import check_port
from fedlin.deploy.flare.processes import PROGRAMS, ROTATE, Process
from fedlin.deploy.kit_folders import is_server, is_site, site_name
from fedlin.deploy.project import Project
from fedlin.deploy.runs import Ending, run_title
from fedlin.deploy.screen import Screen
from fedlin.deploy.site_record import SiteRecord, busy_with, cut_off, read_record, unwritable
from fedlin.deploy.status import Awaiting, Progress
from fedlin.engines.interrupt import undisturbed
from fedlin.errors import DeployError

Say = Callable[[str], object]
_POLL = 1.0
_SHORT, _FRUITLESS = 60.0, 5  # so many ends within so many seconds each: something is wrong
_LOOK = 10.0  # seconds between two looks at a connection that is not there
_AGAIN = "{jobs} jobs in a row ended at once: see process.log in the server's folder and in those of the sites."


def take_part(kit: Path, say: Say) -> None:
    """Run the server or the site whose folder this is, and start it again when it dies, until interrupted."""
    process = _process(kit)
    check_certificate(kit)
    process.stop()  # what a crash left behind
    if process.kind == "server":
        check_port(kit)
    starts: list[float] = []
    watch = (SiteWatch if process.kind == "client" else ServerWatch)(kit, process.name, say)
    say(f"{process.name}: started; what went wrong is in {kit / 'process.log'}, Ctrl-C ends it")
    rotated = time.monotonic()
    try:
        while True:
            if not process.alive():
                starts = [*starts[1 - _FRUITLESS :], time.monotonic()]
                if len(starts) == _FRUITLESS and starts[-1] - starts[0] < _SHORT:
                    raise DeployError(f"the process ends again and again: see {kit / 'process.log'}.")
                if len(starts) > 1:
                    say(f"{process.name}: its process had ended, and is started again")
                process.start()
            watch.look()
            if time.monotonic() - rotated > ROTATE:
                process.rotate_logs()
                rotated = time.monotonic()
            time.sleep(_POLL)
    except KeyboardInterrupt:
        say(f"{process.name}: ends")
    finally:
        with undisturbed():
            process.stop()


class ServerWatch:
    """Tells who keeps the server whether its folder can be written to: where it cannot, no job can say so."""

    def __init__(self, kit: Path, name: str, say: Say) -> None:
        self.kit = kit
        self.name = name
        self._say = say
        self._looked = 0.0
        self._wrong: str | None = None

    def look(self) -> None:
        """What is new."""
        if time.monotonic() - self._looked < _LOOK:
            return
        self._looked, before, self._wrong = time.monotonic(), self._wrong, unwritable(self.kit)
        if self._wrong != before:
            self._say(f"{self.name}: {self._wrong or 'its folder can be written to again'}")


class SiteWatch:
    """Tells a site's owner whether the server is reached, what it asks, and what the site refuses."""

    def __init__(self, kit: Path, name: str, say: Say) -> None:
        self.kit = kit
        self.name = name
        self._screen = Screen(say)
        self._looked = 0.0
        self._before = read_record(kit) or SiteRecord()
        self._quiet = True  # nothing was asked since the server was reached
        self._cut = self._before.time  # when that request came of which it was told last that it has no end
        self._slow = 0.0  # when that request came of which it was told last that it takes long

    def look(self) -> None:
        """What is new."""
        record = read_record(self.kit) or SiteRecord()
        if record.refused and record.refusal_time > self._before.refusal_time:
            self._screen.tell(f"{self.name}: refused a request: {record.refusal}")
        if record.time > self._cut and (cut := cut_off(record)):
            self._cut = record.time
            self._screen.tell(f"{self.name}: {cut}")
        if record.time > self._before.time:
            self._quiet = False
            place = f"run {record.run}, round {record.round + 1}, {record.phase}"
            if (record.run, record.round // 100) != (self._before.run, self._before.round // 100):
                self._screen.tell(f"{self.name}: asked in {place}; {record.answered} requests answered")
            self._before = record
        elif time.monotonic() - self._looked >= _LOOK and time.time() - record.time > _LOOK:
            self._looked = time.monotonic()
            wrong = check_connection(self.kit) or unwritable(self.kit)
            if wrong is None and (busy := busy_with(record)):
                if self._slow != record.time:
                    self._slow = record.time
                    self._screen.tell(f"{self.name}: {busy}")
                return
            self._screen.tell(f"{self.name}: {wrong or 'the server is reached, and asks nothing at the moment'}")


def attend(project: Project, say: Say) -> Ending:
    """Send the job, and send it again whenever it ended before the run did; tell what happens meanwhile."""
    check_certificate(project.admin)
    driver = Driver(project.admin, project.job, project.sites, project.needed, project.share)
    screen = Screen(say)
    quick, begun = 0, time.monotonic()
    events: list[Event] = []
    try:
        while True:
            if driver.ended is not None:  # a job that went on for a while brought rounds, which are saved
                if driver.outcome is not None:
                    return driver.outcome
                quick = quick + 1 if time.monotonic() - begun < _SHORT else 0
                if quick == _FRUITLESS:
                    return {"status": "failed", "error": _AGAIN.format(jobs=quick)}
            submitted, driver.ended = driver.submissions, None
            running = driver.advance()
            if driver.other is not None:
                raise DeployError(
                    f"{run_title(driver.other)} goes on with other settings: wait for its end, or end it with fedlin "
                    f"federation stop {project.folder}; what it has done is saved."
                )
            if driver.submissions > submitted:
                begun = time.monotonic()
            if driver.awaited:
                screen.tell(f"waiting for {driver.awaited}")
            elif running:
                _show(driver, screen, events)
            time.sleep(_POLL)
    finally:
        driver.forget()


def _show(driver: Driver, screen: Screen, events: list[Event]) -> None:
    """Show what the running job says of itself."""
    answer = driver.ask({"events": len(events)})
    if answer is None or not answer["settings"]:
        screen.tell("the job starts")
        return
    events += answer["events"]
    progress, awaiting = answer["progress"], answer["awaiting"]
    screen.show(Progress(**progress) if progress else None, Awaiting(**awaiting) if awaiting else None, events)


def _process(kit: Path) -> Process:
    if is_server(kit):
        return Process(kit, "server", "server", PROGRAMS["server"])
    if is_site(kit):
        return Process(kit, "client", site_name(kit), PROGRAMS["client"])
    raise DeployError(f"{kit} is neither a server's nor a site's folder: copy one that fedlin federation init wrote.")
