"""The page on performance says what was measured, and what is measured is right."""

import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlin

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def benchmarks_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.delitem(sys.modules, "benchmarks", raising=False)


def test_the_page_is_written_from_the_measured_figures() -> None:
    from benchmarks.page import PAGE, read, write

    assert PAGE.read_text() == write(*read())


def test_the_picture_is_drawn_from_the_measured_figures(tmp_path: Path) -> None:
    from benchmarks import page, picture

    picture.save(page.read()[0]["race"]["rows"], tmp_path / "peers.svg")
    assert picture.FILE.read_bytes() == (tmp_path / "peers.svg").read_bytes()
    assert picture.FILE.stat().st_size < 100_000


@pytest.mark.parametrize(
    ("name", "method", "loss"),
    [
        ("FedLin", fedlin.fedlin(), "least squares"),
        ("FedAvg", fedlin.fedavg(), "logistic"),
        ("SCAFFOLD", fedlin.scaffold(), "logistic"),
    ],
)
def test_the_numpy_loop_that_judges_the_others_agrees_with_the_simulator(name: str, method: Any, loss: str) -> None:
    from benchmarks import reference
    from benchmarks.peers.contract import Task
    from benchmarks.peers.with_numpy import work_of

    draw = np.random.default_rng(0)
    X, tau = draw.standard_normal((3, 8, 4)), np.array([1, 4, 2])
    y = np.sign(draw.standard_normal((3, 8)))
    task = Task(loss, X, y, 0.1 if loss == "logistic" else 0.0, tau, 0.05 / tau)
    problem: fedlin.problems.Problem = (
        fedlin.problems.logistic(X, y, l2=0.1) if loss == "logistic" else fedlin.problems.regression(X, y)
    )
    expected = fedlin.simulate(method, problem, fedlin.Plan(task.tau, task.eta), 5).x
    found = next(islice(reference.METHODS[name](work_of(task), np.zeros(4)), 4, None))
    np.testing.assert_allclose(found, expected, rtol=1e-11)


def test_who_could_not_be_installed_or_failed_stands_in_the_table_with_the_reason() -> None:
    from benchmarks.cpu_page import race_rows, verdict

    figure = {"median": 1.0, "low": 0.5, "high": 2.0}
    ran = {"ratio": figure, "first": figure, "peak": figure, "distance": 1.0, "right": False, "version": "1"}
    about = {"method": "FedAvg", "own steps": False, "missing": ""}
    own = {"title": "fedlin", "peer": False, **about, "W1": ran, "W2": ran}
    gone = {"title": "gone", "peer": True, **about, "missing": "no wheel", "W1": {"failed": ""}, "W2": {"failed": ""}}
    half = {"title": "half", "peer": True, **about, "W1": ran, "W2": {"failed": "out of memory"}}
    rows = [" ".join(row) for row in race_rows([own, gone, half])]
    assert "could not be installed: no wheel" in rows[1]
    assert "failed: out of memory" in rows[2]
    assert "**wrong**" in rows[2]
    assert verdict([own, gone]) == "No other package could be run."


def test_a_line_is_found_and_what_leaves_it_is_told() -> None:
    from benchmarks.growth import line

    sizes = [1.0, 10.0, 100.0, 1000.0]
    straight = line(sizes, [2 + 3 * size for size in sizes])
    assert straight == pytest.approx({"offset": 2, "slope": 3, "above": 1, "below": 1})
    assert line(sizes, [size**2 for size in sizes])["above"] > 2


def test_a_process_gives_its_figures_its_memory_and_its_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import process
    from benchmarks.process import FailedError, run

    monkeypatch.setattr(process, "SHARE", 1.0)  # on a busy machine looks would else be further apart than a second
    held = np.ones(20_000_000)  # by this process, so not to be counted as another one's
    own = "import json; from benchmarks.process import peak; print(json.dumps({'peak': peak()}))"
    assert run([sys.executable, "-c", own])["peak"] < held.nbytes
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]]); print('{\"peak\": 1}')"
    hold = "import time; held = b'x' * 200_000_000; time.sleep(1)"
    assert run([sys.executable, "-c", child, hold])["peak"] > 200_000_000
    with pytest.raises(FailedError, match="ValueError: so it ends"):
        run([sys.executable, "-c", "raise ValueError('so it ends')"])
