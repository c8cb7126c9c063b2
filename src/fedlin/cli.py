"""The `fedlin` command."""

import json
import os
import sys
from importlib.metadata import version
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedlin import theory_cli as theory
from fedlin.cli_errors import cli_errors
from fedlin.deploy import deploy_cli as federation
from fedlin.experiments import experiments_cli as experiments

if TYPE_CHECKING:
    from fedlin.claims import Setting

app = typer.Typer(
    help="Federated optimisation that reaches the exact minimiser at a linear rate.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(federation.app, name="federation")
app.add_typer(theory.app, name="theory")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"fedlin {version('fedlin')}")
        raise typer.Exit


@app.callback()
def fedlin(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Federated optimisation that reaches the exact minimiser at a linear rate."""


@app.command()
def reproduce(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Claims to check; all unless named.")] = None,
    draws: Annotated[
        int | None, typer.Option(help="Random instances a claim.", show_default="8; 2 with --quick")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds a run.", show_default="each claim's own")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("reports/reproduce"),
    jobs: Annotated[
        int, typer.Option(min=1, help="Claims checked at once.", show_default="one a core")
    ] = os.cpu_count() or 1,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="The paper's own claims, on smaller problems and fewer draws; no PNG and SVG."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdicts as one JSON document.")] = False,
    list_claims: Annotated[bool, typer.Option("--list", help="Name the claims and leave.")] = False,
) -> None:
    """Check the paper's claims, print the verdicts and write a report that opens in a browser.

    Exit status: 0 where all is as expected, 1 where a claim fails, 2 where the request cannot be met.
    """
    with cli_errors():
        if list_claims:
            _list(ids or [])
        else:
            _reproduce(ids or [], draws, rounds, out, jobs, quick, as_json)


@app.command()
def playground(
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port on 127.0.0.1.", show_default="the first free from 2718"),
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
) -> None:
    """Open a page of sliders on which curves and bounds move; Ctrl-C ends it.

    Exit status: 2 where the request cannot be met.
    """
    from fedlin.playground.launch import serve

    with cli_errors():
        serve(port, browser)


def _list(ids: list[str]) -> None:
    from fedlin.claims import select

    for claim in select(ids):
        typer.echo(f"{claim.id:<16} {claim.title}{' (only where named: it takes minutes)' * claim.by_name}")


def _reproduce(
    ids: list[str], draws: int | None, rounds: int | None, out: Path, jobs: int, quick: bool, as_json: bool
) -> None:
    # Loaded here so that `--help` and `--version` answer at once.
    from rich.console import Console

    from fedlin.cache import keep_compiled
    from fedlin.claims import BEYOND, Setting, select, verdicts
    from fedlin.report.page import write_report
    from fedlin.report.report_folder import check_folder
    from fedlin.report.terminal import show
    from fedlin.report.wrong_method_tables import in_one_line

    if draws is None:
        draws = 2 if quick else 8
    setting = Setting(draws, rounds, quick)
    # Unless named, what takes minutes is left out, and what goes beyond the paper is left to a full run.
    claims = [claim for claim in select(ids) if ids or not (claim.by_name or (quick and claim.section in BEYOND))]
    check_folder(out)
    keep_compiled()
    # With --json the progress goes to stderr, and stdout carries the document alone.
    # A full run also shows that the checks can fail: each is tried with wrong methods.
    finished = show(verdicts(claims, setting, jobs, notices=not quick), len(claims), Console(stderr=as_json))
    order = [claim.id for claim in claims]
    ordered = sorted(finished, key=lambda verdict: order.index(verdict.id))
    page = write_report(ordered, out, command=_command(ids, setting), pictures=not quick)
    if as_json:
        document = {
            "version": version("fedlin"),
            "setting": {"draws": setting.draws, "rounds": setting.rounds, "quick": setting.quick},
            "report": str(page),
            "verdicts": [verdict.as_dict() for verdict in ordered],
        }
        typer.echo(json.dumps(document, indent=2))
    else:
        typer.echo("\n".join(filter(None, (in_one_line(ordered), f"Report: {page}"))))
    if any(verdict.failed for verdict in ordered):
        raise typer.Exit(1)


def _command(ids: list[str], setting: "Setting") -> str:
    """The line that gives this report again, wherever it was written."""
    rounds = [] if setting.rounds is None else ["--rounds", str(setting.rounds)]
    quick = ["--quick"] if setting.quick else []
    return " ".join(["fedlin reproduce", *ids, "--draws", str(setting.draws), *rounds, *quick])


experiments.register(app)

# Where the terminal takes ASCII alone, as in a C locale, what it cannot show is spelt out rather than raised.
for _stream in (sys.stdout, sys.stderr):
    if isinstance(_stream, TextIOWrapper):
        _stream.reconfigure(errors="backslashreplace")
