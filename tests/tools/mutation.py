"""Mutation testing: would the tests notice if a line of the methods, the links or the theory were another?

The tests that `mutation.toml` names for a module judge its mutants. Every judge is forked from a process that has JAX
imported and nothing of fedlin, works on its own copy of the tree, and reads what the unmutated tests compiled.

    python tests/tools/mutation.py --minutes 9 --sample 0.25 --results reports/mutation.jsonl

judges a random quarter and can be stopped and called again: what the file of results holds is not judged twice.
With `--each 20` it judges at most twenty of each module, drawn at random.
"""

import argparse
import compileall
import ctypes
import difflib
import json
import multiprocessing
import os
import queue
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from importlib import import_module
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, NamedTuple

from mutants import Mutant, mutants

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TABLE = tomllib.loads((HERE / "mutation.toml").read_text(encoding="utf-8"))
CPU_SECONDS = 10  # and five times what the tests take unmutated: after that a mutant is taken to run for ever
MEMORY = 6 << 30


def source(module: str, root: Path = ROOT) -> Path:
    return root / "src" / "fedlin" / f"{module}.py"


def mutated_modules() -> list[str]:
    """The modules that are mutated."""
    inside = source("links").parent
    files = [inside / "links.py", *inside.glob("algorithms/*.py"), *inside.glob("theory/*.py")]
    return sorted(str(file.relative_to(inside).with_suffix("")) for file in files if file.stem != "__init__")


def judges(module: str) -> list[str]:
    """The module's row of the table; without one, the tests of methods that name it."""
    named = f"test_(contract|field|reductions|theory|trajectories)::.*{Path(module).stem}"
    row: list[str] = TABLE["modules"].get(module, [named])
    return row


class Selection:
    """Keeps the tests that match, in a given order, and notes how each ended."""

    def __init__(self, patterns: list[str], order: list[str] | None):
        self.wanted = re.compile("|".join(patterns))
        self.order = order
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self.order is None:
            items[:] = [item for item in items if self.wanted.search(item.nodeid.replace(".py", ""))]
        else:
            rank = {name: place for place, name in enumerate(self.order)}
            items[:] = sorted((item for item in items if item.nodeid in rank), key=lambda item: rank[item.nodeid])

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self.failed.append(report.nodeid)


def run_tests(tree: Path, module: str, order: list[str] | None, cpu_seconds: float) -> dict[str, Any]:
    """In a fork: all the module's tests if there is no order yet, else those in it up to the first failure."""
    outcome = tree / "outcome.json"
    outcome.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        try:
            _be_the_judge(tree, module, order, round(cpu_seconds), outcome)
        finally:
            os._exit(1)
    _, status, used = os.wait4(child, 0)
    told: dict[str, Any] = {"cpu": round(used.ru_utime + used.ru_stime, 2)}
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGALRM):
        return {**told, "timeout": True}
    if not outcome.exists():
        return {**told, "failed": [f"the process ended with status {status}"], "seconds": {}}
    return {**told, **json.loads(outcome.read_text())}


def _be_the_judge(tree: Path, module: str, order: list[str] | None, cpu_seconds: int, outcome: Path) -> None:
    import jax
    import pytest

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: ends with the process that forked it
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.alarm(cpu_seconds * 10)  # for one that waits instead of working
    os.chdir(tree)
    with open("log", "w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(tree / "src"))
    settings = {
        "jax_compilation_cache_dir": str(tree.parent / "compiled" / module.replace("/", ".")),
        "jax_persistent_cache_min_entry_size_bytes": 0,
        # The programs of mutants are read by nobody.
        "jax_persistent_cache_min_compile_time_secs": 0.0 if order is None else 1e9,
    }
    for name, value in settings.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]
    own = str(source(module, Path()))
    if order is None:
        patterns = judges(module)
        files = sorted({str(file) for file in Path("tests").rglob("test_*.py") if _names(patterns, file.stem)})
        selection = Selection([*(f"tests/(?:.*/)?{pattern}" for pattern in patterns), f"^{own[:-3]}::"], None)
    else:
        files = sorted({name.partition("::")[0] for name in order})
        selection = Selection([], order)
    options = ["-q", "-p", "no:cacheprovider", "--assert=plain", "--continue-on-collection-errors"]
    options += ["-W", "ignore::DeprecationWarning", *(["-x"] if order else [])]
    pytest.main([*options, *dict.fromkeys([*files, own])], plugins=[selection])
    outcome.write_text(json.dumps({"failed": selection.failed, "seconds": selection.seconds}))
    os._exit(0)


