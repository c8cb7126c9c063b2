"""The commands run, report, init and the lists, as a user types them; killed, interrupted and out of room."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_experiments import SMALL, write
from typer.testing import CliRunner

from fedlin.cli import app
from fedlin.experiments.experiment_file import load
from fedlin.experiments.run_folder import RunFolder
from fedlin.result import Result
from realdata import ROOT, data_file

# Six runs in which everything is drawn at random: rows, clients, entries of messages.
GRID: dict[str, Any] = {
    "rounds": 400,
    "seeds": [0, 1, 2],
    "participation": 0.5,
    "checkpoint": 10,
    "measure": "grad_norm",
    "problem": {**SMALL["problem"], "minibatch": 2},
    "plan": {"tau": 2, "eta_bar": 0.001},
    "algorithm": [{"name": "fedlin", "uplink": "rand_k(2)"}, {"name": "scaffold"}],
}
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
from fedlin.cli import app
app(sys.argv[1:])
"""


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDLIN_DATA", raising=False)
    return tmp_path


def fedlin(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def measured(folder: Path) -> pd.DataFrame:
    """Everything but the clock."""
    return pd.read_parquet(folder / "metrics.parquet").drop(columns="seconds")


def begun(folder: Path, until: Callable[[], bool]) -> "subprocess.Popen[str]":
    """The grid in a process of its own, once `until` is true."""
    given = ["--resume", str(folder)] if folder.exists() else ["experiment.toml", "--out", str(folder)]
    process = subprocess.Popen(
        [sys.executable, "-m", "fedlin", "run", *given], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    limit = time.monotonic() + 120
    while not until() and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.002)
    return process


def finish(*given: str) -> str:
    """What the command prints, in a process of its own: one that has compiled much else may give other last bits."""
    done = subprocess.run([sys.executable, "-m", "fedlin", "run", *given], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.slow
def test_a_killed_grid_goes_on_and_measures_the_same_to_the_last_bit(inside: Path) -> None:
    """Ctrl-C in the first member, SIGKILL in the fourth, and the end is that of a grid left alone."""
    write(inside, **GRID)
    folder = inside / "killed"

    def finished() -> int:
        return len(list((folder / "runs").glob("*.npz")))

    first = begun(folder, lambda: (folder / "runs" / "0000.ckpt").exists())
    first.send_signal(signal.SIGINT)
    _, told = first.communicate(timeout=60)
    assert first.returncode == 130
    assert f"Go on with: fedlin run --resume {folder}" in told

    second = begun(folder, lambda: finished() >= 3 and bool(list((folder / "runs").glob("*.ckpt"))))
    second.kill()
    second.communicate(timeout=60)
    assert second.returncode == -signal.SIGKILL
    done = finished()
    assert 3 <= done < 6
    before = {path.name: path.stat().st_mtime_ns for path in (folder / "runs").glob("*.npz")}

    assert f"6 runs, {done} of them finished already" in finish("--resume", str(folder))
    for name, written in before.items():
        assert (folder / "runs" / name).stat().st_mtime_ns == written, "a finished member is not run again"
    assert not list((folder / "runs").glob("*.ckpt"))
    assert len(json.loads((folder / "environment.json").read_text())) == 3, "every session is on record"

    finish("experiment.toml", "--out", "whole")
    pd.testing.assert_frame_equal(measured(folder), measured(inside / "whole"), check_exact=True)
    for name in [f"{number:04d}.npz" for number in range(6)]:
        one, other = Result.load(folder / "runs" / name), Result.load(inside / "whole" / "runs" / name)
        np.testing.assert_array_equal(one.x, other.x)
        assert one.status == other.status


@pytest.mark.slow
def test_a_full_disk_stops_the_run_with_its_reason_and_it_can_go_on(inside: Path) -> None:
    write(inside, **{**GRID, "checkpoint": 400, "seeds": [0], "algorithm": [{"name": "fedavg"}]})
    limited = [sys.executable, "-c", LIMITED, "run", "experiment.toml", "--out", "full"]
    # Were the child's coverage measured, its record would meet the limit too.
    own = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    done = subprocess.run(limited, capture_output=True, text=True, check=False, env=own)
    assert done.returncode == 1
    assert "cannot write to full: File too large" in done.stderr
    assert "fedlin run --resume full" in done.stderr
    assert not list((inside / "full").rglob("*.part")), "nothing half written is left"
    assert fedlin("run", "--resume", "full")[0] == 0
    assert len(measured(inside / "full")) == 401


def test_a_run_leaves_everything_in_its_folder(inside: Path) -> None:
    tuning = {"low": 0.1, "high": 1.0, "count": 3, "extend": 0}
    changes: dict[str, Any] = {
        "seeds": [0, 1],
        "problem": {**SMALL["problem"], "alpha": [0.0, 1.0]},
        "plan": {"tau": 2, "eta_bar": "tuned", "tuning": tuning},
    }
    write(inside, **changes)
    code, out, err = fedlin("run", "experiment.toml", "--rounds", "40")
    assert (code, err) == (0, "")
    folder = inside / "runs" / "experiment"
    table = pd.read_parquet(folder / "metrics.parquet")
    assert len(table) == 4 * 41
    assert list(table.columns[:5]) == ["member", "algorithm", "seed", "problem.alpha", "round"]
    for member, result in RunFolder.open(folder).results():
        rows = table[table["member"] == member.number]
        np.testing.assert_array_equal(rows["gap"], result.gap)
        assert set(rows["problem.alpha"]) == {member.grid["problem.alpha"]}
    tried = pd.read_parquet(folder / "tuning.parquet")
    assert len(tried) == 2 * 3, "one search for each setting, shared by its seeds"
    assert tried["chosen"].sum() == 2
    (session,) = json.loads((folder / "environment.json").read_text())
    assert {"fedlin", "jax", "numpy", "python", "device", "platform", "date", "commit"} <= set(session)
    assert load(folder / "experiment.toml").experiment.rounds == 40
    page = (folder / "report" / "index.html").read_text(encoding="utf-8")
    assert "problem.alpha = 0.0" in page
    assert "Step sizes, tuned by one rule for all" in page
    assert str(Path("runs/experiment/report/index.html")) in out
    assert "tuned fedlin, problem.alpha = 0.0: eta_bar = " in out


def test_a_second_run_takes_a_new_folder_and_names_the_first(inside: Path) -> None:
    write(inside, rounds=2)
    fedlin("run", "experiment.toml")
    code, out, _ = fedlin("run", "experiment.toml")
    assert code == 0
    assert "`fedlin run --resume runs/experiment` goes on with it" in out
    assert (inside / "runs" / "experiment-2" / "metrics.parquet").is_file()


def test_two_folders_are_compared_where_their_problems_are_the_same(inside: Path) -> None:
    methods: dict[str, Any] = {"one": [{"name": "fedlin"}], "two": [{"name": "gradient_descent"}]}
    for name, algorithm in methods.items():
        changes: dict[str, Any] = {"rounds": 300, "targets": [1e-2, 1e-4], "algorithm": algorithm}
        write(inside, plan={"tau": 1, "eta": "strongly_convex"}, **changes)
        assert fedlin("run", "experiment.toml", "--out", name)[0] == 0
    code, out, _ = fedlin("report", "one", "two", "--out", "both", "--json")
    document = json.loads(out)
    assert code == 0
    found = {(row["method"], row["target"]): row for row in document["costs"]}
    assert {row["setting"] for row in document["costs"]} == {"least squares"}
    for target in (1e-2, 1e-4):
        # With one local step FedLin is gradient descent: the same rounds, for two messages each way instead of one.
        one, two = found["one: fedlin", target], found["two: gradient_descent", target]
        assert one["rounds"] == two["rounds"] > 0
        assert one["bytes"] == 2 * two["bytes"]
    assert (inside / "both" / "index.html").is_file()
    text = fedlin("report", "one", "two", "--out", "both")[1]
    assert "Fewest rounds: one: fedlin and two: gradient_descent" in text.replace("\n", " ").replace("  ", " ")


def test_another_problem_is_another_chapter(inside: Path) -> None:
    for name, dim in (("one", 3), ("two", 4)):
        write(inside, rounds=2, problem={**SMALL["problem"], "dim": dim})
        fedlin("run", "experiment.toml", "--out", name)
    fedlin("report", "one", "two", "--out", "both")
    assert (inside / "both" / "index.html").read_text(encoding="utf-8").count("<article") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name an experiment file"),
        (["none.toml"], "none.toml cannot be read: No such file or directory."),
        (["wrong.toml"], "wrong.toml: problem: no key is called 'alpa': did you mean 'alpha'?"),
        (["--resume", "theirs"], "theirs is not the folder of a run: it holds no experiment.toml."),
        (["--resume", "ran", "--out", "new"], "--out and --resume exclude each other"),
        (["--resume", "ran", "--rounds", "9"], "ran is of a run of 3 rounds, not 9"),
        (["other.toml", "--resume", "ran"], "ran is of another experiment: plan.eta_bar is 0.01 there and 0.02 here"),
        (["experiment.toml", "--out", "ran"], "ran holds a run: go on with it by `fedlin run --resume ran`"),
        (["experiment.toml", "--out", "theirs"], "theirs is not an empty folder"),
        (["experiment.toml", "--out", "theirs/file"], "theirs/file is not an empty folder"),
        (["experiment.toml", "--out", "theirs/file/new"], "cannot write to theirs/file/new: Not a directory"),
        (["experiment.toml", "--ray", "127.0.0.1:1"], "no Ray cluster answers at '127.0.0.1:1': [Errno 111]"),
        (["experiment.toml", "--ray", "127.0.0.1:99999"], "no Ray cluster answers at '127.0.0.1:99999'"),
    ],
)
def test_a_request_that_cannot_be_met_is_one_message_and_touches_nothing(
    inside: Path, arguments: list[str], message: str
) -> None:
    write(inside, rounds=3, plan={"tau": 2, "eta_bar": 0.02}).rename(inside / "other.toml")
    write(inside, problem={**SMALL["problem"], "alpa": 1.0}).rename(inside / "wrong.toml")
    RunFolder.create(inside / "ran", load(write(inside, rounds=3)))
    (inside / "theirs").mkdir()
    (inside / "theirs" / "file").write_text("mine")
    before = sorted(inside.rglob("*"))
    code, out, err = fedlin("run", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("fedlin: ")
    assert message in err
    assert sorted(inside.rglob("*")) == before


def test_a_terminal_of_ascii_alone_gets_every_line(inside: Path) -> None:
    write(inside, rounds=2)
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "fedlin", "run", "experiment.toml"]
    done = subprocess.run(command, capture_output=True, check=False, env=ascii_only)
    assert done.returncode == 0, done.stderr
    assert rb"\u2013" in done.stdout, "the dash of a target that was not reached"


