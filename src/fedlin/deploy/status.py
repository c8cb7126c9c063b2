"""Where a run stands, read from the lines its server writes."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fedlin.deploy.flare.programs import STATE
from fedlin.engines.federation.pending import WAITING
from fedlin.engines.federation.round_log import LOG, read_lines
from fedlin.errors import DeployError

RECENT = 1 << 20  # bytes of the log: many rounds, and read in no time however long a run gets


@dataclass(frozen=True)
class Standing:
    """The latest round, and what happened besides."""

    round: int
    move: float
    gradient: float | None  # None where the method's server holds no estimate of it
    bytes_up: int
    bytes_down: int
    seconds: float
    late: list[str]
    attempts: int
    events: list[dict[str, Any]]


@dataclass(frozen=True)
class Exchange:
    """What the server asked last, and who has answered."""

    round: int  # rounds played before
    phase: str
    asked: list[str]
    answered: list[str]
    over: bool  # whether the server has gone on
    time: float  # when it asked

    @property
    def awaited(self) -> list[str]:
        """Whom the server waits for."""
        return [] if self.over else [name for name in self.asked if name not in self.answered]


def lines(server: Path) -> list[dict[str, Any]]:
    """Everything the server wrote about its rounds."""
    return read_lines(server / STATE / LOG)


def exchange(server: Path) -> Exchange | None:
    """The exchange under way, or the latest one; None before the first."""
    written = read_lines(server / STATE / WAITING)
    if not written:
        return None
    asked, *rest = written
    answered = [line["answered"] for line in rest if "answered" in line]
    over = any("over" in line for line in rest)
    return Exchange(asked["round"], asked["phase"], asked["asked"], answered, over, asked["time"])


def standing(server: Path, last: int | None = None) -> Standing | None:
    """The run's standing, with all its events or those in the `last` bytes of the log; None before its first round."""
    written = read_lines(server / STATE / LOG, last)
    rounds = [line for line in written if "event" not in line]
    if not rounds:
        return None
    told = {field.name: rounds[-1][field.name] for field in fields(Standing) if field.name != "events"}
    return Standing(**told, events=[line for line in written if "event" in line])


def server_folder(folder: Path) -> Path:
    """The server's kit in a federation's folder, or the folder itself where it is that kit."""
    for candidate in (folder / "server", folder):
        if (candidate / "startup" / "fed_server.json").is_file():
            return candidate
    raise DeployError(f"{folder} is neither a federation nor its server's folder.")


def log_lines(folder: Path, site: str | None) -> list[str]:
    """What the server wrote about its rounds, or what a site's process said, as lines of text."""
    path = server_folder(folder) / STATE / LOG if site is None else folder / "sites" / site / "process.log"
    if not path.is_file():
        raise DeployError(f"{path} is not there: nothing has run yet, or the site's log is on the site's machine.")
    return path.read_text(encoding="utf-8", errors="replace").splitlines()
