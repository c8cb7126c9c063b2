"""What a federation did: a line of JSON for every round and event, and the result at the end."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedlin.audit import AuditTrail
from fedlin.columns import FEDERATION, SPENT
from fedlin.core import Array
from fedlin.engines.checkpoint import private
from fedlin.engines.federation.wire import is_finite
from fedlin.result import Status

LOG = "log.jsonl"
LogLine = dict[str, Any]  # of a round or an event, as JSON has it
METRICS_EVENT = "metrics"  # what the server found on data of its own
SUMS = tuple(column.name for column in (*SPENT, *FEDERATION) if column.sums)
NORMS = tuple(column.name for column in FEDERATION if not column.sums)


class BestModel(NamedTuple):
    """The model that the clients' evaluations found best."""

    round: int
    value: float  # of the metric
    x: Array


@dataclass(frozen=True, eq=False)
class FederationResult:
    """Index t of every array is after t rounds; index 0 is the start. Bytes, gradients and seconds are sums so far.

    No machine sees ∇f, so that there is no gap and no distance here.

    Attributes:
        algorithm: The method's name.
        status: "done", "stopped", "diverged" or "interrupted".
        x: The model after the last round, (d,).
        move: ‖x̄_{t+1} - x̄_t‖ at index t + 1.
        gradient: The norm of the estimate of ∇f(x̄_t) that the server had, at index t + 1; NaN where its method makes
            none.
        bytes_up: Bytes of the method's messages to the server, as `simulate` counts them.
        bytes_down: The same from the server.
        wire_up: All bytes that were sent to the server, headers and repetitions included.
        wire_down: The same from the server.
        gradients: Gradients the clients took.
        seconds: Seconds since the start.
        answered: Who was counted in each round.
        events: What happened besides; the page on federations lists it.
        clients: Who takes part at the end.
        seed: What decided every draw.
        absent: Who took part and was quarantined or left, and why.
        best: The best model by the metric of the evaluation, where it names one.

    >>> import fedlin
    >>> from fedlin.transports.loopback import Loopback
    >>> problem = fedlin.problems.least_squares(clients=2, dim=3, samples=9)
    >>> sites = {f"site-{i}": fedlin.Client(fedlin.fedavg(), problem.client(i)).handle for i in range(2)}
    >>> result = fedlin.serve(fedlin.fedavg(), Loopback(sites), fedlin.Plan(tau=2, eta=1e-3), rounds=2, dim=3)
    >>> result.answered, result.bytes_up.tolist(), bool(result.wire_up[-1] > result.bytes_up[-1])
    ([['site-0', 'site-1'], ['site-0', 'site-1']], [0, 48, 96], True)
    """

    algorithm: str
    status: Status
    x: Array
    move: Array
    gradient: Array
    bytes_up: Array
    bytes_down: Array
    wire_up: Array
    wire_down: Array
    gradients: Array
    seconds: Array
    answered: list[list[str]]
    events: list[LogLine]
    clients: list[str]
    seed: int = 0
    absent: Mapping[str, str] = field(default_factory=dict)
    best: BestModel | None = None

    @property
    def rounds(self) -> int:
        """How many rounds were done."""
        return len(self.move) - 1

    @property
    def metrics(self) -> dict[str, Array]:
        """The server's own metrics by name, an entry for each round as in every array; NaN where none were taken."""
        columns: dict[str, Array] = {}
        for event in self.events:
            if event["event"] != METRICS_EVENT or event["round"] > self.rounds:
                continue
            for name, value in event.items():
                if name not in ("event", "round", "time"):
                    columns.setdefault(name, np.full(self.rounds + 1, np.nan))[event["round"]] = value
        return columns

    @property
    def evaluations(self) -> list[LogLine]:
        """The weighted means of the clients' metrics and each client's own, in the order of the rounds."""
        return [event for event in self.events if event["event"] == "evaluation"]


def read_lines(path: Path, last: int | None = None) -> list[LogLine]:
    """The lines of a file, or those within its `last` bytes; a line that is not whole is left out."""
    if not path.is_file():
        return []
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0 if last is None else max(0, size - last))
        content = file.read()
    return parse_lines(content)


def parse_lines(content: bytes) -> list[LogLine]:
    """The objects of JSON in these lines; what is none, as a line cut off by a crash, is left out."""
    lines = []
    for text in content.split(b"\n"):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(line, dict):
            lines.append(line)
    return lines


def read_log(path: Path, last: int | None = None) -> list[LogLine]:
    """The rounds and events in a log, or those within its `last` bytes; what is neither is left out."""
    return [line for line in read_lines(path, last) if is_log_line(line)]


_NUMBERS = ("move", "seconds", "attempts", "bytes_up", "bytes_down")


