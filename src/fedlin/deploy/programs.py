"""What FLARE's job runs: the server's rounds, and a site's answers from its own `client.py`."""

import json
import os
import runpy
from pathlib import Path
from typing import Any

import numpy as np

from fedlin.deploy.driver import OUTCOME
from fedlin.deploy.settings import read_settings
from fedlin.engines.federation import Client, Policy, serve
from fedlin.errors import DeployError, FedLinError
from fedlin.transports.transport import Handler, Transport

STATE = "state"  # next to the kit, so that it outlives every job
CLIENT = "client.py"
MODEL = "model.npy"


def run_server(transport: Transport, folder: str) -> None:
    """Play the rounds that are left, then write the model and how the run ended."""
    kit = Path(folder)
    try:
        settings = read_settings(kit)
        policy = Policy(quorum=settings.quorum, timeout=settings.timeout, patience=settings.patience)
        result = serve(
            settings.algorithm,
            transport,
            settings.plan,
            settings.rounds,
            dim=settings.dim,
            dtype=settings.dtype,
            seed=settings.seed,
            stop=settings.stop,
            policy=policy,
            folder=kit / STATE,
            expect=settings.sites,
        )
    except FedLinError as error:
        conclude(kit, {"status": "failed", "error": str(error)})
        raise
    np.save(kit / MODEL, result.x)
    conclude(kit, {"status": result.status, "rounds": result.rounds})


def make_client(name: str, folder: str) -> Handler:
    """A site's handler: `problem()` in its client.py gives its data and its loss."""
    kit = Path(folder)
    settings = read_settings(kit)
    path = kit / CLIENT
    if not path.is_file():
        raise DeployError(f"{path} is not there: write it, with a function problem() that returns {name}'s problem.")
    own: dict[str, Any] = runpy.run_path(str(path))
    if "problem" not in own:
        raise DeployError(f"{path} has no function problem(): give one that returns {name}'s problem.")
    client = Client(settings.algorithm, own["problem"](), folder=kit / STATE, weight=own.get("WEIGHT", 1.0))
    return client.handle


def conclude(kit: Path, content: dict[str, Any]) -> None:
    """Tell whoever waits for the run how it ended."""
    scratch = kit / f"{OUTCOME}.part"
    scratch.write_text(json.dumps(content), encoding="utf-8")
    os.replace(scratch, kit / OUTCOME)
