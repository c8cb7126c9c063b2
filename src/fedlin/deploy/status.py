"""Where a run stands, read from the lines its server writes."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlin.deploy.programs import STATE
from fedlin.errors import DeployError

LOG = "log.jsonl"
WAITING = "waiting.jsonl"


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


def lines(server: Path, name: str = LOG) -> list[dict[str, Any]]:
    """Everything the server wrote; a line cut off by a crash is left out."""
    path = server / STATE / name
    if not path.is_file():
        return []
    found = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(text))
        except ValueError:
            continue
    return found


def exchange(server: Path) -> Exchange | None:
    """The exchange under way, or the latest one; None before the first."""
    written = lines(server, WAITING)
    if not written:
        return None
    asked, *rest = written
    answered = [line["answered"] for line in rest if "answered" in line]
    over = any("over" in line for line in rest)
    return Exchange(asked["round"], asked["phase"], asked["asked"], answered, over, asked["time"])


def standing(server: Path) -> Standing | None:
    """The run's standing; None before its first round."""
    written = lines(server)
    rounds = [line for line in written if "event" not in line]
    if not rounds:
        return None
    last = rounds[-1]
    return Standing(
        last["round"],
        last["move"],
        last["gradient"],
        last["bytes_up"],
        last["bytes_down"],
        last["seconds"],
        last["late"],
        last["attempts"],
        [line for line in written if "event" in line],
    )


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
