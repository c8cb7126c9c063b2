"""Federations in Flower's simulation: `simulate` plays every run and leaves the models in $FEDLIN_FOLDER."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedlin
from fedlin.transports.flower import FlowerTransport, client_app
from fedlin.transports.transport import Handler
from quadratics import X0, A, B
from routed import Routed, by_name

ROUNDS, SEED = 10, 1
NAMES = ("site-0", "site-1", "site-2")
PROBLEM = fedlin.problems.quadratic(A[:3], B[:3])
PLAN = fedlin.Plan([1, 13, 2], [0.044, 0.0028, 0.016])
TOP = fedlin.top_k(2)
RUNS = {"fedlin": fedlin.fedlin(uplink=TOP, downlink=TOP), "scaffold": fedlin.scaffold()}
MODELS = "models.npz"


def make(name: str, config: Any) -> Handler:
    """A client of every run, whose memory is in a folder that is its own."""

    def one(run: str) -> Handler:
        if run == "fail" and name == "site-1":
            raise ValueError("no answer")
        if run == "fail":
            return lambda phase, payload: payload
        own = PROBLEM.client(NAMES.index(name))
        return fedlin.Client(RUNS[run], own, folder=Path(os.environ["FEDLIN_FOLDER"]) / name / run).handle

    return by_name(one)


def main(grid: Any, context: Any) -> None:
    """The server: one run after the other over the same transport."""
    transport, folder = FlowerTransport(grid), Path(os.environ["FEDLIN_FOLDER"])
    models: dict[str, Any] = {}
    for run, algorithm in RUNS.items():
        seen: list[NDArray[Any]] = []

        def keep(played: int, x: NDArray[Any], measures: Any, seen: list[NDArray[Any]] = seen) -> None:
            seen.append(np.array(x))

        carrier = Routed(transport, run)
        result = fedlin.serve(algorithm, carrier, PLAN, ROUNDS, x0=X0, seed=SEED, expect=NAMES, on_round=keep)
        models[run] = np.stack(seen)
        assert [event["event"] for event in result.events] == ["began", "delivered"], result.events
    assert transport.exchange("fail/x", b"1", NAMES, 60.0) == {"site-0": b"1", "site-2": b"1"}
    np.savez(folder / MODELS, **models)


def simulate() -> None:
    """Flower's simulation of three nodes on two cores of this machine."""
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    server = ServerApp()
    server.main()(main)
    ray = {"num_cpus": 2, "_node_ip_address": "127.0.0.1"}
    resources = {"num_cpus": 1, "num_gpus": 0.0}
    run_simulation(
        server, client_app(make), len(NAMES), backend_config={"init_args": ray, "client_resources": resources}
    )
