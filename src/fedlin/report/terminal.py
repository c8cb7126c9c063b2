"""Claims checked one by one, with their verdicts in the terminal as they come."""

from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from fedlin.claims.claim import Claim, Setting
from fedlin.report.verdict import Verdict

COLOURS = {"good": "green", "noted": "yellow", "bad": "red"}


def run_all(claims: Sequence[Claim], setting: Setting, console: Console) -> list[Verdict]:
    """Check every claim: a live table in a terminal, a plain line for each elsewhere."""
    return _live(claims, setting, console) if console.is_terminal else _plain(claims, setting, console)


def _plain(claims: Sequence[Claim], setting: Setting, console: Console) -> list[Verdict]:
    verdicts = []
    for claim in claims:
        verdict = claim.attempt(setting)
        verdicts.append(verdict)
        # Written past Rich, which would break long lines at the width of no terminal.
        line = f"{verdict.id:<12} {verdict.judgement:<24} {verdict.seconds:7.1f} s  {verdict.title}"
        print(f"{line}  [{_one_line(verdict.key)}]", file=console.file, flush=True)
    return verdicts


def _live(claims: Sequence[Claim], setting: Setting, console: Console) -> list[Verdict]:
    verdicts: list[Verdict] = []
    progress = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )
    task = progress.add_task("", total=len(claims))
    with Live(Group(table(verdicts), progress), console=console) as live:
        for claim in claims:
            progress.update(task, description=f"checking {claim.id}")
            live.refresh()
            verdicts.append(claim.attempt(setting))
            progress.advance(task)
            live.update(Group(table(verdicts), progress))
        live.update(table(verdicts))
    return verdicts


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
