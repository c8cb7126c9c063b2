"""Runs shared out over processes: the same bits as one after the other, and a worker that dies is replaced."""

import os
import signal
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

from fedlin.errors import FedLinError
from fedlin.experiments.execute import execute
from fedlin.experiments.experiment_file import load
from fedlin.experiments.prepare import prepare
from fedlin.experiments.run_folder import RunFolder
from fedlin.experiments.work_units import Unit
from fedlin.experiments.workers import LocalWorkers, RayWorkers, WorkerAnswer, Workers, share_out
from fedlin.transports.ray import connect_ray

pytestmark = pytest.mark.slow

STUDY: dict[str, Any] = {
    "rounds": 60,
    "checkpoint": 10,
    "seeds": [0, 1],
    "problem": {"kind": "logistic", "l2": 0.1, "synthetic": {"clients": 3, "dim": 4, "samples": 20}, "test": 0.2},
    "plan": {"tau": 2, "eta": "tuned"},
    "algorithm": [{"name": "fedlin"}, {"name": "fedavg"}],
}


def run(folder: Path, study: dict[str, Any], make: Callable[[Path], Workers] | None) -> tuple[RunFolder, list[str]]:
    file = folder.with_suffix(".toml")
    file.write_text(tomli_w.dumps(study))
    loaded, said = load(file), list[str]()
    opened = RunFolder.create(folder, loaded)
    execute(opened, prepare(loaded), say=said.append, workers=make)
    return opened, said


def assert_same(one: RunFolder, other: RunFolder) -> None:
    for (planned, result), (_, again) in zip(one.results(), other.results(), strict=True):
        np.testing.assert_array_equal(result.x, again.x)
        for name, values in result.columns.items():
            if name != "seconds":
                np.testing.assert_array_equal(values, again.columns[name])
        assert one.tuning(planned) == other.tuning(planned)
        assert one.held_out(planned) == other.held_out(planned)


def test_two_processes_give_the_bits_of_one(tmp_path: Path) -> None:
    alone, lines = run(tmp_path / "alone", STUDY, None)
    shared, others = run(tmp_path / "shared", STUDY, lambda folder: LocalWorkers(folder, 2))
    assert len(list(shared.results())) == 4
    assert_same(alone, shared)
    assert sorted(line.split(":")[0] for line in lines) == sorted(line.split(":")[0] for line in others)


@pytest.mark.long
def test_a_worker_that_is_killed_is_replaced_and_its_run_goes_on(tmp_path: Path) -> None:
    problem = {key: value for key, value in STUDY["problem"].items() if key != "test"}
    study = {**STUDY, "rounds": 200_000, "checkpoint": 2000, "seeds": 0, "plan": {"tau": 2, "eta": 0.1},
             "problem": problem}  # fmt: skip
    alone, _ = run(tmp_path / "alone", study, None)
    made: list[LocalWorkers] = []

    def make(folder: Path) -> LocalWorkers:
        made.append(LocalWorkers(folder, 1))
        return made[0]

    def kill() -> None:
        while not list((tmp_path / "shared" / "runs").glob("*.ckpt")):
            time.sleep(0.01)
        ((worker, _),) = made[0]._busy.values()
        os.kill(worker.process.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    shared, said = run(tmp_path / "shared", study, make)
    killer.join()
    assert [line for line in said if "a worker died" in line] == [
        "a worker died at run 0: another goes on with it"
    ]  # fmt: skip
    assert_same(alone, shared)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # Ray starts its processes so
def test_a_ray_of_its_own_gives_the_same_bits(tmp_path: Path) -> None:
    if find_spec("ray") is None:
        pytest.skip("needs Ray")
    alone, _ = run(tmp_path / "alone", STUDY, None)
    shared, _ = run(tmp_path / "shared", STUDY, lambda folder: RayWorkers(folder, connect_ray("local", 2), 2))
    assert_same(alone, shared)


class Mortal:
    """Workers that die at one unit."""

    def __init__(self, deadly: int) -> None:
        self.deadly, self.units, self.closed = deadly, list[Unit](), False

    def free(self) -> bool:
        return not self.units

    def give(self, unit: Unit) -> None:
        self.units.append(unit)

    def next(self) -> WorkerAnswer:
        unit = self.units.pop()
        return WorkerAnswer(unit, died=True) if unit.number == self.deadly else WorkerAnswer(unit, f"run {unit.number}")

    def close(self) -> None:
        self.closed = True


def test_a_unit_at_which_workers_keep_dying_is_given_up() -> None:
    workers, said = Mortal(1), list[str]()
    units = [Unit("play", 0), Unit("play", 1), Unit("play", 2)]
    with pytest.raises(FedLinError, match="3 workers died at run 1"):
        share_out(units, lambda unit: True, lambda: workers, said.append)
    assert said == ["run 0", *["a worker died at run 1: another goes on with it"] * 2]
    assert workers.closed


def test_a_run_waits_for_its_step_size() -> None:
    workers, said = Mortal(-1), list[str]()
    search, play = Unit("tune", 0), Unit("play", 0)

    def ready(unit: Unit) -> bool:
        return unit == search or "run 0" in said

    share_out([play, search], ready, lambda: workers, said.append)
    assert said == ["run 0", "run 0"]
