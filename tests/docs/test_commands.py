"""The commands that developers type: what each installs, and that none is left unnamed."""

import os
import re
import subprocess
import tomllib

from pages import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def dry_run(target: str, environment: str) -> str:
    """What make would do for a target in an environment that is not there yet."""
    command = ["make", "--no-print-directory", "--dry-run", target, f"VENV={environment}"]
    outer = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    return subprocess.run(command, cwd=ROOT, env=outer, capture_output=True, text=True, check=True).stdout


def test_reproducing_installs_the_core_alone_and_testing_completes_it() -> None:
    reproduce, test = (dry_run(target, "not-there") for target in ("reproduce", "test"))
    assert "--editable .\n" in reproduce
    assert "[test]" not in reproduce
    assert "--constraint constraints.txt" in reproduce
    assert reproduce.replace("not-there/bin/fedlin reproduce\n", "") in test, "the same environment, gone on with"
    assert "--editable '.[test]'" in test


def test_what_the_test_command_leaves_out_is_named_with_its_command() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"leaves out\n\n(\|.*?)\n\n", page, flags=re.DOTALL)
    targets = set(
        re.findall(r"^(test-[a-z]+|bench-[a-z]+|coverage|mutation|fuzz|bench):", MAKEFILE, flags=re.MULTILINE)
    )
    assert {f"make {target}" for target in targets - {"test-quick"}} == set(re.findall(r"`(make [a-z-]+)` \|", table))
    (left_out,) = re.findall(r'^test: lint\n.*-m "(?:not )([a-z]+)"$', MAKEFILE, flags=re.MULTILINE)
    markers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    assert f"the marker `{left_out}`" in table
    assert any(marker.startswith(f"{left_out}:") for marker in markers["markers"])
