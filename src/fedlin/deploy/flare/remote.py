"""A federation on many machines: what runs on each of them, and on that of who sends the job."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedlin.deploy.flare.certificates import check_certificate
from fedlin.deploy.flare.driver import Driver
from fedlin.deploy.flare.processes import PROGRAMS, Process
from fedlin.deploy.project import Project
from fedlin.errors import DeployError

_POLL = 1.0
_DONE = "FINISHED:COMPLETED"
_SHORT, _FRUITLESS = 60.0, 5  # so many ends within so many seconds each: something is wrong


def take_part(kit: Path) -> None:
    """Run the server or the site whose folder this is, and start it again when it dies, until interrupted."""
    process = _process(kit)
    check_certificate(kit)
    starts: list[float] = []
    try:
        while True:
            if not process.alive():
                starts = [*starts[1 - _FRUITLESS :], time.monotonic()]
                if len(starts) == _FRUITLESS and starts[-1] - starts[0] < _SHORT:
                    raise DeployError(f"the process ends again and again: see {kit / 'process.log'}.")
                process.start()
            time.sleep(_POLL)
    except KeyboardInterrupt:
        return
    finally:
        process.stop()


def attend(project: Project, say: Callable[[str], object]) -> dict[str, Any]:
    """Send the job, and send it again whenever it ended before the run did; tell whom it waits for."""
    check_certificate(project.admin)
    driver = Driver(project.admin, project.job, project.sites, project.needed)
    quick, begun, said = 0, time.monotonic(), ""
    try:
        while driver.ended != _DONE:
            if driver.ended is not None:  # a job that went on for a while brought rounds, which are saved
                quick = quick + 1 if time.monotonic() - begun < _SHORT else 0
                if quick == _FRUITLESS:
                    return {"status": "failed", "error": f"{quick} jobs in a row ended at once: see the server's log."}
            submitted, driver.ended = driver.submissions, None
            driver.advance()
            if driver.submissions > submitted:
                begun = time.monotonic()
            if said != (said := f"waiting for {driver.awaited}" if driver.awaited else "the job runs"):
                say(said)
            time.sleep(_POLL)
        return {"status": "done"}
    finally:
        driver.forget()


def _process(kit: Path) -> Process:
    if (kit / "startup" / "fed_server.json").is_file():
        return Process(kit, "server", "server", PROGRAMS["server"])
    client = kit / "startup" / "fed_client.json"
    if client.is_file():
        name = json.loads(client.read_text(encoding="utf-8"))["client"]["fqsn"]
        return Process(kit, "client", name, PROGRAMS["client"])
    raise DeployError(f"{kit} is neither a server's nor a site's folder: copy one that fedlin federation init wrote.")