def _names(patterns: list[str], file: str) -> bool:
    return any(re.match(pattern.partition("::")[0] + "$", file) for pattern in patterns)


class Rehearsal(NamedTuple):
    """What the module's tests do as it is."""

    module: str
    order: list[str]  # those that pass, the quickest first
    seconds: float
    failed: list[str]

    def __str__(self) -> str:
        failing = f"; fail without any mutation: {self.failed}" if self.failed else ""
        return f"{self.module}: {len(self.order)} tests in {self.seconds:.1f} s{failing}"


class Bench:
    """One process's copy of the tree."""

    tree: Path

    @classmethod
    def set_up(cls, master: Path, cores: Any) -> None:
        os.sched_setaffinity(0, {cores.get()})
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        cls.tree = Path(tempfile.mkdtemp(dir=master.parent))
        shutil.copytree(master, cls.tree, dirs_exist_ok=True)

    @classmethod
    def rehearse(cls, module: str) -> Rehearsal:
        told = run_tests(cls.tree, module, None, cpu_seconds=900)
        failed, seconds = told.get("failed", ["took too long"]), told.get("seconds", {})
        order = sorted(set(seconds) - set(failed), key=lambda name: float(seconds[name]))
        return Rehearsal(module, order, sum(seconds.values()), failed)

    @classmethod
    def judge(cls, task: tuple[Mutant, Rehearsal]) -> dict[str, Any]:
        mutant, rehearsal = task
        file = source(mutant.module, cls.tree)
        original = file.read_text(encoding="utf-8")
        code = mutant.applied(original)
        Path(cache_from_source(str(file))).unlink(missing_ok=True)
        try:
            file.write_text(code, encoding="utf-8")
            told = run_tests(cls.tree, mutant.module, rehearsal.order, CPU_SECONDS + 5 * rehearsal.seconds)
        finally:
            file.write_text(original, encoding="utf-8")
        failed = told.get("failed", [])
        outcome = "timeout" if "timeout" in told else "killed" if failed else "survived"
        changes = list(difflib.unified_diff(original.splitlines(), code.splitlines(), n=0, lineterm=""))[3:]
        after = "\n".join(line[1:].strip() for line in changes if line.startswith("+"))
        rest = {"after": after, "diff": changes, "by": failed[:1], "seconds": told["cpu"]}
        return {"key": mutant.key, "outcome": outcome, **mutant._asdict(), **rest}


def master_tree(folder: Path) -> Path:
    master = folder / "master"
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, master / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy2(ROOT / name, master / name)
    compileall.compile_dir(master, quiet=2)
    return master


