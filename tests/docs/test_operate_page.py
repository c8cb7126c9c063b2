"""The operator's handbook says what was measured, and its commands and units are those that there are."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedlin.cli import app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
UNITS = sorted((ROOT / "examples" / "operate").glob("*.service"))


@pytest.mark.parametrize(
    ("results", "module"),
    [("recovery", "federation_recovery"), ("calls", "federation"), ("scale", "federation_scale")],
)
def test_the_tables_are_written_from_what_was_measured(
    results: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("psutil", reason="comes with fedlin[flare]")
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.delitem(sys.modules, "benchmarks", raising=False)
    from benchmarks import operate_page

    assert import_module(f"benchmarks.{module}").table(operate_page.read(results)) in PAGE


@pytest.mark.parametrize("page", ["operate.md", "federation.md", "deploy.md"])
def test_every_test_named_is_there(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert named or page == "deploy.md"
    for path, function in named:
        sought = f"def {function}(" if function else "def test_"
        assert sought in (ROOT / path).read_text(encoding="utf-8"), (path, function)


def test_every_command_named_is_there() -> None:
    named = set(re.findall(r"fedlin federation ([a-z]+)", PAGE))
    listed = CliRunner().invoke(app, ["federation", "--help"]).output
    assert {"add", "remove", "renew", "run", "watch", "status", "readmit", "audit"} <= named
    for command in named:
        assert re.search(rf"^\s+{command}\s", listed, re.MULTILINE), command


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_understands_the_units(unit: Path, tmp_path: Path) -> None:
    """And the command of each is one of ours."""
    text = unit.read_text(encoding="utf-8")
    (command,) = re.findall(r"^ExecStart=/opt/fedlin/bin/fedlin federation (\w+)", text, re.MULTILINE)
    assert command in ("join", "watch")
    if (analyze := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd-analyze is not here")
    place = tmp_path / unit.name.replace("@.", "@north.")
    place.write_text(text.replace("/opt/fedlin/bin/fedlin", sys.executable), encoding="utf-8")
    done = subprocess.run([analyze, "verify", str(place)], capture_output=True, text=True, check=False, timeout=60)
    said = [line for line in done.stderr.splitlines() if unit.name.split(".")[0] in line]
    assert not said, said


def test_the_recipe_of_the_container_copies_what_is_there_and_ends_in_a_command_of_ours() -> None:
    text = (ROOT / "examples" / "operate" / "Containerfile").read_text(encoding="utf-8")
    copied = [name for line in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE) for name in line.split()]
    assert {"pyproject.toml", "src"} <= set(copied)
    assert all((ROOT / name).exists() for name in copied)
    (extra,) = re.findall(r"'/src\[(\w+)\]'", text)
    assert (
        extra
        in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    )
    (entry,) = re.findall(r"^ENTRYPOINT (.+)$", text, re.MULTILINE)
    assert json.loads(entry) == ["fedlin", "federation", "join", "/kit"]
