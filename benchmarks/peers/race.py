"""W1 and W2 by everyone, in turns with the plain NumPy loop: ratios of time, first round, memory, and who is right."""

import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from benchmarks import process, reference
from benchmarks.peers.contract import Array, Task
from benchmarks.peers.install import NAMES, install_all, python
from benchmarks.peers.with_numpy import work_of
from benchmarks.workloads import Workload, w1, w2

ROUNDS = 6  # the first of them is the one that compiles and loads
RIGHT = 1e-5  # relative distance to what the method must give: some packages send float32
Say = Callable[[str], None]


class Contestant(NamedTuple):
    """A package and the method it runs; with `own` steps every client has its τ_i and η_i, else all have the mean."""

    title: str
    package: str
    method: str
    own: bool = False
    workloads: tuple[str, ...] = ("W1", "W2")
    manner: str = ""  # of the method, where a package has several


LOOP = Contestant("NumPy loop", "numpy", "FedLin", True)
CONTESTANTS = (
    Contestant("fedlin", "fedlin", "FedLin", True),
    Contestant("fedlin, step by step", "fedlin", "FedLin", True, ("W1",), " by gradients"),
    Contestant("FedJAX", "fedjax", "FedAvg"),
    Contestant("pfl", "pfl", "FedAvg"),
    Contestant("pfl", "pfl", "SCAFFOLD"),
    Contestant("FedLab", "fedlab", "SCAFFOLD"),
    Contestant("Flower, simulated", "flower", "FedAvg", True),
)


def tasks() -> dict[tuple[str, bool], Task]:
    """By workload, and by whether clients have their own numbers of steps."""

    def task(work: Workload, loss: str, l2: float, own: bool) -> Task:
        sheet: Any = work.problem.rows().data
        clients = work.problem.clients
        tau, eta = (np.broadcast_to(np.asarray(row, float), clients) for row in work.plan.rows(clients, 1))
        if not own:  # as much work in all, and the same η_i τ_i
            mean = round(float(tau.mean()))
            tau, eta = np.full(clients, float(mean)), np.full(clients, float(np.mean(tau * eta)) / mean)
        return Task(loss, np.asarray(sheet.X), np.asarray(sheet.y), l2, tau.astype(int), eta)

    return {
        (name, own): task(work, loss, l2, own)
        for name, work, loss, l2 in (("W1", w1(False), "least squares", 0.0), ("W2", w2(), "logistic", 1e-3))
        for own in (True, False)
    }


def answer(task: Task, method: str) -> Array:
    """What the method must give after the rounds of a race."""
    rounds = reference.METHODS[method](work_of(task), 0 * task.X[0, 0])
    return next(islice(rounds, ROUNDS - 1, None))


def summary(values: list[float]) -> dict[str, float]:
    """Median and range."""
    return {"median": median(values), "low": min(values), "high": max(values)}


class Race:
    """The contestants on one workload."""

    def __init__(self, workload: str, tasks: dict[tuple[str, bool], Task], folder: Path, missing: dict[str, str]):
        self.workload, self.missing = workload, missing
        self.paths = {own: str(folder / f"{workload}-{own}.npz") for own in (True, False)}
        for own, path in self.paths.items():
            tasks[workload, own].write(path)
        self.answers = {c: answer(tasks[workload, c.own], c.method) for c in (LOOP, *CONTESTANTS)}
        self.runs: dict[Contestant, list[dict[str, Any]]] = {c: [] for c in (LOOP, *CONTESTANTS)}
        self.failed: dict[Contestant, str] = {}

    def play(self, who: Contestant) -> dict[str, Any]:
        """One process: its seconds a round without the first, and how far it is from the answer."""
        interpreter = str(python(who.package)) if who.package in NAMES else sys.executable
        module = f"benchmarks.peers.with_{who.package}"
        method, now = who.method + who.manner, repr(time.time())
        result = process.run([interpreter, "-m", module, self.paths[who.own], method, str(ROUNDS), now])
        right = self.answers[who]
        result["seconds"] = median(result["seconds"])
        result["distance"] = float(np.linalg.norm(np.array(result.pop("x")) - right) / np.linalg.norm(right))
        return result

    def repeat(self, say: Say) -> None:
        """Everyone once, the NumPy loop before and after each; a ratio is to the mean of these two."""
        before = self.play(LOOP)
        for who in CONTESTANTS:
            if self.workload not in who.workloads or who.package in self.missing or who in self.failed:
                continue
            try:
                result = self.play(who)
            except process.FailedError as error:
                self.failed[who] = str(error)
                say(f"{self.workload} {who.title} failed: {error}")
                continue
            after = self.play(LOOP)
            result["ratio"] = 2 * result["seconds"] / (before["seconds"] + after["seconds"])
            say(f"{self.workload} {who.title}, {who.method}: {result['ratio']:.3g} × the NumPy loop")
            self.runs[who].append(result)
            self.runs[LOOP].append({**before, "ratio": 1.0})
            before = after

    def row(self, who: Contestant) -> dict[str, Any]:
        """What the table shows of one contestant."""
        runs = self.runs[who]
        if who in self.failed or not runs:
            return {"failed": self.failed.get(who) or self.missing.get(who.package, "")}
        row = {name: summary([run[name] for run in runs]) for name in ("seconds", "ratio", "first", "peak")}
        worst = max(run["distance"] for run in runs)
        return {**row, "distance": worst, "right": worst <= RIGHT, "version": runs[0]["version"], "repeats": len(runs)}


def measure(repeats: int, say: Say) -> dict[str, Any]:
    """One entry a contestant, with its figures on each workload."""
    say("installing the peers")
    missing = {name: error for name, error in install_all().items() if error}
    for name, error in missing.items():
        say(f"{name} could not be installed: {error}")
    everything = tasks()
    with tempfile.TemporaryDirectory() as folder:
        races = [Race(workload, everything, Path(folder), missing) for workload in ("W1", "W2")]
        for number in range(repeats):
            for race in races:
                say(f"repeat {number + 1} of {repeats}, {race.workload}")
                race.repeat(say)
    rows = []
    for who in (LOOP, *CONTESTANTS):
        figures = {race.workload: race.row(who) for race in races if race.workload in who.workloads}
        about = {"title": who.title, "method": who.method, "own steps": who.own, "peer": who.package in NAMES}
        rows.append({**about, "missing": missing.get(who.package, ""), **figures})
    return {"rounds": ROUNDS, "right": RIGHT, "rows": rows}
