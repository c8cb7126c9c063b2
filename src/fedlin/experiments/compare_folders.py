"""The folders of one or more experiments as a page: a chapter for every setting, with what its files say of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedlin.comparison import Comparison, compare, costs_csv
from fedlin.errors import ArgumentError
from fedlin.experiments.build_method import algorithm
from fedlin.experiments.compare_tests import client_table, held_out_figure, held_out_table
from fedlin.experiments.planned_runs import PlannedRun
from fedlin.experiments.run_folder import Facts, RunFolder
from fedlin.privacy import promise
from fedlin.report.comparison_page import Chapter, write_comparison
from fedlin.report.figure import Figure
from fedlin.report.text_table import TextTable
from fedlin.result import Result


@dataclass(frozen=True)
class FinishedRun:
    """A run that has its result; `method` is its name in tables."""

    folder: RunFolder
    planned: PlannedRun
    method: str
    result: Result


@dataclass(frozen=True)
class FolderComparison:
    """A comparison for every setting, and the chapter that shows it."""

    comparisons: list[Comparison]
    chapters: list[Chapter]

    def write(self, home: Path, title: str, footer: str, pictures: bool) -> Path:
        """Write the page and the costs into a folder."""
        files = {"costs.csv": costs_csv(self.comparisons)}
        return write_comparison(self.chapters, home, title=title, footer=footer, files=files, pictures=pictures)


def compare_folders(folders: Sequence[RunFolder]) -> FolderComparison:
    """Every setting's methods against each other; those of several folders share a chapter if their problems agree."""
    runs = [
        FinishedRun(
            folder, planned, f"{folder.path.name}: {planned.label}" if len(folders) > 1 else planned.label, result
        )
        for folder in folders
        for planned, result in folder.results()
    ]
    if not runs:
        raise ArgumentError(f"{', '.join(str(folder.path) for folder in folders)}: no run has finished yet.")
    measures = {folder.file.experiment.measure for folder in folders}
    if len(measures) > 1:
        raise ArgumentError(f"the runs are judged by different measures ({', '.join(sorted(measures))}).")
    comparisons, chapters = [], []
    for number, case in enumerate(dict.fromkeys(run.planned.case for run in runs), 1):
        comparison, chapter = _compare_setting(f"setting-{number}", [run for run in runs if run.planned.case == case])
        comparisons.append(comparison)
        chapters.append(chapter)
    return FolderComparison(comparisons, chapters)


def _compare_setting(name: str, runs: Sequence[FinishedRun]) -> tuple[Comparison, Chapter]:
    first = runs[0]
    methods: dict[str, list[FinishedRun]] = {}
    for run in runs:
        methods.setdefault(run.method, []).append(run)
    grid = {key: str(value) for key, value in first.planned.setting.items()}
    comparison = compare(
        {method: [run.result for run in group] for method, group in methods.items()},
        [target for run in runs for target in run.folder.file.experiment.targets],
        measure=first.folder.file.experiment.measure,
        title=", ".join(f"{key} = {value}" for key, value in grid.items()) or _kind(first.planned),
    )
    known = first.folder.facts(first.planned)
    setting = {
        "problem": _kind(first.planned),
        **known.get("facts", {}),
        "participation": f"{first.planned.participation:g}",
        **grid,
    }
    images = {}
    if "picture" in known:
        images["Rows of each client"] = (first.folder.path / known["picture"]).read_bytes()
    tested = _held_out(methods)
    tables = (*tested.tables, *_tuning(methods), *_privacy(methods, known), *_preparation(known), *_rows(known))
    return comparison, comparison.chapter(name, setting, tables, images, tested.figures)


class _Tested(NamedTuple):
    tables: tuple[TextTable, ...] = ()
    figures: tuple[Figure, ...] = ()


def _held_out(methods: Mapping[str, Sequence[FinishedRun]]) -> _Tested:
    """The methods on rows nobody learned from, where all were tried on them."""
    reports = {method: [run.folder.held_out(run.planned) for run in group] for method, group in methods.items()}
    if any(report is None for seeds in reports.values() for report in seeds):
        return _Tested()
    results = {method: [run.result for run in group] for method, group in methods.items()}
    tables = held_out_table(reports), client_table(reports)
    return _Tested(tables, (held_out_figure(results, reports),))


def _kind(planned: PlannedRun) -> str:
    return planned.problem.kind.replace("_", " ")


def _preparation(known: Facts) -> tuple[TextTable, ...]:
    """What was done with the columns of a table, and what was noticed."""
    notes = tuple((note,) for note in known.get("notes", ()))
    return (TextTable("How the table was read and prepared", ("",), notes),) if notes else ()


def _rows(known: Facts) -> tuple[TextTable, ...]:
    """How many rows of each label a client has, where the rows come from data."""
    if "rows" not in known:
        return ()
    return (TextTable("Rows of each client", tuple(known["rows"]["heads"]), tuple(map(tuple, known["rows"]["rows"]))),)


def _tuning(methods: dict[str, list[FinishedRun]]) -> tuple[TextTable, ...]:
    """What the search for step sizes came to, of the methods that were tuned."""
    rows = []
    for method, group in methods.items():
        for run in group:
            record = run.folder.tuning(run.planned)
            if record is None:
                continue
            tried = [trial["value"] for trial in record["trials"]]
            diverged = sum(trial["status"] == "diverged" for trial in record["trials"])
            rows.append(
                (
                    method,
                    run.planned.plan.step_name,
                    f"{record['value']:.4g}",
                    f"{tried[0]:.4g} to {tried[-1]:.4g}",
                    str(len(tried)),
                    str(diverged),
                    "yes: a better one may lie beyond" if record["edge"] else "no",
                )
            )
    heads = ("method", "step size", "chosen", "range tried", "tried", "diverged", "on the edge")
    return (TextTable("Step sizes, tuned by one rule for all", heads, tuple(rows)),) if rows else ()


def _privacy(methods: dict[str, list[FinishedRun]], known: Facts) -> tuple[TextTable, ...]:
    """What each method promises its clients, where any does."""
    rows = []
    for method, (run, *_) in methods.items():
        experiment, planned = run.folder.file.experiment, run.planned
        privacy = promise(
            algorithm(planned.method, planned.arguments),
            experiment.rounds,
            delta=experiment.delta,
            share=planned.participation,
            clients=int(known["facts"]["clients"]),
        )
        rows += [] if privacy is None else [(method, privacy)]
    return (TextTable("Privacy of a run to its last round", ("method", "promise"), tuple(rows)),) if rows else ()
