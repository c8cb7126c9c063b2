"""Wrong inputs that once ended in a traceback, given again: what each says now."""

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import fedlin
from benchmarks.tables import table
from fedlin.sklearn import FederatedLogisticRegression

STUDY = """
rounds = {rounds}
[problem]
kind = "least_squares"
clients = {clients}
dim = 4
samples = 10
[plan]
eta = 0.01
[[algorithm]]
name = "fedlin"
"""
DRAW = np.random.default_rng(0)
X, LABELS = DRAW.standard_normal((3, 20, 2)), np.where(DRAW.random((3, 20)) < 0.5, -1.0, 1.0)
FLAT, SIGNS = X.reshape(-1, 2), LABELS.reshape(-1)


def run_file(rounds: int = 3, clients: int = 3, **settings: str) -> str:
    """Exit status of `fedlin run`, what it says last, and whether it left a folder behind."""
    with tempfile.TemporaryDirectory() as home:
        Path(home, "study.toml").write_text(STUDY.format(rounds=rounds, clients=clients))
        command = [sys.executable, "-m", "fedlin", "run", "study.toml"]
        done = subprocess.run(command, cwd=home, capture_output=True, check=False, env={**os.environ, **settings})
        words = (done.stderr if done.returncode else done.stdout).decode().strip()
        left = "" if done.returncode == 0 or not Path(home, "runs").exists() else ", **a folder left behind**"
    if "Traceback" in words:
        return f"status {done.returncode}, **a traceback**{left}"
    said = f": {words}" if done.returncode else f", {len(words.splitlines())} lines of output"
    return f"status {done.returncode}{said}{left}"


def pickled() -> str:
    """Whether a fitted estimator is the same after the journey."""
    model = FederatedLogisticRegression().fit(FLAT, SIGNS, clients=3)
    again = pickle.loads(pickle.dumps(model))
    return "the same predictions" if np.array_equal(again.predict(FLAT), model.predict(FLAT)) else "**others**"


def steps() -> Any:
    """As many rounds as cannot be counted."""
    return fedlin.simulate(fedlin.fedlin(), fedlin.problems.logistic(X, LABELS, 0.1), fedlin.Plan(1, 0.1), 2**31)


def vector_loss() -> Any:
    """A loss with an entry for every row where one number is asked for."""
    rows = jnp.asarray(FLAT)
    return fedlin.problems.from_loss(lambda params, batch: jnp.stack([params[0], params[0]]), np.zeros(2), [rows, rows])


CASES: dict[str, Callable[[], Any]] = {
    "`simulate` for 2³¹ rounds": steps,
    "a file of 2³¹ rounds": lambda: run_file(rounds=2**31),
    "a file of 10⁸ clients": lambda: run_file(clients=10**8),
    "NaN among the clients of an estimator": lambda: FederatedLogisticRegression().fit(
        FLAT, SIGNS, clients=np.r_[np.nan, np.ones(len(SIGNS) - 1)]
    ),
    "NaN in a column of clients": lambda: fedlin.data.by_column(np.r_[np.nan, 1.0]),
    "a loss that is not a scalar": vector_loss,
    "strings for features": lambda: fedlin.problems.logistic([[["a", "b"]]], [[1.0]]),
    "strings for labels": lambda: fedlin.problems.logistic(X[:1, :2], [["yes", "no"]]),
    "features × 10²⁰⁰": lambda: fedlin.problems.logistic(1e200 * X, LABELS),
    "an estimator, pickled and back": pickled,
    "`fedlin run` in a C locale": lambda: run_file(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"),
}


def measure() -> dict[str, str]:
    """What every case says now."""
    messages = {}
    for name, case in CASES.items():
        try:
            answer = case()
            messages[name] = answer if isinstance(answer, str) else "**nothing is said**"
        except fedlin.FedLinError as error:
            messages[name] = f"{type(error).__name__}: {error}"
        except Exception as error:
            messages[name] = f"**a traceback**, {type(error).__name__}"
    return messages


def write(messages: dict[str, str]) -> str:
    """As a table."""
    return table(("", "now"), [(name, " ".join(said.replace("|", "\\|").split())) for name, said in messages.items()])
