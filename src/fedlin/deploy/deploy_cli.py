"""The `fedlin federation` commands."""

import json
import logging
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedlin.cli_errors import cli_errors

if TYPE_CHECKING:
    from fedlin.deploy.status import Standing

app = typer.Typer(
    help="Set up, run and watch a federation over NVIDIA FLARE.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder that `init` wrote.")]


@app.command()
def init(
    sites: Annotated[list[str], typer.Argument(metavar="SITE", help="The sites' names.")],
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("federation"),
    server: Annotated[str, typer.Option(help="Name or address at which sites reach the server.")] = "localhost",
    port: Annotated[int, typer.Option(min=1024, max=65535, help="The server's port.")] = 8002,
    torch: Annotated[bool, typer.Option("--torch", help="Write each client.py in PyTorch.")] = False,
) -> None:
    """Write a federation that runs as it is: certificates, settings, and a client.py for each site."""
    from fedlin.deploy.project import create

    with cli_errors():
        create(out, sites, server, port, torch=torch)
    typer.echo(f"Wrote {out}. Try it on this machine: fedlin federation start --local {out}")


@app.command()
def start(
    folder: Folder,
    local: Annotated[bool, typer.Option("--local", help="Run the server and every site on this machine.")] = False,
) -> None:
    """Send the job and stay until the run is over; what crashes meanwhile goes on from what was saved.

    Leaves with 0 where the run was done, 1 where it failed or diverged, 2 where the request cannot be met.
    """
    _check_flare()
    from fedlin.deploy.flare.local_federation import LocalFederation
    from fedlin.deploy.flare.remote import attend
    from fedlin.deploy.project import Project

    _end_in_order()
    for request in () if local else (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(request) != signal.SIG_IGN:
            signal.signal(request, _leave)
    with cli_errors():
        project = Project.read(folder)
        end = LocalFederation(project).run(_Lines()) if local else attend(project, typer.echo)
    typer.echo(f"{end['status']}: {end.get('error') or _model(project.server, local)}")
    raise typer.Exit(0 if end["status"] in ("done", "stopped") else 1)


@app.command()
def join(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="The server's or a site's folder, copied here.")],
) -> None:
    """Take part from this machine: run the server or the site whose folder this is, until Ctrl-C."""
    _check_flare()
    from fedlin.deploy.flare.remote import take_part

    _end_in_order()
    with cli_errors():
        take_part(kit)


@app.command()
def status(
    folder: Folder,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Where the run stands: rounds, how far the model still moves, the gradient's norm, bytes, and who is awaited."""
    from fedlin.deploy.flare.driver import outcome
    from fedlin.deploy.status import exchange, server_folder, standing

    with cli_errors():
        server = server_folder(folder)
        now, asked, end = standing(server), exchange(server), outcome(server)
    if as_json:
        facts = {"standing": now, "exchange": asked}
        plain = {name: None if value is None else vars(value) for name, value in facts.items()}
        typer.echo(json.dumps({**plain, "outcome": end}))
        return
    typer.echo("No round yet." if now is None else _line(now))
    if asked is not None and asked.awaited and end is None:
        waited = f"{time.time() - asked.time:.0f} s so far"
        typer.echo(f"  {asked.phase} of round {asked.round + 1}: waits for {', '.join(asked.awaited)}; {waited}")
    for event in [] if now is None else now.events[-5:]:
        facts = {name: value for name, value in event.items() if name not in ("event", "round", "time")}
        typer.echo(f"  after round {event['round']}: {event['event']} {facts or ''}".rstrip())
    if end is not None:
        typer.echo(f"{end['status']}: {end.get('error') or _model(server, True)}")


@app.command()
def logs(
    folder: Folder,
    site: Annotated[str | None, typer.Option(help="This site's log; the server's rounds unless named.")] = None,
    lines: Annotated[int, typer.Option(min=1, help="How many lines, from the end.")] = 40,
) -> None:
    """The last lines the server wrote about its rounds, or of what a site's process said."""
    from fedlin.deploy.status import log_lines

    with cli_errors():
        for line in log_lines(folder, site)[-lines:]:
            typer.echo(line)


def _check_flare() -> None:
    """Before what starts processes is imported, since that needs what FLARE brings."""
    from fedlin.deploy.flare.kits import check_flare

    with cli_errors():
        check_flare()


def _end_in_order() -> None:
    """A request to end is as good as Ctrl-C, and FLARE's own warnings about a lost server are not for the terminal."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    logging.getLogger().addHandler(logging.NullHandler())


def _leave(number: int, frame: object) -> None:
    """End at once, where nothing is to be put in order: FLARE may swallow an interrupt, and its threads outlive it."""
    os._exit(130)


class _Lines:
    """A line whenever a round was played, at most one a second."""

    def __init__(self) -> None:
        self._shown, self._when = "", 0.0

    def __call__(self, now: "Standing | None") -> None:
        line = "" if now is None else _line(now)
        if line != self._shown and time.monotonic() - self._when >= 1.0:
            self._shown, self._when = line, time.monotonic()
            typer.echo(line)


def _line(now: "Standing") -> str:
    gradient = "" if now.gradient is None else f", gradient {now.gradient:.2e}"
    late = f", late: {', '.join(now.late)}" if now.late else ""
    return (
        f"round {now.round}: moved by {now.move:.2e}{gradient}, up {now.bytes_up:,} B, down {now.bytes_down:,} B, "
        f"{now.seconds:.1f} s{late}"
    )


def _model(server: Path, local: bool) -> str:
    from fedlin.deploy.flare.programs import MODEL

    return f"the model is in {server / MODEL}" if local else f"the model is in the server's folder, {MODEL}"