def is_log_line(line: object) -> bool:
    """Whether a line that was read is a round or an event, with every field that its readers use.

    >>> is_log_line({"event": "resumed", "round": 3}), is_log_line({"event": "fault", "round": 3})
    (True, False)
    """
    if not isinstance(line, dict) or not isinstance(line.get("round"), int) or not 0 <= line["round"] < 1 << 31:
        return False
    if "time" in line and not is_finite(line["time"]):
        return False
    if "event" in line:
        return isinstance(line["event"], str) and _is_event(line)
    return (
        all(is_finite(line.get(name)) for name in _NUMBERS)
        and "gradient" in line
        and (line["gradient"] is None or is_finite(line["gradient"]))
        and all(_is_list_of_names(line.get(name)) for name in ("answered", "late"))
        and _is_dict_of_numbers(line.get("took", {}))
    )


def _is_event(line: LogLine) -> bool:
    texts = {"fault": ("client", "kind", "why", "doing"), "recovered": ("client",), "another weight": ("client", "why")}
    whole = all(isinstance(line.get(name), str) for name in texts.get(line["event"], ()))
    whole = whole and all(isinstance(line.get(name, ""), str) for name in ("client", "why"))
    whole = whole and _is_dict_of_numbers(line.get("weights", {})) and _is_list_of_names(line.get("clients", []))
    whole = whole and _is_list_of_names(line.get("missing", []))
    whole = whole and is_finite(line.get("rounds", 0))
    if line["event"] == "evaluation":
        sites = line.get("sites")
        whole = whole and _is_dict_of_numbers(line.get("mean")) and isinstance(sites, dict)
        whole = whole and all(map(_is_dict_of_numbers, (sites or {}).values()))
    return whole


def _is_dict_of_numbers(value: object) -> bool:
    return isinstance(value, dict) and all(map(is_finite, value.values()))


def _is_list_of_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


class RoundLog:
    """Lines in `log.jsonl`, if there is a folder; after a restart the latest line of a round is the one that counts."""

    def __init__(self, folder: Path | None, audit: AuditTrail | None = None) -> None:
        self.audit = audit  # where events are written down a second time, so that nobody can change them unseen
        self.path = None if folder is None else folder / LOG
        self.lines: dict[int, LogLine] = {}  # in the order of the rounds
        self.events: list[LogLine] = []

    def resume(self, rounds: int) -> None:
        """Read what was written before this process began, up to so many rounds."""
        if self.path is None or not self.path.exists():
            return
        with open(self.path, "ab+") as file:
            file.seek(max(0, file.tell() - 1))
            if file.read() not in (b"", b"\n"):  # cut off by a crash
                file.write(b"\n")
        for line in read_log(self.path):
            if "event" in line:
                self.events.append(line)
            elif line["round"] <= rounds and all(is_finite(line.get(name)) for name in SUMS):
                self.lines[line["round"]] = line

    def forget_after(self, number: int) -> None:
        """The rounds after this one do not count; their lines stay in the file until rounds to come replace them."""
        self.lines = {played: line for played, line in self.lines.items() if played <= number}

    def last(self, name: str) -> float:
        """The latest of a sum."""
        return next(reversed(self.lines.values()))[name] if self.lines else 0

    def note(self, event: str, played: int, **facts: object) -> None:
        """Something worth knowing happened after so many rounds."""
        line = {"event": event, "round": played, "time": round(time.time(), 3), **facts}
        self.events.append(line)
        self._append(line)
        if self.audit is not None:
            self.audit.record(event, round=played, **facts)

    def enter(self, line: LogLine) -> None:
        """Add the line of a round that is done."""
        self.lines[line["round"]] = line
        self._append({**line, "time": round(time.time(), 3)})
        if self.audit is not None:
            self.audit.record("round", round=line["round"], answered=line["answered"], late=line["late"])

    def _append(self, line: LogLine) -> None:
        if self.path is not None:
            with open(self.path, "ab", opener=private) as file:
                file.write(json.dumps(line).encode() + b"\n")

    def columns(self, rounds: int) -> LogLine:
        """Sums and norms as arrays, and who answered; a round whose line was lost repeats the sums before."""
        unknown: LogLine = {**dict.fromkeys(NORMS), "answered": []}
        rows: list[LogLine] = [{**dict.fromkeys(SUMS, 0), **unknown}]
        for number in range(1, rounds + 1):
            rows.append(self.lines.get(number, {**rows[-1], **unknown}))
        norms = {name: np.array([row[name] for row in rows], np.float64) for name in NORMS}
        sums = {name: np.array([row[name] for row in rows]) for name in SUMS}
        return {**norms, **sums, "answered": [row["answered"] for row in rows[1:]]}