def test_data_that_changed_since_are_told(inside: Path) -> None:
    write(inside, rounds=2, problem={"kind": "quadratic", "file": "q.npz"})
    A = np.stack([np.eye(2), 3 * np.eye(2)])
    np.savez(inside / "q.npz", A=A, b=np.ones((2, 2)))
    assert fedlin("run", "experiment.toml", "--out", "ran")[0] == 0
    assert fedlin("run", "--resume", "ran")[0] == 0, "nothing is left to do"
    np.savez(inside / "q.npz", A=A, b=np.zeros((2, 2)))
    code, _, err = fedlin("run", "--resume", "ran")
    assert code == 2
    assert "was made with other data" in err
    (inside / "q.npz").unlink()
    assert fedlin("report", "ran")[0] == 0, "a run is compared without its data"
    assert "q.npz" in fedlin("run", "--resume", "ran")[2]


def test_a_report_of_what_is_not_there_is_refused(inside: Path) -> None:
    RunFolder.create(inside / "fresh", load(write(inside)))
    assert "no run has finished yet" in fedlin("report", "fresh")[2]
    assert "is not the folder of a run" in fedlin("report", "nowhere")[2]


@pytest.mark.slow
def test_the_file_init_writes_runs_as_it_is(inside: Path) -> None:
    code, out, _ = fedlin("init", "mine.toml")
    assert (code, out) == (0, "Wrote mine.toml. Run it with: fedlin run mine.toml\n")
    assert "mine.toml exists already" in fedlin("init", "mine.toml")[2]
    assert "cannot write no/mine.toml: No such file or directory" in fedlin("init", "no/mine.toml")[2]
    code, out, err = fedlin("run", "mine.toml")
    assert (code, err) == (0, "")
    final = pd.read_parquet(inside / "runs" / "mine" / "metrics.parquet").groupby("algorithm")["gap"].min()
    assert final["fedlin"] <= 1e-11 < 1e-4 < final["fedavg"]


