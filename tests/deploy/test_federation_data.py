"""Real data at four sites over NVIDIA FLARE: processes of their own, mutual TLS. Run by `make test-long`."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")
pytest.importorskip("torch", reason="needs PyTorch: pip install 'fedlin[torch]'")

import torch

import fedlin
from fedlin.deploy.project import Project, create
from fedlin.deploy.settings import NAME, read_settings
from fedlin.deploy.status import lines
from local_flare import free_port
from realdata import DATA, data_file
from site_data import SITES, adults, classification, digits, mnist, network

pytestmark = pytest.mark.long
STEPS = {"east": 2, "north": 4, "south": 6, "west": 8}
MNIST = """\
from site_data import SITES, classification, digits

ROWS = digits()[SITES.index("{name}")]
WEIGHT = float(len(ROWS))


def problem():
    return classification([ROWS])
"""
A9A = """\
import fedlin
from site_data import SITES, adults

X, Y = adults()[SITES.index("{name}")]
WEIGHT = float(len(Y))


def problem():
    return fedlin.problems.logistic([X], [Y], l2=0.01)
"""


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sites' processes import what the tests do, and find the data."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv(DATA, str(data_file("a9a.gz").parent))


def federation(folder: Path, client: str, run: str, eta_bar: float) -> Project:
    """Four sites with this client.py, FedLin, and η_i = η̄/τ_i."""
    project = create(folder, SITES, "localhost", free_port())
    sites = "\n".join(f"{name} = {{ tau = {tau}, eta = {eta_bar / tau!r} }}" for name, tau in STEPS.items())
    (folder / NAME).write_text(f'[run]\n{run}\n[algorithm]\nname = "fedlin"\n[sites]\n{sites}\n')
    for name in SITES:
        (project.site(name) / "client.py").write_text(client.format(name=name))
    return project


def train(project: Project) -> NDArray[Any]:
    """The model of `fedlin federation start --local`."""
    begun = time.monotonic()
    command = [sys.executable, "-m", "fedlin", "federation", "start", "--local", str(project.folder)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert said.returncode == 0, said.stdout + said.stderr
    rounds = [line for line in lines(project.server) if "event" not in line]
    print(f"{rounds[-1]['round']} rounds in {rounds[-1]['seconds']:.1f} s, {time.monotonic() - begun:.1f} s in all")
    return np.asarray(np.load(project.server / "model.npy"))


def accuracy(problem: Any, x: NDArray[Any]) -> float:
    """The share of held-out images that the network gets right."""
    images, labels = mnist()
    model = network()
    model.load_state_dict(problem.state_dict(x))
    with torch.no_grad():
        return float((model(torch.from_numpy(images[::5])).argmax(1).numpy() == labels[::5]).mean())


def test_a_network_learns_as_in_the_simulator(tmp_path: Path) -> None:
    problem = classification(digits())
    project = federation(tmp_path / "federation", MNIST, 'rounds = 20\nstart = "start.npy"', eta_bar=0.5)
    np.save(project.folder / "start.npy", problem.start)
    x = train(project)
    told = read_settings(project.folder)
    simulated = fedlin.simulate(told.algorithm, problem, told.plan, told.rounds, weights=problem.row_counts)
    shares = accuracy(problem, x), accuracy(problem, simulated.x)
    print(
        f"test accuracy {shares[0]:.4f}, simulated {shares[1]:.4f}, models differ by {abs(x - simulated.x).max():.1e}"
    )
    assert x.dtype == np.float32
    np.testing.assert_allclose(x, simulated.x, atol=1e-5)
    assert abs(shares[0] - shares[1]) <= 0.001
    assert shares[0] > 0.7


def test_logistic_regression_reaches_its_minimiser(tmp_path: Path) -> None:
    project = federation(tmp_path / "federation", A9A, "rounds = 300\ndim = 123", eta_bar=2.0)
    x = train(project)
    X, y = zip(*adults(), strict=True)
    problem = fedlin.problems.logistic(X, y, l2=0.01).weighted([len(labels) for labels in y])
    bound = np.array([line["gradient"] ** 2 / (2 * 0.01) for line in lines(project.server) if "event" not in line])
    print(
        f"gap {problem.gap(x):.2e}, told by the log: {bound[-1]:.2e}; at most 1e-8 in round {np.argmax(bound <= 1e-8)}"
    )
    assert problem.gap(x) <= bound[-1] <= 1e-8
