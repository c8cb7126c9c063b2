"""Problems, methods and metrics of a user's own, named in a file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

import fedlin
from fedlin.errors import ArgumentError
from fedlin.experiments.compare_folders import compare_folders
from fedlin.experiments.execute import execute
from fedlin.experiments.experiment_file import load
from fedlin.experiments.prepare import prepare
from fedlin.experiments.run_folder import RunFolder

MODEL = """
import fedlin
from beside import scale

def problem(dim=3, alpha=1.0):
    return fedlin.problems.least_squares(clients=3, dim=dim, samples=10, alpha=scale * alpha)

def nothing():
    return 3

def broken():
    return 1 / 0
"""
METHOD = """
import fedlin

def careful(beta):
    return fedlin.fedprox(beta)
"""
METRIC = """
import numpy as np

def recall(model, X, y):
    hits = X @ model > 0
    return np.mean(hits[y > 0]) if np.any(y > 0) else np.nan
"""


def study(folder: Path, **changes: Any) -> Path:
    for name, text in {"model": MODEL, "mine": METHOD, "measures": METRIC, "beside": "scale = 2.0\n"}.items():
        (folder / f"{name}.py").write_text(text)
    content = {
        "rounds": 5,
        "problem": {"python": "model.py:problem", "alpha": [1.0, 5.0]},
        "plan": {"tau": 2, "eta": 0.01},
        "algorithm": [{"python": "mine.py:careful", "beta": [0.1, 1.0]}, {"name": "fedlin"}],
        **changes,
    }
    path = folder / "study.toml"
    path.write_text(tomli_w.dumps(content))
    return path


def played(folder: Path, **changes: Any) -> RunFolder:
    loaded = load(study(folder, **changes))
    opened = RunFolder.create(folder / "run", loaded)
    execute(opened, prepare(loaded), say=lambda line: None)
    return opened


def test_own_problems_and_methods_run_with_grids_of_their_arguments(tmp_path: Path) -> None:
    runs = list(played(tmp_path).results())
    assert [(run.label, run.setting) for run, _ in runs[:3]] == [
        ("careful(beta=0.1)", {"problem.alpha": 1.0}),
        ("careful(beta=1.0)", {"problem.alpha": 1.0}),
        ("fedlin", {"problem.alpha": 1.0}),
    ]
    problem = fedlin.problems.least_squares(clients=3, dim=3, samples=10, alpha=10.0)
    wanted = fedlin.simulate(fedlin.fedprox(0.1), problem, fedlin.Plan(2, 0.01), 5)
    np.testing.assert_array_equal(runs[3][1].x, wanted.x)
    # The stored file means the same from anywhere.
    again = RunFolder.open(tmp_path / "run")
    assert [str(run) for run in again.file.runs] == [str(run) for run, _ in runs]


@pytest.mark.parametrize("changed", ["model.py", "mine.py", "beside.py"])
def test_a_run_is_not_resumed_with_other_code(tmp_path: Path, changed: str) -> None:
    folder = played(tmp_path)
    with (tmp_path / changed).open("a") as file:
        file.write("\n# another version\n")
    with pytest.raises(ArgumentError, match=rf"other code: .*{changed} has changed"):
        execute(folder, prepare(folder.file), say=lambda line: None)


def test_own_metrics_are_columns_and_in_the_table(tmp_path: Path) -> None:
    rows = {"clients": 3, "dim": 2, "samples": 40}
    folder = played(
        tmp_path,
        metrics={"recall": "measures.py:recall"},
        problem={"kind": "logistic", "l2": 0.1, "synthetic": rows, "test": 0.25},
        algorithm=[{"name": "fedlin"}],
    )
    ((planned, result),) = folder.results()
    (run,) = prepare(folder.file)
    assert run.built.rows is not None
    test = run.built.rows.test
    assert test is not None
    X, y = np.concatenate(test.X), np.concatenate(test.y)
    assert result.recall[-1] == np.mean((X @ result.x > 0)[y > 0])
    assert folder.held_out(planned)["metrics"]["recall_worst"] <= result.recall[-1]
    table = compare_folders([folder]).chapters[0].tables[1]
    assert table.title == "On rows nobody learned from"
    assert ("fedlin", "recall") in [row[:2] for row in table.rows]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"problem": {"python": "model.py:problm"}}, "did you mean 'problem'"),
        ({"problem": {"python": "model:problem"}}, "such as \"model.py:problem\""),
        ({"problem": {"python": "other.py:problem"}}, "other.py"),
        ({"problem": {"python": "model.py:problem", "dims": 3}}, r"takes \(dim, alpha\)"),
        ({"problem": {"python": "model.py:nothing"}}, "returned int: let it return a problem"),
        ({"problem": {"python": "model.py:broken"}}, "ZeroDivisionError"),
        ({"algorithm": [{"python": "mine.py:careful"}]}, "beta"),
        ({"algorithm": [{"python": "mine.py:careful", "name": "fedlin"}]}, "either name"),
        ({"metrics": {"recall": "measures.py:recall"}}, "held out"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_own_code_is_said(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(fedlin.errors.FedLinError, match=words):
        prepare(load(study(tmp_path, **changes)))


def test_a_file_that_does_not_run_is_named(tmp_path: Path) -> None:
    path = study(tmp_path)
    (tmp_path / "model.py").write_text("import nowhere_to_be_found\n")
    with pytest.raises(fedlin.errors.FedLinError, match=r"model.py cannot be run: ModuleNotFoundError"):
        prepare(load(path))
