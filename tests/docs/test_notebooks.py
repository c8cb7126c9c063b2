"""The notebooks run as plain scripts, shortened, and say what they are there to show."""

import re
import runpy
from typing import Any

import pytest

from fedlin.experiments.experiment_file import load
from fedlin.experiments.prepare import prepare
from pages import ROOT

NOTEBOOKS = ROOT / "examples" / "notebooks"
SHORT = {"paper_story": 60, "compression_study": 60, "privacy": 20, "hospitals": 100}

pytestmark = pytest.mark.usefixtures("ordinary_promotion")


def test_every_notebook_is_run() -> None:
    assert {path.stem for path in NOTEBOOKS.glob("*.py")} == set(SHORT)


def played(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("ROUNDS", str(SHORT[name]))
    return runpy.run_path(str(NOTEBOOKS / f"{name}.py"))


@pytest.mark.parametrize("name", SHORT)
def test_cells_are_marked_as_jupytext_reads_them(name: str) -> None:
    text = (NOTEBOOKS / f"{name}.py").read_text(encoding="utf-8")
    header, *cells = text.split("# %%")
    assert "formats: py:percent" in header
    assert len(cells) >= 4
    for cell in cells:
        if cell.startswith(" [markdown]"):
            assert all(not line or line.startswith("#") for line in cell.splitlines()[1:])


@pytest.mark.slow
def test_the_papers_story(monkeypatch: pytest.MonkeyPatch) -> None:
    """FedAvg is at its own limit, FedLin below its bound (asserted inside), and changes beat error feedback."""
    found = played("paper_story", monkeypatch)
    assert abs(found["result"].x - found["limit"])[0] < abs(found["result"].x - found["problem"].minimizer)[0]
    assert found["linear"].gap[-1] < 1e-5 * found["linear"].gap[0]
    assert found["run"].distance[-1] < 1e-4, "changes of gradients reach x*"


@pytest.mark.slow
def test_the_compression_study(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Whole messages win where features have equal scales, small ones where they do not."""
    played("compression_study", monkeypatch)
    sent = [float(amount) for amount in re.findall(r"([\d.]+) MB", capsys.readouterr().out)]
    even_whole, even_small, uneven_whole, uneven_small = sent
    assert even_whole < even_small
    assert uneven_small < uneven_whole


@pytest.mark.slow
def test_privacy(monkeypatch: pytest.MonkeyPatch) -> None:
    """FedAvg is nearer at small ε; at large ε FedLin is, which has no bias of its own."""
    errors = played("privacy", monkeypatch)["errors"]
    assert errors["FedAvg"][0] < errors["FedLin"][0]
    assert errors["FedLin"][-1] < errors["FedAvg"][-1]


@pytest.mark.slow
def test_the_hospitals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model from hospitals apart is as good as that from all rows in one place, and the file beside it is right."""
    found = played("hospitals", monkeypatch)
    assert abs(found["ours"] - found["theirs"]) <= 0.005
    assert len(prepare(load(found["folder"] / "hospitals.toml"))) == 2
