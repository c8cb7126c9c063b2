"""Everything a run's server wrote, read on as it grows: for a page that looks every second at a run of any length."""

from pathlib import Path
from typing import Any, TypeVar

from fedlin.deploy.event_lines import Event
from fedlin.deploy.runs import STATE
from fedlin.deploy.status import RunStatus, enter_round, status_of
from fedlin.engines.federation.round_log import LOG, is_log_line, parse_lines

T = TypeVar("T")
POINTS = 400  # of a curve, at most
METRICS = 32  # that have a curve, the latest: a site may name others every time
_RECENT = 1000  # rounds that rows of sites tell of
Curve = dict[str, Any]  # its title, whether its axis is logarithmic, and a line of [round, value] for each name


class RunHistory:
    """The rounds and events of the run in a folder."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.rounds: dict[int, Event] = {}
        self.events: list[Event] = []
        self._read = 0

    def update(self) -> None:
        """Read what was written since the last time, whole lines alone."""
        path = self.run / STATE / LOG
        if not path.is_file():
            return
        with open(path, "rb") as file:
            if path.stat().st_size < self._read:  # another run's
                self.rounds, self.events, self._read = {}, [], 0
            file.seek(self._read)
            content = file.read()
        whole = content.rfind(b"\n") + 1
        self._read += whole
        for line in filter(is_log_line, parse_lines(content[:whole])):
            self._enter(line)

    def _enter(self, line: Event) -> None:
        if "event" not in line:
            enter_round(self.rounds, line)
            return
        self.events.append(line)
        if line["event"] == "went back":
            self.rounds = {number: played for number, played in self.rounds.items() if number <= line["round"]}

    def status(self) -> RunStatus:
        """Where the run stands; its rows tell of the latest rounds."""
        return status_of(self.run, self.events, list(self.rounds.values())[-_RECENT:])

    def curves(self) -> list[Curve]:
        """What there is to draw: the gradient, the move, the sites' metrics, and the bytes."""
        rounds = thinned(sorted(self.rounds))
        lines = [self.rounds[number] for number in rounds]
        drawn = [
            _curve(
                "norm of the gradient", {"gradient": [(line["round"], line.get("gradient")) for line in lines]}, True
            ),
            _curve("move of the model in a round", {"move": [(line["round"], line["move"]) for line in lines]}, True),
        ]
        evaluations = [event for event in self.events if event["event"] == "evaluation"]
        latest = {event["round"]: event for event in evaluations}  # a round that was repeated counts once
        lately = dict.fromkeys(name for event in reversed(evaluations) for name in event["mean"])
        for metric in sorted(list(lately)[:METRICS]):
            names = dict.fromkeys(site for event in evaluations for site in event["sites"])
            lines_of = {"mean": [(number, evaluation["mean"].get(metric)) for number, evaluation in latest.items()]}
            for site in names:
                lines_of[site] = [
                    (number, evaluation["sites"].get(site, {}).get(metric)) for number, evaluation in latest.items()
                ]
            drawn.append(
                _curve(f"{metric} at the sites", {n: thinned(points) for n, points in lines_of.items()}, False)
            )
        ways = {"up": "bytes_up", "down": "bytes_down"}
        sums = {way: [(line["round"], line[column]) for line in lines] for way, column in ways.items()}
        drawn.append(_curve("bytes so far", sums, False))
        return [curve for curve in drawn if curve["lines"]]


def thinned(values: list[T]) -> list[T]:
    """At most POINTS of them, evenly spaced, the last among them.

    >>> len(thinned(list(range(100_000)))) <= POINTS, thinned(list(range(100_000)))[-1]
    (True, 99999)
    """
    step = -(-len(values) // POINTS)
    return values[::-1][:: max(1, step)][::-1]


def _curve(title: str, lines: dict[str, list[tuple[int, float | None]]], log: bool) -> Curve:
    known = {name: [[x, y] for x, y in points if y is not None] for name, points in lines.items()}
    return {"title": title, "log": log, "lines": {name: points for name, points in known.items() if points}}
