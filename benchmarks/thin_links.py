"""Time to accuracy over thin links: `python -m benchmarks.thin_links [PART ...]`, as root, or `make bench-thin`.

A federation over NVIDIA FLARE with TLS, by the commands of the handbook, whose server and sites are in network
namespaces (`thin_network`), with links of 0.5, 5 and 50 Mbit/s each way and a delay. The same methods in simulation
give the steps and the rounds to the target. A run over links that are not shaped gives each problem's `fedlin.Clock`,
which says what the shaped runs should take. Parts go to benchmarks/results/thin_links.json one by one: "tune", a
problem's name for its runs, or "PROBLEM:free,0.5" for those at some speeds, "advise" and "page"; all unless some are
named.
"""

import argparse
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from scipy.optimize import nnls

import fedlin
from benchmarks.federation_recovery import Machines, joined
from benchmarks.thin_network import BURST, HOST, PORT, ThinNetwork, why_not
from benchmarks.thin_page import FIRST, taken
from benchmarks.thin_page import save as save_page
from benchmarks.thin_problems import DATA, PROBLEMS, SITES, Array, Table, ThinProblem, accuracy, images
from fedlin.core import Method
from fedlin.deploy.project import Project, create
from fedlin.deploy.runs import run_folder
from fedlin.deploy.settings import NAME
from fedlin.deploy.status import lines
from fedlin.experiments import build_method
from fedlin.experiments.candidates import Candidate
from fedlin.problems.custom import Custom

RESULTS = Path(__file__).parent / "results" / "thin_links.json"
FREE = "free"  # not shaped
SPEEDS = (FREE, "0.5", "5", "50")  # of the links, in Mbit/s
DELAY = 0.02  # seconds that every message takes more
LIMIT = 300.0  # seconds of one run
# FLARE and TCP answer every message with acknowledgements about as long as the envelope, which travel the other way
# while the receiver works: of the bytes beyond the messages, one in two delays nothing.
ACKNOWLEDGED = 2
THIN = 0.5  # Mbit/s for which `fedlin advise` is asked
CLIENT = """\
from benchmarks.thin_problems import PROBLEMS


def problem():
    return PROBLEMS[{name!r}].build().client({site})
"""


def method(table: Table) -> Method:
    """The algorithm of a table of federation.toml."""
    return build_method.algorithm(table["name"], {key: value for key, value in table.items() if key != "name"})


def simulated(problem: ThinProblem, name: str, steps: tuple[float, ...], on: Any) -> list[fedlin.Result]:
    """A method's runs in simulation, one for each step; `on` are the images a network is evaluated on."""
    evaluated = {"metrics": {"accuracy": accuracy}, "test": on, "every": 1} if problem.measure == "accuracy" else {}
    plans = [fedlin.Plan(problem.tau, step) for step in steps]
    whole, algorithm = problem.build(), method(problem.methods[name])
    return fedlin.simulate_many(algorithm, whole, plans, 2 * problem.most, iterates=False, **evaluated)


def tune(problem: ThinProblem) -> Table:
    """Each method's step by fewest rounds to the target, or else by the end, and its curve with that step.

    A network's step is chosen on other images than those of the curve.
    """
    _, choose, test = images() if problem.measure == "accuracy" else (None, None, None)
    found = {}
    for name in problem.methods:
        runs = simulated(problem, name, problem.steps, choose)
        curves = [np.asarray(run.columns[problem.measure]) for run in runs]
        best = min(range(len(runs)), key=lambda i: rank(problem, curves[i], runs[i].status))
        (run,) = simulated(problem, name, (problem.steps[best],), test)
        curve = np.asarray(run.columns[problem.measure])
        there = problem.reached(curve)
        found[name] = {
            "eta": problem.steps[best],
            "rounds": int(np.argmax(there)) if there.any() else problem.most,
            "reached": bool(there.any()),
            "curve": [float(f"{value:.4g}") for value in curve[: problem.most + 1 if not there.any() else None]],
            "bytes": message_bytes(problem, name),
        }
        print(f"{problem.title}: {name} with η = {problem.steps[best]:g}, {found[name]['rounds']} rounds", flush=True)
    return found


def rank(problem: ThinProblem, curve: Array, status: str) -> tuple[float, float]:
    """Smaller is better: rounds to the target, then the measure at the end."""
    there = problem.reached(curve)
    end = -curve[-1] if problem.measure == "accuracy" else curve[-1]
    if status == "diverged":
        return np.inf, np.inf
    return float(np.argmax(there)) if there.any() else np.inf, float(end)


