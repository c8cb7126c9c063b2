"""What the README and the pages for users tell to type runs: Python as it stands, commands in a fresh folder."""

import os
import re
import shlex
import subprocess
import sys
from glob import glob
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedlin.cli import app
from pages import PAGES, ROOT, blocks, commands, name, prose

README = ROOT / "README.md"
RUN = [README, *(ROOT / "docs" / f"{page}.md" for page in ("data", "how-to", "index", "models"))]
SNIPPETS = [
    pytest.param(text, id=f"{name(page)} {number}")
    for page in RUN
    for number, text in enumerate(blocks(page, "python"))
]
# What makes a command of the README short; the others are quick as they are.
SHORTER = {
    "fedlin reproduce --quick": ["--draws", "1", "--out", "report"],
    "fedlin run experiment.toml": ["--rounds", "3"],
    "fedlin advise": ["--check", "0"],
}
# What changes the user's shell, takes several processes or goes on until it is ended: these have tests of their own.
NOT_HERE = (
    "fedlin --install-completion",
    "fedlin federation start",
    "fedlin federation status",
    "fedlin federation logs",
    "fedlin federation watch",
)


@pytest.mark.parametrize("text", SNIPPETS)
def test_snippet_runs(text: str) -> None:
    """The snippet runs as it stands, on its own."""
    if "import torch" in text:
        pytest.importorskip("torch")
    exec(compile(text, "snippet", "exec"), {"__name__": "snippet"})


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_make_commands_are_targets(page: Path) -> None:
    """Every make command a page names is a target of the Makefile."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"`make ([a-z-]+)", prose(page)))
    named |= {line.split()[1] for line in commands(page) if line.startswith("make ")}
    assert page != README or {"reproduce", "test", "docs"} <= named
    for target in named:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


@pytest.mark.slow
def test_commands_of_the_readme_run_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The experiment file is made small once it is written; everything else is typed as it stands there."""
    monkeypatch.chdir(tmp_path)
    typed = [line for line in commands(README) if line.startswith("fedlin ") and not line.startswith(NOT_HERE)]
    assert {line.split()[1] for line in typed} == {"reproduce", "init", "run", "report", "advise", "federation"}
    for line in typed:
        if line.startswith("fedlin federation") and find_spec("nvflare") is None:
            continue
        arguments = [place for word in shlex.split(line)[1:] for place in (sorted(glob(word)) or [word])]
        extra = next((more for start, more in SHORTER.items() if line.startswith(start)), [])
        result = CliRunner().invoke(app, [*arguments, *extra])
        assert result.exit_code == 0, f"{line}: {result.output}\n{result.exception!r}"
        if line == "fedlin init":
            _make_small(Path("experiment.toml"))
    assert (tmp_path / "federation" / "federation.toml").is_file() or find_spec("nvflare") is None


def _make_small(file: Path) -> None:
    text = file.read_text(encoding="utf-8").replace("[0.1, 10.0]", "10.0").replace('"tuned"', "1e-4")
    first, *methods = text.split("[[algorithm]]")
    file.write_text("[[algorithm]]".join([first, methods[0], methods[2]]), encoding="utf-8")


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name)
def test_commands_and_their_options_exist(page: Path) -> None:
    for line in commands(page):
        words = shlex.split(line)
        if words[0] != "fedlin":
            assert words[0] in ("make", "pip", "python", "mlflow", "tensorboard"), line
            continue
        path = [word for word in words[1:3] if word.isalpha()][: 2 if words[1] == "federation" else 1]
        told = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200"})
        assert told.exit_code == 0, f"{line}: {told.output}"
        for option in (word for word in words if word.startswith("--")):
            assert option.split("=")[0] in told.output, f"{line}: no {option}"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell: str) -> None:
    """The script a shell sources, and what it is then told."""
    environment = {"_FEDLIN_COMPLETE": f"source_{shell}"}
    script = CliRunner().invoke(app, [], prog_name="fedlin", env=environment).output
    assert "_FEDLIN_COMPLETE" in script
    words = {"COMP_WORDS": "fedlin re", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "fedlin re"}
    environment = {"_FEDLIN_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args", **words}
    assert "reproduce" in CliRunner().invoke(app, [], prog_name="fedlin", env=environment).output


def test_completion_is_shown_and_installed_for_the_shell_that_asks(tmp_path: Path) -> None:
    """As a user of bash would, with a home of its own."""
    environment = {**os.environ, "HOME": str(tmp_path)}

    def typed(option: str) -> str:
        line = ["bash", "-c", f'"{sys.executable}" -m fedlin {option}; exit $?']  # no exec, so that bash is seen
        return subprocess.run(line, env=environment, capture_output=True, text=True, check=True).stdout

    script = typed("--show-completion")
    assert "complete -o default -F _fedlin_completion fedlin" in script
    assert "restart the terminal" in typed("--install-completion")
    installed = tmp_path / ".bash_completions" / "fedlin.sh"
    assert installed.read_text().strip() == script.strip()
    assert str(installed) in (tmp_path / ".bashrc").read_text()
