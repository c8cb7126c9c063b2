"""The wheel and the source distribution: what is in them, and that each works alone in a clean environment."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from bare_features import FEATURES
from pages import ROOT

pytestmark = pytest.mark.long

TESTS = ROOT / "tests"
LARGEST = 1_000_000  # bytes a file of ours may have; nothing here is data
TEN_LINES = """
import fedlin

problem = fedlin.problems.least_squares(clients=20, dim=100, samples=500, alpha=10.0, seed=0)
tau = fedlin.draw_steps(problem.clients, 2, 50, seed=0)
plan = fedlin.theory.strongly_convex(problem, tau)
result = fedlin.simulate(fedlin.fedlin(), problem, plan, rounds=50)
assert result.gap[-1] < result.gap[0]
print(result)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both, the wheel made from the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], check=True)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


def tracked(*places: str) -> set[str]:
    """The files of the repository, without those for tools of its developers, whose names begin with a dot."""
    listed = subprocess.run(["git", "ls-files", *places], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in listed.stdout.splitlines() if not name.startswith(".")}


def test_the_wheel_holds_the_package_and_nothing_else(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        sizes = {info.filename: info.file_size for info in wheel.infolist()}
    ours = {name for name in sizes if ".dist-info/" not in name}
    assert ours == {name.removeprefix("src/") for name in tracked("src")}
    assert {"fedlin/py.typed", "fedlin/report/page.html", "fedlin/report/page.css", "fedlin/report/page.js"} <= ours
    assert max(sizes.values()) < LARGEST


def test_the_sdist_holds_the_repository(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as sdist:
        sizes = {member.name.partition("/")[2]: member.size for member in sdist.getmembers()}
    assert set(sizes) - {"PKG-INFO", ".gitignore"} == tracked()
    assert max(sizes.values()) < LARGEST


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_it_works_alone(kind: str, built: dict[str, Path], tmp_path: Path) -> None:
    """From an empty folder, with the pinned versions of its dependencies and no extra."""
    home, work = tmp_path / "venv", tmp_path / "empty"
    work.mkdir()
    own = {"PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}", "FEDLIN_CACHE": "", "PYTHONPATH": ""}

    def call(*command: str) -> str:
        done = subprocess.run(command, cwd=work, env={**os.environ, **own}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
        return done.stdout

    python = str(home / "bin" / "python")
    call(sys.executable, "-m", "venv", str(home))
    call(python, "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), str(built[kind]))
    assert Path(call(python, "-c", "import fedlin; print(fedlin.__file__)")).is_relative_to(home)
    assert call("fedlin", "--version") == call(python, "-m", "fedlin", "--version")
    assert "reproduce" in call(python, "-m", "fedlin", "--help")
    assert "_FEDLIN_COMPLETE" in call("env", "_FEDLIN_COMPLETE=source_bash", "fedlin")
    assert "fedlin" in call(python, "-W", "error", "-c", TEN_LINES)
    call(python, str(TESTS / "helpers" / "bare_core.py"))
    told = json.loads(call(python, str(TESTS / "helpers" / "bare_features.py")))
    for feature, (extra, _) in FEATURES.items():
        assert f"pip install 'fedlin[{extra}]'" in told[feature]
    call("fedlin", "reproduce", "--quick")
    assert (work / "reports" / "reproduce" / "index.html").is_file()
