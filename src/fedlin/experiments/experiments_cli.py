"""The commands around experiments: run, report, init, and the lists of what can be named."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.resources import files
from math import inf
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedlin.checks import positive
from fedlin.cli_errors import cli_errors
from fedlin.errors import ArgumentError, FedLinError

if TYPE_CHECKING:
    from fedlin.experiments.advise import Advice
    from fedlin.experiments.config import ExperimentConfig
    from fedlin.experiments.experiment_file import ExperimentFile
    from fedlin.experiments.run_folder import RunFolder

By = Literal["bytes", "rounds", "gradients", "seconds"]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the `fedlin` command."""
    for command in (run, report, advise, init, algorithms, problems, compressors):
        app.command()(command)


def run(
    file: Annotated[Path | None, typer.Argument(metavar="EXPERIMENT.TOML", help="The experiment.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.", show_default="runs/NAME")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds a run, instead of the file's.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Go on with the run in this folder.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes that share the runs.", show_default="1")] = None,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Share the runs over a Ray cluster; `local` starts one here.")
    ] = None,
) -> None:
    """Run an experiment file: tune, play every run, store each as it finishes, and write a report.

    Exit status: 0 when all is done, 1 where it had to stop and can be resumed, 2 where the request cannot be met,
    130 after Ctrl-C.
    """
    with cli_errors():
        _run(file, out, rounds, resume, jobs, ray)


def _run(
    file: Path | None, out: Path | None, rounds: int | None, resume: Path | None, jobs: int | None, ray: str | None
) -> None:
    from rich.console import Console

    from fedlin.experiments.execute import execute
    from fedlin.experiments.prepare import prepare
    from fedlin.experiments.workers import choose_workers

    workers = choose_workers(jobs, ray)
    open_folder, experiment = _requested(file, out, rounds, resume)
    prepared = prepare(experiment)
    folder = open_folder()
    console = Console()
    done = sum(folder.finished(run.planned) for run in prepared)
    finished = f", {done} of them finished already" if done else ""
    typer.echo(f"{folder.path}: {len(prepared)} {'run' if len(prepared) == 1 else 'runs'}{finished}")
    try:
        execute(folder, prepared, say=typer.echo, progress=console.is_terminal, workers=workers)
        footer = (
            f"Made by fedlin run {experiment.source.name}; fedlin report {folder.path} adds the figures as PNG and SVG."
        )
        _show([folder], folder.path / "report", folder.file.title, footer, pictures=False)
    except KeyboardInterrupt:
        typer.echo(f"fedlin: stopped. Go on with: fedlin run --resume {folder.path}", err=True)
        raise typer.Exit(130) from None
    except (OSError, FedLinError) as error:
        reason = error if isinstance(error, OSError) else error.__cause__  # that of a report that cannot be written
        if not isinstance(reason, OSError):
            raise
        typer.echo(
            f"fedlin: cannot write to {folder.path}: {reason.strerror or reason}. What is finished is kept; once that "
            f"is put right, go on with: fedlin run --resume {folder.path}",
            err=True,
        )
        raise typer.Exit(1) from error


def _requested(
    file: Path | None, out: Path | None, rounds: int | None, resume: Path | None
) -> tuple[Callable[[], "RunFolder"], "ExperimentFile"]:
    """What is to run, and where it goes once it has been checked."""
    from fedlin.experiments.experiment_file import load
    from fedlin.experiments.run_folder import RunFolder

    if resume is None:
        if file is None:
            raise ArgumentError("name an experiment file (`fedlin init` writes one), or a folder by --resume.")
        experiment = load(file, rounds=rounds)
        return lambda: RunFolder.create(out or _free(Path("runs") / file.stem), experiment), experiment
    if out is not None:
        raise ArgumentError("--out and --resume exclude each other: a run goes on where it is.")
    folder = RunFolder.open(resume)
    if file is not None:
        folder.check_same(load(file, rounds=rounds))
    elif rounds is not None and rounds != folder.file.experiment.rounds:
        raise ArgumentError(f"{resume} is of a run of {folder.file.experiment.rounds} rounds, not {rounds}.")
    return lambda: folder, folder.file


def _free(wanted: Path) -> Path:
    """The folder itself, or the first of NAME-2, NAME-3, ... that is free."""
    if not wanted.exists():
        return wanted
    number = next(n for n in range(2, 10**6) if not wanted.with_name(f"{wanted.name}-{n}").exists())
    typer.echo(f"{wanted} is there already (`fedlin run --resume {wanted}` goes on with it); this is a new run.")
    return wanted.with_name(f"{wanted.name}-{number}")


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER", help="Folders of runs.")],
    out: Annotated[Path, typer.Option(help="Folder of the page.")] = Path("reports/compare"),
    as_json: AsJson = False,
) -> None:
    """Compare runs: curves, the cost to reach each target and who wins, in the terminal and on a page."""
    from fedlin.experiments.run_folder import RunFolder

    with cli_errors():
        footer = " ".join(["Made by fedlin report", *map(str, folders)]) + "."
        opened = [RunFolder.open(path) for path in folders]
        title = opened[0].file.title if len(opened) == 1 else f"{len(opened)} runs compared"
        _show(opened, out, title, footer, pictures=True, as_json=as_json)


