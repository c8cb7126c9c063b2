"""Every example runs, shortened, without a warning."""

import re
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from realdata import data_file

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
NEEDS = {
    "compare": (),
    "new_algorithm": (),
    "new_compressor": (),
    "new_link": (),
    "new_wrapper": (),
    "federation": (),
    "jax_model": (),
    "flax_model": ("flax", "sklearn"),
    "equinox_model": ("equinox", "sklearn"),
    "torch_cnn": ("torch", "sklearn"),
    "mnist_cnn": ("torch",),
    "cifar10": (),
    "resnet18": ("flax",),
    "transformer": ("equinox",),
    "torch_networks": ("torch",),
}
SHORT = {
    "new_algorithm": ["--rounds", "50"],
    "new_compressor": ["--rounds", "50"],
    "new_link": ["--rounds", "20"],
    "new_wrapper": ["--rounds", "50"],
    "federation": ["--rounds", "10"],
    "jax_model": ["--rounds", "20"],
    "mnist_cnn": ["--rounds", "2", "--rows", "1000", "--picture", "mnist.png"],
    "cifar10": ["--rounds", "2", "--users", "4", "--cohort", "2", "--images", "20", "--test", "20"],
    "resnet18": ["--rounds", "1", "--clients", "2", "--cohort", "2", "--images", "2", "--batch", "2", "--width", "8"],
    "transformer": ["--rounds", "2", "--clients", "2", "--pieces", "20", "--depth", "1", "--adapters"],
    "torch_networks": ["--rounds", "2", "--clients", "2", "--images", "10", "--width", "8"],
}
SAYS = {
    "compare": "No method reaches gap 1e-06",
    "new_algorithm": "below its bound in all 50 rounds",
    "new_compressor": "bytes up of a client in a round: 18, where whole vectors take 400",
    "new_link": "EF-BV: gap",
    "new_wrapper": "refused: fedsplit needs to begin each round with the model",
    "federation": "ends at the same model",
    "jax_model": "fedavg: loss",
    "mnist_cnn": "scaffold MB",
    "cifar10": "random images of CIFAR-10's shape",
    "resnet18": "176,178 parameters, 2 of 2 clients",
    "transformer": "512 parameters travel",
    "torch_networks": "all clients at once",
}

pytestmark = pytest.mark.usefixtures("ordinary_promotion")


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(NEEDS)


def test_every_example_is_short_and_in_the_guide() -> None:
    guide = (ROOT / "docs" / "how-to.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `examples/(\S+)` \|", guide, flags=re.MULTILINE))
    scripts = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.py") if path.parts[-2] != "local"}
    assert listed == {name for name in scripts if not name.startswith("flower/")} | {"flower"}
    for name in scripts:
        assert (EXAMPLES / name).read_text(encoding="utf-8").count("\n") <= (120 if "notebooks" in name else 100), name


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
