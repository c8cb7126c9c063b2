"""The server's side: plays the rounds, saves after each, and leaves the model in its folder."""

from pathlib import Path
from typing import Any

import numpy as np
from flwr.serverapp import ServerApp
from task import algorithm, plan

import fedlin
from fedlin.transports.flower import FlowerTransport


def main(grid: Any, context: Any) -> None:
    """Started again with the same settings and folder, it goes on from the last whole round."""
    config = context.run_config
    folder = Path(config["folder"]) / "server"
    result = fedlin.serve(
        algorithm(config),
        FlowerTransport(grid),
        plan(config),
        int(config["rounds"]),
        dim=int(config["dim"]),
        seed=int(config["seed"]),
        expect=config["sites"].split(),
        policy=fedlin.Policy.everyone(timeout=float(config["timeout"])),
        folder=folder,
    )
    np.save(folder / "model.npy", result.x)


app = ServerApp()
app.main()(main)
