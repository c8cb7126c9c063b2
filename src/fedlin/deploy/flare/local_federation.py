"""The whole federation on this machine: a process for the server and one for each site, over mutual TLS."""

import time
from collections.abc import Callable, Mapping

from fedlin.deploy.flare.certificates import check_certificate, check_same_authority
from fedlin.deploy.flare.driver import Driver
from fedlin.deploy.flare.kits import Kind, check_port
from fedlin.deploy.flare.processes import PROGRAMS, ROTATE, Process, fork_server, stop_all
from fedlin.deploy.project import Project
from fedlin.deploy.runs import Ending, outcome
from fedlin.deploy.screen import Screen
from fedlin.deploy.status import RECENT, Progress, read_status
from fedlin.engines.interrupt import undisturbed

Watch = Callable[[Progress | None], object]
_POLL = 0.2  # seconds between looks at the processes and at what the server wrote
_ASK = 1.0  # seconds between questions to FLARE, which travel as messages do
_FRUITLESS = 5  # jobs, or processes started again, in a row that brought no round


class LocalFederation:
    """The processes of a federation; what dies is started again, and the job goes on from what was saved."""

    def __init__(self, project: Project, programs: Mapping[Kind, str] = PROGRAMS) -> None:
        self.project = project
        forks = self._forks = fork_server(project.server)
        self.server = Process(project.server, "server", "server", programs["server"])
        self.sites = {
            name: Process(project.site(name), "client", name, programs["client"], forks) for name in project.sites
        }
        self.driver = Driver(project.admin, project.job, project.sites, project.needed)
        self._revived = 0

    def run(self, watch: Watch = lambda progress: None, say: Callable[[str], object] = lambda line: None) -> Ending:
        """Run to the end; how it ended. `watch` sees every look at the run, `say` gets what a person should read."""
        everyone = [self.server, *self.sites.values()]
        stop_all(everyone)  # what a crash left behind
        check_port(self.project.server)
        kits = [self.project.server, self.project.admin, *map(self.project.site, self.project.sites)]
        check_same_authority(kits)
        for kit in kits:
            check_certificate(kit)
        self.project.share()
        screen = Screen(say)
        screen.tell(f"starting the server and {len(self.sites)} sites on this machine")
        try:
            for process in everyone:
                process.launch()
            return self._attend(watch, screen)
        finally:
            with undisturbed():
                screen.tell("ending the server and the sites")
                self.close()

    def close(self) -> None:
        """End all processes."""
        self.driver.forget()
        stop_all([self.server, *self.sites.values()])
        if self._forks is not None:
            self._forks.close()

    def _attend(self, watch: Watch, screen: Screen) -> Ending:
        last_round, submitted, revived, advanced, started = -1, 0, 0, 0.0, 0
        run = self.project.run_folder
        former, rotated = outcome(run), time.monotonic()
        while (ended := self._ended(former)) is None:
            for name in self._revive():
                screen.tell(f"{name}'s process had ended and is started again: see process.log in its folder")
            if time.monotonic() - advanced >= _ASK:
                running = self.driver.advance()
                advanced = time.monotonic()
                if self.driver.awaited:
                    screen.tell(f"waiting for {self.driver.awaited}")
                elif running and started != self.driver.submissions:
                    screen.tell("the job starts again" if started else "everyone is connected, and the job starts")
                    started = self.driver.submissions
            status = read_status(run, RECENT)
            now = status.progress
            if now is not None and now.round != last_round:
                last_round, submitted, revived = now.round, self.driver.submissions, self._revived
            if max(self.driver.submissions - submitted, self._revived - revived) > _FRUITLESS:
                return {
                    "status": "failed",
                    "error": "jobs or processes end again and again, and no round is played: "
                    f"see process.log in {self.project.server} and in the sites' folders.",
                }
            if time.monotonic() - rotated > ROTATE:
                for process in (self.server, *self.sites.values()):
                    process.rotate_logs()
                rotated = time.monotonic()
            watch(now)
            if status.alive:  # what was written before is of a process that has ended
                screen.show(now, status.awaiting, status.events)
            time.sleep(_POLL)
        return ended

    def _ended(self, former: Ending | None) -> Ending | None:
        """How the run ended: what its folder says and did not say before, or what the job brought."""
        now = outcome(self.project.run_folder)
        return self.driver.outcome if now == former else now

    def _revive(self) -> list[str]:
        """Start again what has ended; who that was."""
        ended = []
        if not self.server.alive():
            self.driver.forget()
            self.server.start()
            ended.append("server")
        for name, site in self.sites.items():
            if not site.alive():
                site.start()
                ended.append(name)
        self._revived += len(ended)
        return ended
