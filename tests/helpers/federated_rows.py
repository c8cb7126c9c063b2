"""One federation for each method, all over one transport: what a real carrier must bring to the same models.

`federated_rows.py FOLDER` runs them all in one process, and holds them to the simulator.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedlin
from contract import Row
from fedlin.core import Algorithm
from fedlin.deploy.runs import conclude
from fedlin.engines.simulation.run import prepare_run
from fedlin.plan import Plan
from fedlin.problems.problem import Problem
from fedlin.transports.loopback import Loopback
from fedlin.transports.transport import Handler, Transport
from method_rows import ROWS
from quadratics import X0, A, B
from routed import Routed, by_name

NAMES = ("alpha", "beta", "gamma")
ROUNDS = 10
SEED = 1
MODELS = "models.npz"


def chosen() -> list[Row]:
    """The first row of every method, and FedLin with TOP-k both ways."""
    first = {row.method: row for row in reversed(ROWS)}
    both = next(row for row in ROWS if {"uplink", "downlink"} <= row.arguments.keys())
    return [*first.values(), both]


def problem() -> Problem:
    """Three of the seven quadratics."""
    return fedlin.problems.quadratic(A[:3], B[:3])


def plan(row: Row) -> Plan:
    """The row's own, for the first three clients."""
    whole = row.plan(fedlin.problems.quadratic(A, B))
    return Plan(*(part[:3] if part.ndim else part for part in (whole.tau, whole.eta)))


def algorithm(row: Row) -> Algorithm[Any, Any]:
    """With the numbers a method takes from the problem in place, since no single site knows them."""
    counts = {name: len(NAMES) for name in ("clients", "cohort") if name in row.arguments}
    made = replace(row, arguments={**row.arguments, **counts}).algorithm()
    member = prepare_run(made, problem(), plan(row), 1, seed=0, x0=X0, participation=1.0, weights=None, stop=None)
    assert made.recipe is not None
    return made.recipe.with_numbers(member.numbers)


def serve_rows(transport: Transport, folder: str, job: str = "", methods: Sequence[str] | None = None) -> None:
    """The server: one run after the other, of these methods or of all, every model kept."""
    models: dict[str, Any] = {}
    for number, row in enumerate(chosen()):
        if methods is not None and row.method not in methods:
            continue
        seen: list[NDArray[Any]] = []

        def keep(played: int, x: NDArray[Any], measures: Any, seen: list[NDArray[Any]] = seen) -> None:
            seen.append(np.array(x))

        carrier = Routed(transport, str(number))
        settings: dict[str, Any] = {"x0": X0, "seed": SEED, "secret": b"", "expect": NAMES}
        fedlin.serve(algorithm(row), carrier, plan(row), ROUNDS, on_round=keep, **settings)
        models[f"run{number}"] = np.stack(seen)
    np.savez(Path(folder) / MODELS, **models)
    conclude(Path(folder), {"status": "done"})


def make_rows(name: str, folder: str = "", job: str = "") -> Handler:
    """A client of all the runs."""

    def make(number: str) -> Handler:
        own = problem().client(NAMES.index(name))
        return fedlin.Client(algorithm(chosen()[int(number)]), own, secret=b"").handle

    return by_name(make)


def assert_as_simulated(folder: Path, methods: Sequence[str] | None = None) -> None:
    """Every model of every run is the simulator's to 1e-10."""
    rows = {f"run{number}": row for number, row in enumerate(chosen()) if methods is None or row.method in methods}
    with np.load(folder / MODELS) as models:
        assert models.keys() == rows.keys()
        for name, row in rows.items():
            run = fedlin.simulate(algorithm(row), problem(), plan(row), ROUNDS, seed=SEED, x0=X0)
            np.testing.assert_allclose(models[name], run.iterates[1:], rtol=1e-10, atol=1e-10, err_msg=str(row))


if __name__ == "__main__":
    serve_rows(Loopback({name: make_rows(name) for name in NAMES}), sys.argv[1])
    assert_as_simulated(Path(sys.argv[1]))
