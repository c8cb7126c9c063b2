"""Flower's simulation, on Ray. A client is a NumPy loop, with its own number of steps and step size."""

import os
import sys
import tempfile
from functools import cache
from typing import Any

import numpy as np

from benchmarks import reference
from benchmarks.peers.contract import Array, Clock, Task, read, run
from benchmarks.peers.with_numpy import work_of

TASK = "FEDLIN_TASK"  # where the actors find the task


@cache
def client_work() -> tuple[reference.Work, int]:
    """An actor's task and the number of rows of a client, read once."""
    task = read(os.environ[TASK])
    return work_of(task), task.X.shape[1]


def train(message: Any, context: Any) -> Any:
    """A client's round."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    work, rows = client_work()
    x = message.content["arrays"].to_numpy_ndarrays()[0]
    y = reference.descend(work, int(context.node_config["partition-id"]), x, 0.0)
    content = RecordDict({"arrays": ArrayRecord([y]), "metrics": MetricRecord({"num-examples": rows})})
    return Message(content=content, reply_to=message)


def play(task: Task, method: str, rounds: int, clock: Clock) -> Array:
    """Flower's own FedAvg: everyone trains in every round, nobody evaluates."""
    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # without it Ray listens on every address
    os.environ[TASK] = os.path.abspath(sys.argv[1])
    from flwr.app import ArrayRecord
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    from benchmarks.peers.with_flower import train as importable  # so that the actors import it too

    clients = len(task.X)
    models: list[Array] = []

    def ended(number: int, arrays: Any) -> None:
        if number:
            clock.lap()
        models[:] = [arrays.to_numpy_ndarrays()[0]]

    def serve(grid: Any, context: Any) -> None:
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
        strategy.start(grid, ArrayRecord([np.zeros(task.X.shape[-1])]), rounds, evaluate_fn=ended)

    server, client = ServerApp(), ClientApp()
    server.main()(serve)
    client.train()(importable)
    backend = {"init_args": {"_node_ip_address": "127.0.0.1"}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FLWR_HOME"] = folder
        run_simulation(server, client, clients, backend_config=backend)
    return models[0]


if __name__ == "__main__":
    run(play, "flwr")
