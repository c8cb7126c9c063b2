"""Verdicts in the terminal, as they come."""

from collections.abc import Iterable, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from fedlin.report.verdict import Verdict

COLOURS = {"good": "green", "noted": "yellow", "bad": "red"}


def show(verdicts: Iterable[Verdict], total: int, console: Console) -> list[Verdict]:
    """Show verdicts as they are reached: a live table in a terminal, a plain line for each elsewhere."""
    return _live(verdicts, total, console) if console.is_terminal else _plain(verdicts, console)


def _plain(verdicts: Iterable[Verdict], console: Console) -> list[Verdict]:
    finished = []
    for verdict in verdicts:
        finished.append(verdict)
        # Written past Rich, which would break long lines at the width of no terminal.
        line = f"{verdict.id:<16} {verdict.judgement:<24} {verdict.seconds:7.1f} s  {verdict.title}"
        print(f"{line}  [{_one_line(verdict.key)}]", file=console.file, flush=True)
    return finished


def _live(verdicts: Iterable[Verdict], total: int, console: Console) -> list[Verdict]:
    finished: list[Verdict] = []
    progress = Progress(TextColumn("checking"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console)
    task = progress.add_task("", total=total)
    with Live(Group(table(finished), progress), console=console) as live:
        for verdict in verdicts:
            finished.append(verdict)
            progress.advance(task)
            live.update(Group(table(finished), progress))
        live.update(table(finished))
    return finished


def table(verdicts: Sequence[Verdict]) -> Table:
    """One row a verdict.

    >>> table([Verdict("demo", "A demo", "One is one.", {}, ())]).row_count
    1
    """
    columns = Table("claim", "title", "outcome", "measured against expected", header_style="dim", box=None)
    columns.add_column("time", justify="right", no_wrap=True)
    for verdict in verdicts:
        columns.add_row(
            Text(verdict.id, no_wrap=True),
            Text(verdict.title),
            Text(verdict.judgement, COLOURS[verdict.grade]),
            Text(_one_line(verdict.key)),
            f"{verdict.seconds:.1f} s",
        )
    return columns


def _one_line(text: str) -> str:
    return " ".join(text.split())
