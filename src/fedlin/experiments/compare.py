"""Runs side by side: a chapter for every setting, from the folders of one or more experiments."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlin.errors import ArgumentError
from fedlin.experiments.build import algorithm
from fedlin.experiments.costs import UNITS, Cost, cost, table, winners
from fedlin.experiments.members import PlannedRun
from fedlin.experiments.privacy_budget import promise
from fedlin.experiments.run_folder import Folder
from fedlin.report.comparison import Chapter, ComparisonTable, write_comparison
from fedlin.report.figure import Curve, Figure, Panel
from fedlin.result import AXES, CURVES, Result

Array = NDArray[Any]
POINTS = 400  # of a curve in a picture; metrics.parquet has them all


@dataclass(frozen=True)
class Entry:
    """A finished member as a comparison sees it."""

    folder: Folder
    member: PlannedRun
    method: str
    result: Result


@dataclass(frozen=True)
class Comparison:
    """The chapters of a page, and the costs behind their tables."""

    chapters: list[Chapter]
    costs: list[tuple[str, Cost]]

    def write(self, home: Path, title: str, footer: str, pictures: bool) -> Path:
        """Write the page and the costs into a folder."""
        files = {"costs.csv": _csv(self.costs)}
        return write_comparison(self.chapters, home, title=title, footer=footer, files=files, pictures=pictures)


def compare(folders: Sequence[Folder]) -> Comparison:
    """Every setting's methods against each other; those of several folders meet where their problems are the same."""
    entries = [
        Entry(folder, member, f"{folder.path.name}: {member.label}" if len(folders) > 1 else member.label, result)
        for folder in folders
        for member, result in folder.results()
    ]
    if not entries:
        raise ArgumentError(f"{', '.join(str(folder.path) for folder in folders)}: no member has finished yet.")
    measures = {folder.loaded.experiment.measure for folder in folders}
    if len(measures) > 1:
        raise ArgumentError(f"the runs are judged by different measures ({', '.join(sorted(measures))}).")
    cases = dict.fromkeys(entry.member.case for entry in entries)
    chapters, costs = [], []
    for number, case in enumerate(cases, 1):
        chapter, found = _chapter(f"setting-{number}", [entry for entry in entries if entry.member.case == case])
        chapters.append(chapter)
        costs += [(chapter.title, one) for one in found]
    return Comparison(chapters, costs)


def _chapter(name: str, entries: Sequence[Entry]) -> tuple[Chapter, list[Cost]]:
    first = entries[0]
    experiment = first.folder.loaded.experiment
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.method, []).append(entry)
    results = {method: [entry.result for entry in group] for method, group in groups.items()}
    targets = sorted({target for entry in entries for target in entry.folder.loaded.experiment.targets}, reverse=True)
    costs = [cost(method, runs, experiment.measure, t) for t in targets for method, runs in results.items()]
    told = {key: str(value) for key, value in first.member.setting.items()}
    known = first.folder.facts(first.member)
    title = ", ".join(f"{key} = {value}" for key, value in told.items()) or _kind(first.member)
    tables = (table(costs, experiment.measure), *_tuning(groups), *_privacy(groups, known), *_rows(known))
    setting = {
        "problem": _kind(first.member),
        **known.get("facts", {}),
        "participation": f"{first.member.participation:g}",
        **told,
    }
    figure = _figure(results, experiment.measure)
    images = {}
    if "picture" in known:
        images["Rows of each client"] = (first.folder.path / known["picture"]).read_bytes()
    return Chapter(name, title, setting, tables, winners(costs, experiment.measure), (figure,), images), costs


def _kind(member: PlannedRun) -> str:
    return member.problem.kind.replace("_", " ")


def _rows(known: Mapping[str, Any]) -> tuple[ComparisonTable, ...]:
    """How many rows of each label a client has, where the rows come from data."""
    if "rows" not in known:
        return ()
    return (
        ComparisonTable("Rows of each client", tuple(known["rows"]["heads"]), tuple(map(tuple, known["rows"]["rows"]))),
    )


def _tuning(groups: dict[str, list[Entry]]) -> tuple[ComparisonTable, ...]:
    """What the search for step sizes came to, of the methods that were tuned."""
    rows = []
    for method, group in groups.items():
        for entry in group:
            record = entry.folder.tuning(entry.member)
            if record is None:
                continue
            tried = [trial["value"] for trial in record["trials"]]
            diverged = sum(trial["status"] == "diverged" for trial in record["trials"])
            rows.append(
                (
                    method,
                    entry.member.plan.step_name,
                    f"{record['value']:.4g}",
                    f"{tried[0]:.4g} to {tried[-1]:.4g}",
                    str(len(tried)),
                    str(diverged),
                    "yes: a better one may lie beyond" if record["edge"] else "no",
                )
            )
    heads = ("method", "step size", "chosen", "range tried", "tried", "diverged", "on the edge")
    return (ComparisonTable("Step sizes, tuned by one rule for all", heads, tuple(rows)),) if rows else ()


def _privacy(groups: dict[str, list[Entry]], known: Mapping[str, Any]) -> tuple[ComparisonTable, ...]:
    """What each method promises its clients, where any does."""
    rows = []
    for method, (entry, *_) in groups.items():
        made = algorithm(entry.member.method, entry.member.arguments)
        clients = int(known["facts"]["clients"])
        told = promise(made, entry.folder.loaded.experiment, entry.member.participation, clients)
        rows += [] if told is None else [(method, told)]
    return (ComparisonTable("Privacy of a run to its last round", ("method", "promise"), tuple(rows)),) if rows else ()


def _figure(results: dict[str, list[Result]], measure: str) -> Figure:
    panels = tuple(
        Panel(
            f"In {AXES[unit]}",
            AXES[unit],
            CURVES[measure],
            tuple(_curve(method, runs, measure, unit) for method, runs in results.items()),
        )
        for unit in UNITS
    )
    several = any(len(runs) > 1 for runs in results.values())
    caption = "Medians over seeds; the band is their range." if several else ""
    return Figure("curves", f"{CURVES[measure]} against what it costs", panels, caption)


def _curve(method: str, runs: Sequence[Result], measure: str, unit: str) -> Curve:
    longest = max(len(run.loss) for run in runs)
    kept = np.unique(np.linspace(0, longest - 1, POINTS).astype(int))
    y = np.array([_padded(getattr(run, measure), longest, run.status == "diverged") for run in runs])[:, kept]
    if unit == "rounds":
        x = kept.astype(np.float64)
    else:
        x = np.median([_padded(getattr(run, unit), longest, False) for run in runs], axis=0)[kept]
    band = (y.min(axis=0), y.max(axis=0)) if len(runs) > 1 else (None, None)
    return Curve(method, x, np.median(y, axis=0), *band)


def _padded(values: Array, length: int, lost: bool) -> Array:
    """A curve as long as the longest: a run that arrived stays where it is, one that diverged is gone."""
    rest = np.full(length - len(values), np.inf if lost else values[-1])
    return np.concatenate([np.asarray(values, np.float64), rest])


def _csv(costs: Sequence[tuple[str, Cost]]) -> str:
    text = io.StringIO()
    rows = [{"setting": setting, **one.as_dict()} for setting, one in costs]
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