def message_bytes(problem: ThinProblem, name: str) -> list[list[int]]:
    """The method's own bytes down and up in each phase of a round."""
    sizes = fedlin.message_sizes(method(problem.methods[name]), problem.build()).later
    return [[size.down.total, size.up.total] for size in sizes]


def settings(problem: ThinProblem, name: str, tuned: Table) -> str:
    """A federation.toml for one method."""
    start = {"start": "start.npy"} if problem.measure == "accuracy" else {"dim": problem.build().dim}
    return tomli_w.dumps(
        {
            "run": {"rounds": tuned["rounds"], **start},
            "algorithm": dict(problem.methods[name]),
            "sites": {site: {"tau": problem.tau, "eta": tuned["eta"]} for site in SITES},
        }
    )


def measure(which: str, tuned: Table, speeds: Sequence[str]) -> Iterator[tuple[str, Table]]:
    """Runs of one federation by speed and method: seconds after each round, bytes on a link, how good the model is."""
    problem, begun = PROBLEMS[which], time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve() / "federation"
        create(folder, SITES, HOST, PORT)
        for number, site in enumerate(SITES):
            (folder / "sites" / site / "client.py").write_text(CLIENT.format(name=which, site=number))
        np.save(folder / "start.npy", problem.build().start)
        with ThinNetwork(SITES, DELAY) as network:
            project = Project.read(folder)
            within = {str(project.site(site)): network.within(site) for site in SITES}
            within |= {str(place): network.within("server") for place in (project.server, folder)}
            with joined(Machines(project, within)) as machines:
                for speed in sorted(speeds, key=SPEEDS.index):  # what is shaped stays so
                    if speed != FREE:
                        network.shape(float(speed))
                    runs = {}
                    for name in tuned:
                        runs[name] = play(machines, network, problem, name, tuned[name], speed)
                        took = taken(runs[name])
                        print(f"{time.monotonic() - begun:4.0f} s  {which}, {speed}, {name}: {took:.1f} s", flush=True)
                    yield speed, runs


def play(machines: Machines, network: ThinNetwork, problem: ThinProblem, name: str, tuned: Table, speed: str) -> Table:
    """One run by `fedlin federation run`."""
    project, run = machines.project, re.sub(r"\W", "-", f"{name} {speed}".lower())
    (project.folder / NAME).write_text(settings(problem, name, tuned), encoding="utf-8")
    place = run_folder(project.server, run)
    sender = machines.command("run", run, str(project.folder))
    begun, first, last = time.monotonic(), None, 0
    try:
        while (done := len(rounds := [line for line in lines(place) if "event" not in line])) < tuned["rounds"]:
            if first is None and done >= FIRST:
                first = done, network.carried()
            if time.monotonic() - begun > LIMIT or sender.poll() not in (None, 0):
                screen = project.folder.parent / f"run-{run}.txt"
                raise RuntimeError(f"{name}: {done} rounds in {LIMIT:g} s\n{screen.read_text()[-2000:]}")
            time.sleep(0.02)
        last = network.carried()
        sender.wait(LIMIT)
    finally:
        if sender.poll() is None:
            sender.kill()
            sender.wait()
    assert first is not None
    played, before = tuned["rounds"] - first[0], first[1]
    x = np.load(place / "model.npy")
    return {
        "seconds": [round(line["seconds"], 3) for line in rounds],
        "carried": (last - before) / played / len(SITES),  # bytes of a round on a site's link, both ways
        "ends at": round(quality(problem, x), 8),
        "load": round(os.getloadavg()[0], 1),
    }


def quality(problem: ThinProblem, x: Array) -> float:
    """The measure of a model that a federation made."""
    whole = problem.build()
    return float(accuracy(whole.params(x), images()[2])) if isinstance(whole, Custom) else whole.gap(x)


def calibrate(problem: ThinProblem, tuned: Table, free: Table) -> Table:
    """The clock's numbers from runs over links that are not shaped: speed and latency beyond the delay fit the three
    methods' median rounds best, and the overhead is each method's own, by what its links carried beyond messages.
    """
    names = list(problem.methods)
    phases = [len(tuned[name]["bytes"]) for name in names]
    calls = [problem.tau + count - 1 for count in phases]  # FedLin takes one gradient more, in a phase of its own
    a_round = [np.median(np.diff(free[name]["seconds"][FIRST - 1 :])) for name in names]
    messages = 2 * np.array(phases)
    (more, cost), _ = nnls(np.column_stack([messages, calls]), np.array(a_round) - DELAY * messages)
    overhead = {}
    for name, count in zip(names, phases, strict=True):
        beyond = free[name]["carried"] - np.sum(tuned[name]["bytes"])
        overhead[name] = max(0.0, beyond / (2 * count) / ACKNOWLEDGED)
    return {"latency": DELAY + more, "speed": 1 / cost if cost else None, "overhead": overhead}


