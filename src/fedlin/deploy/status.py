"""Where a run stands, read from what its server writes."""

import time
from collections import Counter
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from fedlin.deploy.event_lines import Event
from fedlin.deploy.runs import STATE, Ending, outcome
from fedlin.engines.federation.pending import WAITING, process_start
from fedlin.engines.federation.round_log import LOG, read_lines, read_log
from fedlin.errors import DeployError

RECENT = 1 << 20  # bytes of the log: many rounds, and read in no time however long a run gets


@dataclass(frozen=True)
class Progress:
    """The latest round."""

    round: int
    move: float
    gradient: float | None  # None where the method's server holds no estimate of it
    bytes_up: int
    bytes_down: int
    seconds: float
    late: list[str]
    attempts: int


@dataclass(frozen=True)
class Awaiting:
    """What the server asked last, and who has answered."""

    round: int  # rounds done before
    phase: str
    asked: list[str]
    answered: list[str]
    over: bool  # whether the server has gone on
    time: float  # when it asked
    process: int = 0  # the server's, where it is known
    started: str = ""  # since when that id is its own

    @property
    def awaited(self) -> list[str]:
        """Whom the server waits for."""
        return [] if self.over else [name for name in self.asked if name not in self.answered]


@dataclass(frozen=True)
class SiteRow:
    """One site, as the server has seen it lately."""

    name: str
    state: str  # "counted", or what keeps it from being counted
    counted: int  # in how many of the latest rounds
    rounds: int  # how many those are
    last: int | None  # the last round it was counted in
    weight: float | None
    since: float | None = None  # when the fault began
    took: float | None = None  # seconds of its latest answer
    seen: float | None = None  # when it was counted last
    faults: int = 0  # how many it had


@dataclass(frozen=True)
class RunStatus:
    """Everything there is to know of a run."""

    progress: Progress | None
    awaiting: Awaiting | None
    events: list[Event]
    sites: list[SiteRow]
    outcome: Ending | None
    alive: bool  # whether the process of the server's job runs on this machine
    rounds: int | None = None  # how many the run is to have

    def plain(self) -> dict[str, object]:
        """As plain values."""
        return asdict(self)


def lines(run: Path) -> list[Event]:
    """Everything the server wrote about a run's rounds."""
    return read_log(run / STATE / LOG)


def read_awaiting(run: Path) -> Awaiting | None:
    """The exchange under way, or the latest one; None before the first."""
    written = read_lines(run / STATE / WAITING)
    if not written:
        return None
    asked, *rest = written
    names = [line["answered"] for line in rest if "answered" in line]
    over = any("over" in line for line in rest)
    try:
        numbers = (int(asked["round"]), str(asked["phase"]), list(map(str, asked["asked"])), list(map(str, names)))
        process = int(asked.get("process", 0)), str(asked.get("started", ""))
        return Awaiting(*numbers, over, float(asked["time"]), *process)
    except (KeyError, ValueError, TypeError, OverflowError):
        return None


def read_progress(run: Path, last: int | None = None) -> Progress | None:
    """The latest round, looked for in the `last` bytes of the log; None before the first."""
    rounds = [line for line in read_log(run / STATE / LOG, last) if "event" not in line]
    return _progress(rounds[-1]) if rounds else None


def _progress(line: Event) -> Progress:
    return Progress(**{field.name: line[field.name] for field in fields(Progress)})


def read_status(run: Path, last: int | None = None) -> RunStatus:
    """The status of the run in this folder, with the events and rounds in the `last` bytes of its log."""
    written = read_log(run / STATE / LOG, last)
    rounds: dict[int, Event] = {}
    for line in written:
        if "event" not in line:
            enter_round(rounds, line)
    return status_of(run, [line for line in written if "event" in line], list(rounds.values()))


def enter_round(rounds: dict[int, Event], line: Event) -> None:
    """Add the next line of a log; where a round is played again, it and those after it do not count any more."""
    while rounds and next(reversed(rounds)) >= line["round"]:
        rounds.popitem()
    rounds[line["round"]] = line


def status_of(run: Path, events: list[Event], rounds: list[Event]) -> RunStatus:
    """The status of the run in this folder, of whose log these are the events and the rounds."""
    awaiting = read_awaiting(run)
    alive = awaiting is not None and process_runs(awaiting.process, awaiting.started)
    planned = [event["rounds"] for event in events if "rounds" in event]
    progress = _progress(rounds[-1]) if rounds else None
    return RunStatus(
        progress, awaiting, events, site_rows(events, rounds), outcome(run), alive, planned[-1] if planned else None
    )


def open_faults(events: list[Event]) -> dict[str, Event]:
    """The faults that are not over after these events, by client."""
    faults: dict[str, Event] = {}
    for event in events:
        if event["event"] == "fault":
            faults[event["client"]] = event
        elif event["event"] == "recovered":
            faults.pop(event["client"], None)
        elif event["event"] == "resumed":  # whatever else was wrong belongs to the process before
            faults = {name: fault for name, fault in faults.items() if fault["kind"] == "quarantined"}
    return faults


def site_rows(events: list[Event], rounds: list[Event]) -> list[SiteRow]:
    """What became of each site in these rounds."""
    faults = open_faults(events)
    counts = Counter(event["client"] for event in events if event["event"] == "fault")
    weights: dict[str, float] = {}
    names: list[str] = []
    for event in events:
        weights |= event.get("weights", {})
        names += [name for name in event.get("clients", []) if name not in names]
    names += sorted({*counts, *(name for line in rounds for name in (*line["answered"], *line["late"]))} - set(names))
    rows = []
    total = sum(weights.values()) or 1.0
    for name in names:
        counted = [line for line in rounds if name in line["answered"]]
        last = counted[-1] if counted else {}
        took = rounds[-1].get("took", {}).get(name) if rounds else None
        fault = faults.get(name)
        late = bool(rounds) and name in rounds[-1]["late"]
        state = f"{fault['kind']}: {fault['why']}" if fault else "late" if late else "counted" if counted else "waiting"
        weight = weights[name] / total if name in weights else None
        since = fault.get("time") if fault else None
        played = (len(counted), len(rounds), last.get("round"))
        rows.append(SiteRow(name, state, *played, weight, since, took, last.get("time"), counts[name]))
    return rows


def process_runs(process: int, started: str) -> bool:
    """Whether this process of this machine runs, and is the one that began then: ids are given anew."""
    return bool(started) and process_start(process) == started


def log_lines(path: Path) -> list[str]:
    """The lines of a log."""
    if not path.is_file():
        raise DeployError(f"{path} is not there: nothing has run yet, or the log is on another machine.")
    return path.read_text(encoding="utf-8", errors="replace").splitlines()


def ago(when: float) -> str:
    """How long ago something was.

    >>> ago(time.time() - 125)
    '2 min ago'
    """
    seconds = max(0.0, time.time() - when)
    return f"{seconds:.0f} s ago" if seconds < 100 else f"{seconds / 60:.0f} min ago"
