"""The `fedlin federation` commands that run a federation; those that change who belongs to it are beside this file."""

import json
import logging
import os
import signal
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fedlin.cache import keep_compiled
from fedlin.checks import printable
from fedlin.cli_errors import cli_errors
from fedlin.deploy.participants_cli import app
from fedlin.errors import DeployError

__all__ = ["app"]
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder that `init` wrote.")]
Local = Annotated[bool, typer.Option("--local", help="Run the server and every site on this machine.")]
_LEFT = (
    "left: a run that has begun goes on at the server; the same command shows it, fedlin federation stop {} ends it\n"
)
RunOption = Annotated[str | None, typer.Option("--run", help="The run of this name; the latest unless given.")]


@app.command()
def start(folder: Folder, local: Local = False) -> None:
    """Send the job and stay until the run is over; what crashes meanwhile goes on from what was saved.

    Exit status: 0 where the run was done, 3 where it was done without some site, 1 where it failed or diverged, 2 where
    the request cannot be met, 130 where it was interrupted.
    """
    _start(folder, local, None, None)


@app.command()
def run(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new run's name.")],
    folder: Folder = Path("federation"),
    after: Annotated[str | None, typer.Option(help="Start from the model of this run.")] = None,
    local: Local = False,
) -> None:
    """Like `start`, under a name of its own: another run of the same federation, whose model is kept beside others."""
    _start(folder, local, name, after)


def _start(folder: Path, local: bool, name: str | None, after: str | None) -> None:
    _check_flare()
    from fedlin.deploy.flare.local_federation import LocalFederation
    from fedlin.deploy.flare.remote import attend
    from fedlin.deploy.folder_lock import locked
    from fedlin.deploy.project import Project, private_files
    from fedlin.deploy.runs import MODEL, end_line, exit_status

    _end_in_order()
    if local:
        keep_compiled()  # sites on one machine compile the same programs
    for request in () if local else (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(request) != signal.SIG_IGN:
            signal.signal(request, partial(_leave, _LEFT.format(folder).encode()))
    with cli_errors():
        if not folder.is_dir():
            Project.look(folder)
        with ExitStack() as held:
            held.enter_context(locked(folder))
            held.enter_context(private_files())  # FLARE signs the job by files of its own beside it
            project = Project.read(folder, run=name, after=after)
            for kit in (project.server, *map(project.site, project.sites)) if local else ():
                held.enter_context(locked(kit))  # what `join` runs there would be ended, and started again
            try:
                end = LocalFederation(project).run(say=say) if local else attend(project, say)
            except KeyboardInterrupt:
                say("stopped: what was done is saved, and the same command goes on from there")
                raise typer.Exit(130) from None
    model = project.run_folder / MODEL
    say(end_line(end, str(model) if local else f"the server's folder, {model.relative_to(project.server)}"))
    raise typer.Exit(exit_status(end))


@app.command()
def stop(folder: Folder) -> None:
    """End the run that goes on at the server; what was done is saved, and `start` goes on from there."""
    _check_flare()
    from fedlin.deploy.flare.driver import Driver
    from fedlin.deploy.folder_lock import locked
    from fedlin.deploy.project import Project

    with cli_errors():
        project = Project.look(folder)
        with locked(folder):
            driver = Driver(project.admin, project.job, project.sites, project.needed)
            try:
                ended = driver.stop()
            except Exception as error:  # FLARE raises many kinds where the server is not there
                raise DeployError(f"the server cannot be reached: {type(error).__name__}.") from error
            finally:
                driver.forget()
    if ended:
        typer.echo(f"ended {len(ended)} jobs: what was done is saved, and start goes on from there")
    else:
        typer.echo("no run goes on at the server: nothing was ended")


@app.command()
def join(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="The server's or a site's folder, copied here.")],
) -> None:
    """Take part from this machine: run the server or the site whose folder this is, until Ctrl-C."""
    _check_flare()
    from fedlin.deploy.flare.remote import take_part
    from fedlin.deploy.folder_lock import locked

    _end_in_order()
    keep_compiled()  # so that it is soon back after a crash
    with cli_errors(), locked(kit):
        take_part(kit, say)


