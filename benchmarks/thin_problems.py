"""The two problems of `benchmarks.thin_links`, at five sites whose data differ, read from the folder FEDLIN_DATA."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import fedlin
from benchmarks.mnist_study import load
from fedlin.problems.problem import Problem

Array = NDArray[Any]
Table = dict[str, Any]
SITES = ("east", "middle", "north", "south", "west")
DATA = "FEDLIN_DATA"
HIDDEN, IMAGES = 16, 150  # units of the network, and images of each digit
L2 = 0.01


@dataclass(frozen=True)
class ThinProblem:
    """What is minimised, how far, and with which methods."""

    title: str
    build: Callable[[], Problem]  # of all sites, in the order of their names
    tau: int
    steps: tuple[float, ...]  # η_i, one of which each method gets
    methods: Mapping[str, Table]  # by the names of the page, as [algorithm] of federation.toml has them
    measure: str  # of a run's columns
    target: float
    most: int  # rounds of a method that does not get there
    experiment: str  # for `fedlin advise`

    def reached(self, values: Array) -> Array:
        """Where a measure is good enough."""
        return values >= self.target if self.measure == "accuracy" else values <= self.target


@cache
def incomes() -> Problem:
    """Logistic regression on a9a, the sites by age, which is in the first five columns."""
    table = fedlin.data.read(Path(os.environ[DATA]) / "a9a.gz", dim=123)
    X = table.X.toarray()
    parts = np.array_split(np.argsort(X[:, :5] @ np.arange(5.0), kind="stable"), len(SITES))
    return fedlin.problems.logistic([X[part] for part in parts], [table.y[part] for part in parts], l2=L2)


def scores(params: Any, images: Any) -> Any:
    """One hidden layer."""
    return jax.nn.relu(images @ params["first"] + params["first_bias"]) @ params["second"] + params["second_bias"]


def loss(params: Any, batch: Any) -> Any:
    """The mean cross-entropy."""
    found = jax.nn.log_softmax(scores(params, batch["images"]))
    return -jnp.mean(jnp.take_along_axis(found, batch["labels"][:, None], axis=1))


def accuracy(params: Any, batch: Any) -> Any:
    """The share of images whose digit has the highest score."""
    return jnp.mean(jnp.argmax(scores(params, batch["images"]), axis=1) == batch["labels"])


@cache
def images() -> tuple[dict[str, Array], ...]:
    """Images, as rows, and labels: to train on, to choose steps by, and to test on."""
    return tuple({**part, "images": part["images"].reshape(len(part["labels"]), -1)} for part in load())


@cache
def network(smoothness: float | None = None) -> Problem:
    """A network on MNIST, every digit at one site alone, two at each."""
    train, _, _ = images()
    digits = [[np.flatnonzero(train["labels"] == 2 * site + one)[:IMAGES] for one in (0, 1)] for site in range(5)]
    rows = np.stack([np.concatenate(pair) for pair in digits])
    draw = np.random.default_rng(0)
    params = {"first_bias": np.zeros(HIDDEN, np.float32), "second_bias": np.zeros(10, np.float32)}
    for name, shape in (("first", (784, HIDDEN)), ("second", (HIDDEN, 10))):
        params[name] = (draw.standard_normal(shape) * np.sqrt(2 / shape[0])).astype(np.float32)
    data = {name: values[rows] for name, values in train.items()}
    return fedlin.problems.from_loss(loss, params, data, smoothness=smoothness)


_EXPERIMENT = """\
rounds = 200
targets = [{target}]
measure = "{measure}"
[problem]
python = "{file}:{function}"
{arguments}
[plan]
tau = {tau}
eta_bar = 0.1
[[algorithm]]
name = "fedlin"
"""
_LINES = {"file": __file__, "tau": 10}


def _methods(k: int) -> dict[str, Table]:
    compressed = {"name": "compressed", "k": k}
    return {"FedAvg": {"name": "fedavg"}, "FedLin": {"name": "fedlin"}, "compressed FedLin": compressed}


PROBLEMS = {
    "a9a": ThinProblem(
        "logistic regression on a9a, 123 entries in float64",
        incomes,
        10,
        tuple(2.0**power for power in range(-5, 2)),
        _methods(24),
        "gap",
        1e-6,
        60,
        _EXPERIMENT.format(**_LINES, measure="gap", target=1e-6, function="incomes", arguments=""),
    ),
    "network": ThinProblem(
        f"a network on MNIST, {784 * HIDDEN + HIDDEN + HIDDEN * 10 + 10:,} entries in float32",
        network,
        10,
        (0.02, 0.05, 0.1, 0.2),
        _methods(636),
        "accuracy",
        0.8,
        60,
        # Accuracy is no measure of an experiment's targets; this is the loss of models that are about as good. The
        # steps are multiples of 1/L, and of a network's L there is but a guess.
        _EXPERIMENT.format(**_LINES, measure="loss", target=0.7, function="network", arguments="smoothness = 10.0"),
    ),
}