def judge_all(todo: list[Mutant], processes: int, minutes: float, results: Path) -> None:
    """Write one line of JSON a mutant, as they are judged, until all are or the time is up."""
    for name in ("hypothesis", "jax.numpy", "pytest", "scipy.linalg", "scipy.special"):
        import_module(name)  # once, before any fork, what every judge would import

    deadline = time.monotonic() + 60 * minutes
    context = multiprocessing.get_context("fork")
    cores = context.SimpleQueue()
    available = sorted(os.sched_getaffinity(0))
    for place in range(processes):
        cores.put(available[place % len(available)])
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, results.open("a") as out:
        master = master_tree(Path(folder))
        with context.Pool(processes, Bench.set_up, (master, cores)) as pool:

            def submit(work: Any, given: Any) -> None:
                pool.apply_async(work, (given,), callback=told.put, error_callback=told.put)

            modules = [module for module, _ in Counter(mutant.module for mutant in todo).most_common()]
            for module in modules:
                submit(Bench.rehearse, module)
            left = len(modules)
            while left:
                try:
                    answer = told.get(timeout=max(0.0, deadline - time.monotonic()))
                except queue.Empty:
                    print("out of time")
                    break
                left -= 1
                if isinstance(answer, Rehearsal):
                    print(answer, flush=True)
                    own = [mutant for mutant in todo if mutant.module == answer.module and answer.order]
                    left += len(own)
                    for mutant in own:
                        submit(Bench.judge, (mutant, answer))
                elif isinstance(answer, BaseException):
                    raise answer
                else:
                    out.write(json.dumps(answer, ensure_ascii=False) + "\n")
                    out.flush()


def survives(line: dict[str, Any]) -> bool:
    """Whether the tests did not notice, and nobody has told why."""
    return line["outcome"] == "survived" and line["after"] not in TABLE["same"]


def report(judged: dict[str, dict[str, Any]], everything: list[Mutant]) -> float:
    """Print the survivors and the share killed of each module; returns the share of all."""
    known = [judged[mutant.key] for mutant in everything if mutant.key in judged]
    for line in known:
        if survives(line):
            print(f"{line['module']}:{line['line']}: {line['before']}  ->  {line['after']}")
    all_of, killed, told = Counter[str](), Counter[str](), Counter[str]()
    for line in known:
        for group in (line["module"], "all"):
            all_of[group] += 1
            killed[group] += line["outcome"] != "survived"
            told[group] += line["outcome"] == "survived" and not survives(line)
    for group in sorted(all_of):
        print(f"{group:32}{killed[group]:6} of {all_of[group]:5} killed, {told[group]:4} known to be the same")
    spent = sum(line["seconds"] for line in known) / 60
    print(
        f"{len(everything) - len(known)} of {len(everything)} not judged; the others took {spent:.0f} minutes of a core"
    )
    return killed["all"] / max(1, all_of["all"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("modules", nargs="*", help="such as theory/bounds; all unless given")
    parser.add_argument("--results", type=Path, default=ROOT / "reports" / "mutation.jsonl")
    parser.add_argument("--sample", type=float, default=1.0, help="the share of the mutants to judge, drawn at random")
    parser.add_argument("--each", type=int, default=None, help="the most mutants of a module to judge, at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--minutes", type=float, default=120.0, help="0 to report only")
    parser.add_argument("--again", action="store_true", help="judge the survivors once more, and nothing else")
    given = parser.parse_args()

    everything = [
        mutant
        for module in given.modules or mutated_modules()
        for mutant in mutants(module, source(module).read_text(encoding="utf-8"))
    ]
    random.Random(given.seed).shuffle(everything)  # so that what is judged in time is a sample of all
    chosen = everything[: round(given.sample * len(everything))]
    if given.each is not None:
        of_each = {module: [m for m in chosen if m.module == module][: given.each] for module in mutated_modules()}
        chosen = [mutant for those in of_each.values() for mutant in those]
    given.results.parent.mkdir(parents=True, exist_ok=True)
    given.results.touch()

    def judged() -> dict[str, dict[str, Any]]:
        return {line["key"]: line for line in map(json.loads, given.results.read_text().splitlines())}

    known = judged()
    survivors = {key for key, line in known.items() if survives(line)}
    todo = [mutant for mutant in chosen if (mutant.key in survivors if given.again else mutant.key not in known)]
    print(f"{len(everything)} mutants, {len(todo)} to judge")
    if todo and given.minutes > 0:
        judge_all(todo, given.processes, given.minutes, given.results)
    return 0 if report(judged(), everything) >= 0.9 else 1


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.exit(main())