def _show(
    folders: Sequence["RunFolder"], home: Path, title: str, footer: str, *, pictures: bool, as_json: bool = False
) -> None:
    from rich.console import Console

    from fedlin.experiments.compare_folders import compare_folders
    from fedlin.report.comparison_page import rich_table
    from fedlin.report.report_folder import check_folder

    check_folder(home)
    compared = compare_folders(folders)
    page = compared.write(home, title, footer, pictures)
    if as_json:
        costs = [
            {"setting": comparison.title, **cost.as_dict()}
            for comparison in compared.comparisons
            for cost in comparison.costs
        ]
        typer.echo(json.dumps({"report": str(page), "costs": costs}, indent=2, ensure_ascii=False))
        return
    console = Console()
    for chapter in compared.chapters:
        console.print(f"\n{chapter.title}", style="bold", markup=False, highlight=False)
        console.print(rich_table(chapter.tables[0]))
        for finding in chapter.findings:
            console.print(finding, markup=False, highlight=False)
    typer.echo(f"Report: {page}")


def advise(
    file: Annotated[Path, typer.Argument(metavar="EXPERIMENT.TOML", help="The experiment whose problem it is about.")],
    by: Annotated[By, typer.Option(help="What should be small.")] = "bytes",
    check: Annotated[int, typer.Option(min=0, help="How many of the best to run to the end.")] = 3,
    mbit: Annotated[
        float | None, typer.Option(help="Megabits a second of each client's connection, each way.", show_default="none")
    ] = None,
    latency: Annotated[float, typer.Option(help="With --mbit: seconds a message is on its way.")] = 0.0,
    overhead: Annotated[float, typer.Option(help="With --mbit: bytes the transport adds to a message.")] = 0.0,
    speed: Annotated[float, typer.Option(help="With --mbit: gradients a second of a client's machine.")] = inf,
    as_json: AsJson = False,
) -> None:
    """Say which method, step and compression suit a problem, what they should cost, and what they then do cost.

    Takes the problem, the plan's local steps, the participation and the hardest target from the file; its methods and
    grids do not matter. With --mbit it also tells seconds, by `fedlin.Clock`.
    """
    from fedlin.devices import compile_less
    from fedlin.engines.timing.clock import Clock
    from fedlin.experiments.advise import advise as give_advice
    from fedlin.experiments.experiment_file import load
    from fedlin.experiments.prepare import prepare

    compile_less(least=True)  # many short pilots
    with cli_errors():
        experiment, clock = load(file), None
        if mbit is not None:
            rate = positive("mbit", mbit) * 1e6 / 8
            clock = Clock(speed, up=rate, down=rate, latency=latency, overhead=overhead)
        say = lambda line: typer.echo(line, err=True)  # noqa: E731
        advice = give_advice(prepare(experiment)[0], by, check, say, clock)
        if as_json:
            typer.echo(json.dumps(asdict(advice), indent=2, ensure_ascii=False))
        else:
            _show_advice(advice, experiment.experiment)


def _show_advice(advice: "Advice", experiment: "ExperimentConfig") -> None:
    from rich.console import Console

    from fedlin.experiments.advise import advice_tables, recommendation
    from fedlin.report.comparison_page import rich_table

    console = Console()
    for name, value in advice.facts.items():
        console.print(f"{name}: {value}", markup=False, highlight=False)
    for table in advice_tables(advice, f"{experiment.measure} at most {min(experiment.targets):g}"):
        console.print(rich_table(table))
    console.print(recommendation(advice), markup=False, highlight=False)


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path("experiment.toml"),
) -> None:
    """Write a commented experiment file that runs as it is."""
    with cli_errors():
        try:
            with file.open("x", encoding="utf-8") as content:
                content.write(template(file.name))
        except FileExistsError as error:
            raise ArgumentError(f"{file} exists already: name another file, or remove it first.") from error
        except OSError as error:
            raise ArgumentError(f"cannot write {file}: {error.strerror}; name another file.") from error
        typer.echo(f"Wrote {file}. Run it with: fedlin run {file}")


def template(name: str) -> str:
    """The text of an experiment file called `name` that is commented and ready to run."""
    text = files("fedlin.experiments").joinpath("template.toml").read_text(encoding="utf-8")
    return Template(text).substitute(name=name)


def algorithms(as_json: AsJson = False) -> None:
    """List the methods with their references."""
    from fedlin.experiments import catalogue

    _list(catalogue.methods(), as_json)


def problems(as_json: AsJson = False) -> None:
    """List the problems."""
    from fedlin.experiments import catalogue

    _list(catalogue.problem_kinds(), as_json)


def compressors(as_json: AsJson = False) -> None:
    """List the compressors and the links that remember around them."""
    from fedlin.experiments import catalogue

    _list(catalogue.compressors(), as_json)


def _list(items: Sequence[Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([asdict(item) for item in items], indent=2, ensure_ascii=False))
        return
    for item in items:
        typer.echo(item.call)
        typer.echo(f"    {item.summary}")
        if item.reference:
            typer.echo(f"    {item.reference}")
