"""An experiment from its first member to its report; what is done is stored at once, so that it can go on later."""

from collections.abc import Callable
from math import ceil
from typing import Any

from fedlin.engines.checkpoint import Checkpoint
from fedlin.engines.simulation.simulate import simulate
from fedlin.experiments.config import ExperimentConfig
from fedlin.experiments.jobs import Job, cells, stop
from fedlin.experiments.privacy_budget import promise
from fedlin.experiments.run_folder import Folder
from fedlin.experiments.tune import tune
from fedlin.result import Result

Say = Callable[[str], None]
CHECKPOINTS = 20  # a member is saved so often, unless the file says otherwise


def run(folder: Folder, ready: list[Job], *, say: Say, progress: bool = False) -> None:
    """Tune and play what is not yet stored, then write the tables."""
    facts, pictures = _facts(ready)
    folder.begin(facts)
    for name, picture in pictures.items():
        folder.store_picture(name, picture)
    for job in cells(ready):
        told_before = promise(job.algorithm, folder.loaded.experiment, job.member.participation, job.problem.clients)
        if told_before is not None:
            searched = " The search for its step size is not counted." if job.member.plan.tuned else ""
            say(f"{job.member.label}: {told_before}.{searched}")
    sizes = _tuned(folder, ready, say)
    for number, job in enumerate(ready, 1):
        if folder.finished(job.member):
            continue
        result = _play(folder, job, sizes.get(job.member.cell), progress)
        if result.status == "interrupted":
            raise KeyboardInterrupt  # the engine has saved the member and ended between rounds
        folder.store(job.member, result)
        say(f"[{number}/{len(ready)}] {job.member}: {outcome(result, folder.loaded.experiment)}")
    folder.write_tables()


def _facts(ready: list[Job]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Facts of every problem, by what the file says of it, and pictures of how rows were dealt, by file name."""
    facts: dict[str, dict[str, Any]] = {}
    pictures = {}
    for job in ready:
        key, built = job.member.problem_key, job.built
        if key in facts:
            continue
        facts[key] = {"fingerprint": job.fingerprint(), "facts": built.facts()}
        if built.partition is not None:
            labels = None if job.member.problem.kind in ("regression", "ridge") else built.labels
            table, name = built.partition.table(labels), f"partition-{len(facts)}.png"
            facts[key]["rows"] = {"heads": list(map(str, table)), "rows": table.astype(str).to_numpy().tolist()}
            facts[key]["picture"] = name
            pictures[name] = built.partition.plot(labels)
    return facts, pictures


def _tuned(folder: Folder, ready: list[Job], say: Say) -> dict[tuple[str, str], float]:
    """The step size of every group of members that differ in their seed only."""
    sizes = {}
    for job in cells(ready):
        if not job.member.plan.tuned:
            continue
        record = folder.tuning(job.member)
        if record is None:
            record = tune(job, folder.loaded.experiment).as_dict()
            folder.store_tuning(job.member, record)
            say(f"tuned {job.member.title}: {told(job, record)}")
        sizes[job.member.cell] = record["value"]
    return sizes


def told(job: Job, record: dict[str, Any]) -> str:
    """A line on a search: what was chosen, and a warning where a better one may lie outside."""
    tried = [trial["value"] for trial in record["trials"]]
    edge = "; it is the outermost tried, so a better one may lie beyond" if record["edge"] else ""
    return f"{job.member.plan.step_name} = {record['value']:g} of {len(tried)} from {tried[0]:g} to {tried[-1]:g}{edge}"


def _play(folder: Folder, job: Job, tuned: float | None, progress: bool) -> Result:
    experiment, member = folder.loaded.experiment, job.member
    return simulate(
        job.algorithm,
        job.problem,
        job.plan(experiment.rounds, tuned),
        experiment.rounds,
        seed=member.seed,
        participation=member.participation,
        stop=stop(experiment),
        progress=progress,
        checkpoint=Checkpoint(
            folder.checkpoint(member), experiment.checkpoint or ceil(experiment.rounds / CHECKPOINTS)
        ),
        iterates=False,
        measure_every=1,  # costs to a target are told to the round
    )


def outcome(result: Result, experiment: ExperimentConfig) -> str:
    """How a member ended, in a few words."""
    last = getattr(result, experiment.measure)[-1]
    end = f"diverged in round {result.diverged_at}" if result.status == "diverged" else f"{result.rounds} rounds"
    return f"{end}, {experiment.measure} {last:.2e}, {result.seconds[-1]:.2g} s"