@app.command()
def status(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A federation's, its server's or a site's folder.")],
    name: RunOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Where a run stands: rounds, the gradient's norm, bytes, every site, and what is waited for; or a site's view."""
    from fedlin.deploy.kit_folders import is_site, server_folder
    from fedlin.deploy.runs import MODEL, named_run
    from fedlin.deploy.screen import site_lines, status_lines
    from fedlin.deploy.site_record import site_status
    from fedlin.deploy.status import read_status

    with cli_errors():
        if is_site(folder):
            site = site_status(folder)
            lines = [json.dumps(site)] if as_json else site_lines(site)
        else:
            place = named_run(server_folder(folder), name)
            now = read_status(place)
            lines = [json.dumps(now.plain())] if as_json else status_lines(now, str(place / MODEL))
    for line in lines:
        typer.echo(line)


@app.command()
def watch(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A federation's, its server's or a site's folder.")],
    name: RunOption = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0 for any port.")] = 8050,
) -> None:
    """A page on this machine with a run's curves, sites and events, or with a site's view; and Prometheus metrics."""
    from fedlin.deploy.watch_page import WatchServer
    from fedlin.deploy.watch_snapshot import view_of

    _end_in_order()
    with cli_errors():
        server = WatchServer(folder, view_of(folder, name), port)
    typer.echo(f"The page: {server.address}")
    typer.echo(f"For Prometheus: {server.address}metrics")
    typer.echo("Ctrl-C ends it.")
    server.serve()


@app.command()
def logs(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A federation's, its server's or a site's folder.")],
    site: Annotated[str | None, typer.Option(help="This site's log; the server's rounds unless named.")] = None,
    name: RunOption = None,
    lines: Annotated[int, typer.Option(min=1, help="How many lines, from the end.")] = 40,
) -> None:
    """The last lines the server wrote about its rounds, or those of a site's own log."""
    from fedlin.deploy.kit_folders import is_site, server_folder
    from fedlin.deploy.runs import STATE, named_run
    from fedlin.deploy.status import log_lines
    from fedlin.engines.federation.round_log import LOG

    with cli_errors():
        if is_site(folder):
            path = folder / "fedlin.log"
        elif site is not None:
            path = folder / "sites" / site / "fedlin.log"
        else:
            path = named_run(server_folder(folder), name) / STATE / LOG
        for line in log_lines(path)[-lines:]:
            typer.echo(printable(line, len(line)))  # it may quote what somebody else wrote


@app.command()
def readmit(
    server: Annotated[Path, typer.Argument(metavar="SERVER", help="The server's folder, or the federation's.")],
    site: Annotated[str, typer.Argument(metavar="SITE", help="The site that was quarantined.")],
) -> None:
    """Let a site in again whose uploads were rejected, on the server's machine: the run goes on with it."""
    from fedlin.audit import AuditTrail
    from fedlin.deploy.kit_folders import server_folder
    from fedlin.deploy.runs import STATE, present_run
    from fedlin.deploy.status import read_status
    from fedlin.engines.federation.membership import ask_readmission

    with cli_errors():
        run = present_run(server_folder(server))
        if not (run / STATE).is_dir():
            raise typer.BadParameter(f"{run / STATE} is not there: no run has begun.")
        states = {row.name: row.state for row in read_status(run).sites}
        if not states.get(site, "").startswith("quarantined"):
            of_whom = ", ".join(name for name, state in states.items() if state.startswith("quarantined")) or "nobody"
            raise DeployError(f"{site!r} is not kept out of this run, and {of_whom} is: there is nothing to do.")
        ask_readmission(run / STATE, site)
        AuditTrail(server_folder(server)).record("readmission asked for", site=site)
    typer.echo(f"{site} is let in at the next round.")


@app.command()
def audit(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A federation's, its server's or a site's folder.")],
    lines: Annotated[int, typer.Option(min=0, help="Print so many of the last lines of each trail, too.")] = 0,
) -> None:
    """Verify the audit trails in a folder; exit status 1 where a line was changed, removed or inserted."""
    from fedlin.audit import verify
    from fedlin.deploy.trails import find_trails

    with cli_errors():
        trails = find_trails(folder)
    verdicts = verify(trails)
    for name, count, problem in verdicts:
        typer.echo(f"{name}: {count} lines, {problem or 'whole'}")
        if problem is None and lines:
            for entry in list(trails[name].entries())[-lines:]:
                typer.echo(f"  {json.dumps(entry.facts)}")
    raise typer.Exit(1 if any(verdict.problem for verdict in verdicts) else 0)


def _check_flare() -> None:
    """Before what starts processes is imported, since that needs what FLARE brings."""
    from fedlin.deploy.flare.kits import check_flare

    with cli_errors():
        check_flare()


def _end_in_order() -> None:
    """A request to end is as good as Ctrl-C, and the end of a terminal is none; FLARE's warnings are not for it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    logging.getLogger().addHandler(logging.NullHandler())


def say(line: str) -> None:
    """Print a line; where nobody can read it any more, as in a terminal that was closed, what goes on still does."""
    try:
        typer.echo(line)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        os.close(nowhere)


def _leave(words: bytes, number: int, frame: object) -> None:
    """End at once, where nothing is to be put in order: FLARE may swallow an interrupt, and its threads outlive it."""
    with suppress(OSError):
        os.write(1, words)
    os._exit(130)
