"""The whole federation on this machine: a process for the server and one for each site, over mutual TLS."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from fedlin.deploy.flare.certificates import check_certificate
from fedlin.deploy.flare.driver import OUTCOME, Driver, outcome
from fedlin.deploy.flare.kits import Kind, check_port
from fedlin.deploy.flare.processes import PROGRAMS, Process, stop_all
from fedlin.deploy.project import Project
from fedlin.deploy.status import RECENT, Standing, standing

Watch = Callable[[Standing | None], object]
_POLL = 0.2  # seconds between looks at the processes and at what the server wrote
_ASK = 1.0  # seconds between questions to FLARE, which travel as messages do
_FRUITLESS = 5  # jobs, or processes started again, in a row that brought no round


class LocalFederation:
    """The processes of a federation; what dies is started again, and the job goes on from what was saved."""

    def __init__(self, project: Project, programs: Mapping[Kind, str] = PROGRAMS) -> None:
        self.project = project
        self.server = Process(project.server, "server", "server", programs["server"])
        self.sites = {name: Process(project.site(name), "client", name, programs["client"]) for name in project.sites}
        self.driver = Driver(project.admin, project.job, project.sites, project.needed)
        self._revived = 0

    def run(self, watch: Watch = lambda standing: None) -> dict[str, Any]:
        """Run to the end; how it ended."""
        (self.project.server / OUTCOME).unlink(missing_ok=True)
        self.server.stop()
        check_port(self.project.server)
        for kit in (self.project.admin, self.project.server, *map(self.project.site, self.project.sites)):
            check_certificate(kit)
        try:
            self.server.start()
            for site in self.sites.values():
                site.start()
            return self._attend(watch)
        finally:
            self.driver.forget()
            stop_all([self.server, *self.sites.values()])

    def _attend(self, watch: Watch) -> dict[str, Any]:
        seen, submitted, revived, asked = -1, 0, 0, 0.0
        while (found := outcome(self.project.server)) is None:
            self._revive()
            if time.monotonic() - asked >= _ASK:
                self.driver.advance()
                asked = time.monotonic()
            now = standing(self.project.server, RECENT)
            if now is not None and now.round != seen:
                seen, submitted, revived = now.round, self.driver.submissions, self._revived
            if max(self.driver.submissions - submitted, self._revived - revived) > _FRUITLESS:
                return {
                    "status": "failed",
                    "error": "jobs or processes end again and again, and no round is played: "
                    f"see process.log in {self.project.server} and in the sites' folders.",
                }
            watch(now)
            time.sleep(_POLL)
        return found

    def _revive(self) -> None:
        if not self.server.alive():
            self.driver.forget()
            self.server.start()
            self._revived += 1
        for site in self.sites.values():
            if not site.alive():
                site.start()
                self._revived += 1
                self.driver.resubmit()