def clock(calibrated: Table, name: str, mbit: float) -> fedlin.Clock:
    """What is known of the sites, at a speed of their links, which let a packet through at once after a pause."""
    rate = mbit * 1e6 / 8
    speed = calibrated["speed"] or np.inf
    overhead = max(0.0, calibrated["overhead"][name] - BURST)
    return fedlin.Clock(speed, up=rate, down=rate, latency=calibrated["latency"], overhead=overhead)


def predicted(problem: ThinProblem, name: str, tuned: Table, calibrated: Table, mbit: float) -> float:
    """What `taken` should be, by the clock."""
    plan, algorithm, whole = fedlin.Plan(problem.tau, tuned["eta"]), method(problem.methods[name]), problem.build()
    run = fedlin.simulate(algorithm, whole, plan, 3, iterates=False)
    timed = clock(calibrated, name, mbit).time(run, algorithm, whole, plan).simulated
    return float(timed[3] - timed[2]) * (int(tuned["rounds"]) - FIRST)  # rounds after the opening one send the same


def advise(which: str, calibrated: Table) -> Table:
    """What `fedlin advise` says of the thinnest links: seconds of its candidates, the best first."""
    from typer.testing import CliRunner

    from fedlin.cli import app

    known = {
        "mbit": THIN,
        "latency": calibrated["latency"],
        "overhead": calibrated["overhead"]["compressed FedLin"],
        "speed": calibrated["speed"] or np.inf,
    }
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "experiment.toml"
        file.write_text(PROBLEMS[which].experiment)
        options = [word for key, value in known.items() for word in (f"--{key}", str(value))]
        done = CliRunner().invoke(app, ["advise", str(file), "--by", "seconds", "--check", "0", "--json", *options])
    if done.exit_code:
        raise RuntimeError(done.output)
    forecasts = json.loads(done.stdout)["forecasts"]
    return {
        "options": known,
        "forecasts": [
            {
                "label": Candidate(*one["candidate"]).label,
                **{key: one[key] for key in ("step", "rounds", "bytes", "seconds")},
            }
            for one in forecasts
        ],
    }


def parts() -> list[str]:
    """In the order in which they need each other."""
    return ["tune", *PROBLEMS, "advise", "page"]


def take(part: str, found: Table, keep: Callable[[], object]) -> None:
    """Measure one part and put it where it belongs; `keep` saves what there is."""
    if part == "tune":
        found["tuned"] = {which: tune(problem) for which, problem in PROBLEMS.items()}
    elif part == "advise":
        found["advice"] = {which: advise(which, known) for which, known in found["clock"].items()}
    elif part == "page":
        for which, runs in found["runs"].items():
            for speed in runs.keys() - {FREE}:
                for name, run in runs[speed].items():
                    known = found["clock"][which]
                    run["predicted"] = predicted(
                        PROBLEMS[which], name, found["tuned"][which][name], known, float(speed)
                    )
        save_page(found)
    else:
        which, _, speeds = part.partition(":")
        problem, tuned = PROBLEMS[which], found["tuned"][which]
        found |= {"delay": DELAY, "cores": os.cpu_count()}
        runs = found.setdefault("runs", {}).setdefault(which, {})
        for speed, run in measure(which, tuned, speeds.split(",") if speeds else SPEEDS):
            runs[speed] = run
            if speed == FREE:
                found.setdefault("clock", {})[which] = calibrate(problem, tuned, run)
            keep()


def save(found: Table, file: Path) -> None:
    """Write what was found."""
    file.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    """The parts named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=parts(), metavar="PART", help=", ".join(parts()))
    parser.add_argument("--file", type=Path, default=RESULTS)
    given = parser.parse_args()
    for part in given.parts:
        name, _, speeds = part.partition(":")
        if name not in parts() or (speeds and not set(speeds.split(",")) <= set(SPEEDS)):
            parser.error(f"no part {part}: choose from {', '.join(parts())}, with speeds from {','.join(SPEEDS)}.")
    reason = why_not() if any(part.partition(":")[0] in PROBLEMS for part in given.parts) else None
    if reason is not None:
        print(f"skipped: {reason}")
        return
    os.environ[DATA] = str(Path(os.environ.get(DATA, "../shared/data")).resolve())
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that everything is taken down, as by Ctrl-C
    for part in given.parts:
        found = json.loads(given.file.read_text()) if given.file.exists() else {}
        keep = partial(save, found, given.file)
        take(part, found, keep)
        keep()


if __name__ == "__main__":
    main()
