"""Every example runs, shortened, and every snippet of the guide to one's own models, without a warning."""

import re
import runpy
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import jax
import pytest

from realdata import data_file

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
GUIDE = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", GUIDE, flags=re.DOTALL)
NEEDS = {
    "compare": (),
    "new_algorithm": (),
    "jax_model": (),
    "flax_model": ("flax", "sklearn"),
    "equinox_model": ("equinox", "sklearn"),
    "torch_cnn": ("torch", "sklearn"),
    "mnist_cnn": ("torch",),
}
SHORT = {
    "new_algorithm": ["--rounds", "50"],
    "jax_model": ["--rounds", "20"],
    "mnist_cnn": ["--rounds", "2", "--rows", "1000", "--picture", "mnist.png"],
}
SAYS = {
    "compare": "scaffold",
    "new_algorithm": "below its bound in all 50 rounds",
    "jax_model": "fedavg: loss",
    "mnist_cnn": "scaffold MB",
}


@pytest.fixture(autouse=True)
def ordinary_promotion(strict_promotion: None) -> Iterator[None]:
    """Examples are written for users, who have JAX's ordinary rules."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(NEEDS)


@pytest.mark.parametrize("name", NEEDS)
def test_example(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = [package for package in NEEDS[name] if find_spec(package) is None]
    if missing:
        pytest.skip(f"{missing[0]} is not installed")
    if name == "mnist_cnn":
        monkeypatch.setenv("FEDLIN_DATA", str(data_file("t10k-images-idx3-ubyte.gz").parent))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *SHORT.get(name, ["--rounds", "2"])])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert SAYS.get(name, "accuracy 0.") in capsys.readouterr().out
    assert (tmp_path / "mnist.png").exists() == (name == "mnist_cnn")


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippet(number: int) -> None:
    if "import torch" in SNIPPETS[number]:
        pytest.importorskip("torch")
    exec(compile(SNIPPETS[number], f"snippet {number} of the guide", "exec"), {"__name__": "snippet"})
