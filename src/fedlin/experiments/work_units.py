"""The units of an experiment, which any process can do: a search for a step size, or a run; each stores its outcome."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from math import ceil
from typing import Any, Literal, NamedTuple

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
from fedlin.trackers import Tracker, track_run

HEADLINES = ("accuracy", "accuracy_worst", "explained", "explained_worst")  # metrics that a line on a run names
CHECKPOINTS = 20  # a run is saved so often, unless the file says otherwise


class Unit(NamedTuple):
    """Something to do, by the number of its run."""

    kind: Literal["tune", "play"]
    number: int


class WorkUnits:
    """What an experiment's folder still wants done, and how it is done; every process that works on it has its own."""

    def __init__(self, folder: RunFolder, prepared: Sequence[PreparedRun]) -> None:
        self.folder = folder
        self._runs = {run.planned.number: run for run in prepared}
        self._first = {run.planned.cell: run for run in first_seeds(prepared)}

    def missing(self) -> list[Unit]:
        """All units that are not stored yet, searches first."""
        searches = [run for run in self._first.values() if run.planned.plan.tuned]
        return [
            *(Unit("tune", run.planned.number) for run in searches if self.folder.tuning(run.planned) is None),
            *(Unit("play", number) for number, run in self._runs.items() if not self.folder.finished(run.planned)),
        ]

    def ready(self, unit: Unit) -> bool:
        """Whether what a unit builds on is stored."""
        run = self._runs[unit.number]
        tuned = run.planned.plan.tuned and unit.kind == "play"
        return not tuned or self.folder.tuning(self._first[run.planned.cell].planned) is not None

    def perform(self, unit: Unit, progress: bool = False) -> str:
        """Do a unit, store its outcome, and say how it ended; KeyboardInterrupt where it was saved to go on later."""
        run = self._runs[unit.number]
        return self._tune(run) if unit.kind == "tune" else self._play(run, progress)

    def _tune(self, run: PreparedRun) -> str:
        record = tune(run).as_dict()
        self.folder.store_tuning(run.planned, record)
        return f"tuned {run.planned.title}: {_search_summary(run, record)}"

    def _play(self, run: PreparedRun, progress: bool) -> str:
        experiment, planned = run.experiment, run.planned
        record = self.folder.tuning(self._first[planned.cell].planned) if planned.plan.tuned else None
        tracker = None
        if experiment.track is not None:
            params = {"algorithm": planned.label, "seed": planned.seed, **planned.grid}
            tracker = track_run(experiment.track, self.folder.path, planned.name, params)
        with tracker or nullcontext():
            result = self._simulate(run, None if record is None else record["value"], tracker, progress)
        if result.status == "interrupted":
            raise KeyboardInterrupt  # the engine has saved the run and ended between rounds
        result = self._tested(run, result)
        self.folder.store(planned, result)
        return f"[{planned.number + 1}/{len(self._runs)}] {planned}: {outcome(result, experiment)}"

    def _simulate(self, run: PreparedRun, tuned: float | None, tracker: Tracker | None, progress: bool) -> Result:
        experiment, planned = run.experiment, run.planned
        return simulate(
            run.algorithm,
            run.problem,
            run.plan(experiment.rounds, tuned),
            experiment.rounds,
            seed=planned.seed,
            participation=planned.participation,
            aggregate=run.aggregate,
            stop=stop(experiment),
            progress=progress,
            checkpoint=Checkpoint(
                self.folder.checkpoint(planned), experiment.checkpoint or ceil(experiment.rounds / CHECKPOINTS)
            ),
            iterates=_keeps_models(run),
            layout=experiment.layout,
            measure_every=1,  # the cost to a target is exact to the round
            metrics=run.built.metrics,
            test=run.built.test,
            every=experiment.evaluate_every,
            callbacks=() if tracker is None else (tracker,),
        )

    def _tested(self, run: PreparedRun, result: Result) -> Result:
        """The result with more metrics on the rows held out: after each round evaluated, of large models the last."""
        metrics = run.built.held_out
        if metrics is None:
            return result
        iterates = None if result.status == "diverged" else result.kept_iterates
        looked = np.flatnonzero(~np.isnan(result.columns[next(iter(run.built.metrics or ()))]))
        rounds = np.array([result.rounds]) if iterates is None else looked
        models = result.x[None] if iterates is None else iterates[rounds]
        self.folder.store_held_out(run.planned, asdict(metrics.report(result.x)))
        columns = metrics.columns(models, rounds, result.rounds + 1)
        return replace(result, kept_iterates=None).with_columns(**{**columns, **result.columns})


def _keeps_models(run: PreparedRun) -> bool:
    """Whether the models of all rounds are needed afterwards, and fit into memory."""
    return run.built.held_out is not None and run.experiment.rounds * run.problem.dim <= KEPT_BY_DEFAULT


def _search_summary(run: PreparedRun, record: dict[str, Any]) -> str:
    """A line on a search: what was chosen, and a warning where a better one may lie outside."""
    tried = [trial["value"] for trial in record["trials"]]
    edge = "; it is the outermost tried, so a better one may lie beyond" if record["edge"] else ""
    name = run.planned.plan.step_name
    return f"{name} = {record['value']:g} of {len(tried)} from {tried[0]:g} to {tried[-1]:g}{edge}"


def outcome(result: Result, experiment: ExperimentConfig) -> str:
    """How a run ended, in a few words."""
    last = getattr(result, experiment.measure)[-1]
    end = f"diverged in round {result.diverged_at}" if result.status == "diverged" else f"{result.rounds} rounds"
    tested = [f"{column(name).title} {result.columns[name][-1]:.4g}" for name in HEADLINES if name in result.columns]
    return ", ".join([end, f"{experiment.measure} {last:.2e}", *tested, f"{result.seconds[-1]:.2g} s"])
