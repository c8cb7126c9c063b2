"""An experiment from its first run to its tables; what is done is stored at once, so that it can go on later."""

from collections.abc import Callable
from dataclasses import asdict, replace
from math import ceil
from typing import Any

import numpy as np

from fedlin.columns import column
from fedlin.engines.checkpoint import Checkpoint
from fedlin.engines.simulation.records import KEPT_BY_DEFAULT
from fedlin.engines.simulation.simulate import simulate
from fedlin.experiments.config import ExperimentConfig
from fedlin.experiments.prepare import PreparedRun, first_seeds, stop
from fedlin.experiments.run_folder import RunFolder
from fedlin.experiments.tune import tune
from fedlin.result import Result

Say = Callable[[str], None]
LOOKS = 101  # models of a run that are tried on the rows held out, at most
HEADLINES = ("accuracy", "accuracy_worst", "r2", "deviance")  # metrics that a line on a run names
CHECKPOINTS = 20  # a run is saved so often, unless the file says otherwise


def execute(folder: RunFolder, prepared: list[PreparedRun], *, say: Say, progress: bool = False) -> None:
    """Tune and play what is not yet stored, then write the tables."""
    facts, pictures = _facts(prepared)
    folder.begin(facts)
    for known in facts.values():
        for note in known.get("notes", ()):
            say(f"prepared: {note}")
        if "f" in known["facts"]:
            say(f"f = {known['facts']['f']}")
    for name, picture in pictures.items():
        folder.store_picture(name, picture)
    for run in first_seeds(prepared):
        privacy = run.promise()
        if privacy is not None:
            searched = " The search for its step size is not counted." if run.planned.plan.tuned else ""
            say(f"{run.planned.label}: {privacy}.{searched}")
    step_sizes = _tune_all(folder, prepared, say)
    for number, run in enumerate(prepared, 1):
        planned = run.planned
        if folder.finished(planned):
            continue
        result = _play(folder, run, step_sizes.get(planned.cell), progress)
        if result.status == "interrupted":
            raise KeyboardInterrupt  # the engine has saved the run and ended between rounds
        result = _tested(folder, run, result)
        folder.store(planned, result)
        say(f"[{number}/{len(prepared)}] {planned}: {outcome(result, folder.file.experiment)}")
    folder.write_tables()


def _facts(prepared: list[PreparedRun]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Facts of every problem, by what the file says of it, and pictures of how rows were dealt, by file name."""
    facts: dict[str, dict[str, Any]] = {}
    pictures = {}
    for run in prepared:
        key, rows = run.planned.problem_key, run.built.rows
        if key in facts:
            continue
        facts[key] = {"fingerprint": run.fingerprint(), "facts": run.built.facts()}
        if rows is not None and rows.partition is not None:
            labels = rows.labels if rows.classes else None
            table, name = rows.partition.table(labels), f"partition-{len(facts)}.png"
            facts[key]["rows"] = {"heads": list(map(str, table)), "rows": table.astype(str).to_numpy().tolist()}
            facts[key]["notes"] = list(rows.notes)
            facts[key]["picture"] = name
            pictures[name] = rows.partition.plot(labels)
    return facts, pictures


def _tune_all(folder: RunFolder, prepared: list[PreparedRun], say: Say) -> dict[tuple[str, str], float]:
    """The step size of every group of runs that differ in their seed only."""
    step_sizes = {}
    for run in first_seeds(prepared):
        planned = run.planned
        if not planned.plan.tuned:
            continue
        record = folder.tuning(planned)
        if record is None:
            record = tune(run).as_dict()
            folder.store_tuning(planned, record)
            say(f"tuned {planned.title}: {_search_summary(run, record)}")
        step_sizes[planned.cell] = record["value"]
    return step_sizes


def _search_summary(run: PreparedRun, record: dict[str, Any]) -> str:
    """A line on a search: what was chosen, and a warning where a better one may lie outside."""
    tried = [trial["value"] for trial in record["trials"]]
    edge = "; it is the outermost tried, so a better one may lie beyond" if record["edge"] else ""
    name = run.planned.plan.step_name
    return f"{name} = {record['value']:g} of {len(tried)} from {tried[0]:g} to {tried[-1]:g}{edge}"


def _play(folder: RunFolder, run: PreparedRun, tuned: float | None, progress: bool) -> Result:
    experiment, planned = run.experiment, run.planned
    return simulate(
        run.algorithm,
        run.problem,
        run.plan(experiment.rounds, tuned),
        experiment.rounds,
        seed=planned.seed,
        participation=planned.participation,
        stop=stop(experiment),
        progress=progress,
        checkpoint=Checkpoint(
            folder.checkpoint(planned), experiment.checkpoint or ceil(experiment.rounds / CHECKPOINTS)
        ),
        iterates=_keeps_models(run),
        layout=experiment.layout,
        measure_every=1,  # the cost to a target is exact to the round
    )


def _keeps_models(run: PreparedRun) -> bool:
    """Whether the models of all rounds are needed afterwards, and fit into memory."""
    return run.built.held_out is not None and run.experiment.rounds * run.problem.dim <= KEPT_BY_DEFAULT


def _tested(folder: RunFolder, run: PreparedRun, result: Result) -> Result:
    """The result with metrics on the rows held out as columns, after some rounds or, of large models, the last."""
    metrics = run.built.held_out
    if metrics is None:
        return result
    kept = result.kept_iterates
    rounds = np.array([result.rounds])
    if kept is not None and result.status != "diverged":
        rounds = np.unique(np.linspace(0, result.rounds, LOOKS).astype(int))
    models = result.x[None] if kept is None or result.status == "diverged" else kept[rounds]
    folder.store_held_out(run.planned, asdict(metrics.report(result.x)))
    return replace(result, kept_iterates=None).with_columns(**metrics.columns(models, rounds, result.rounds + 1))


def outcome(result: Result, experiment: ExperimentConfig) -> str:
    """How a run ended, in a few words."""
    last = getattr(result, experiment.measure)[-1]
    end = f"diverged in round {result.diverged_at}" if result.status == "diverged" else f"{result.rounds} rounds"
    tested = [f"{column(name).title} {result.columns[name][-1]:.4g}" for name in HEADLINES if name in result.columns]
    return ", ".join([end, f"{experiment.measure} {last:.2e}", *tested, f"{result.seconds[-1]:.2g} s"])