@pytest.mark.parametrize("what", ["algorithms", "problems", "compressors"])
def test_the_lists_say_the_same_as_text_and_as_json(what: str) -> None:
    items = json.loads(fedlin(what, "--json")[1])
    text = fedlin(what)[1]
    assert items
    for item in items:
        assert item["call"] in text
        assert item["summary"] in text
        assert item["reference"] in text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a9a", "mnist"])
def test_the_examples_run(inside: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """On the real data: its first method plays two rounds."""
    if name == "a9a":
        monkeypatch.setenv("FEDLIN_DATA", str(data_file("a9a.gz").parent))
    else:
        cache = inside / "cache"
        cache.mkdir()
        for file in ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"):
            (cache / file).write_bytes(data_file(file).read_bytes())
        monkeypatch.setenv("FEDLIN_CACHE", str(cache))
    text = (ROOT / "examples" / f"{name}.toml").read_text(encoding="utf-8")
    first = "[[algorithm]]".join(text.split("[[algorithm]]")[:2])
    (inside / "short.toml").write_text(first.replace('"tuned"', "0.1"))
    assert len(load(ROOT / "examples" / f"{name}.toml").runs) > 3
    code, _, err = fedlin("run", "short.toml", "--rounds", "2")
    assert (code, err) == (0, "")
    last = [result for _, result in RunFolder.open(inside / "runs" / "short").results()]
    assert all(run.gap[-1] < run.gap[0] for run in last)
    page = (inside / "runs" / "short" / "report" / "index.html").read_text(encoding="utf-8")
    assert "Rows of each client" in page
