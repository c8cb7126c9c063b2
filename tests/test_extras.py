"""Extras are optional: without any of them the core works, and what needs one says which to install."""

import json
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from bare import closure, modules
from bare_features import FEATURES
from lowest import PROJECT

HELPERS = Path(__file__).parent / "helpers"
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
FOR_DEVELOPERS = {"docs", "mutation", "test"}


def bare(script: str, folder: Path) -> str:
    """What a script prints where only fedlin's own dependencies can be imported."""
    command = [sys.executable, "-W", "error", str(HELPERS.parent / "tools" / "bare.py"), str(HELPERS / script)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_dependencies_bring_no_extra() -> None:
    allowed, installed = modules(closure(PROJECT["dependencies"])), packages_distributions()
    extra = {"torch", "nvflare", "ray", "flwr", "tensorboardX", "mlflow", "optax", "psutil", "pytest"}
    assert {"jax", "pandas", "sklearn", "typer"} <= allowed
    assert not extra & allowed
    assert "pytest" in installed, "so the names of modules are the names this Python knows"


def test_the_core_works_without_extras(tmp_path: Path) -> None:
    assert "fedlin" in bare("bare_core.py", tmp_path)


def test_every_extra_has_a_feature_here() -> None:
    assert {extra for extra, _ in FEATURES.values()} == set(EXTRAS) - FOR_DEVELOPERS


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    found: dict[str, str] = json.loads(bare("bare_features.py", tmp_path_factory.mktemp("features")))
    return found


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_names_its_extra(feature: str, told: dict[str, str]) -> None:
    assert f"pip install 'fedlin[{FEATURES[feature][0]}]'" in told[feature]
