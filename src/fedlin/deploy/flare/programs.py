"""What FLARE's job runs: the server's rounds, and a site's answers from its own `client.py`."""

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np

from fedlin.deploy.flare.driver import OUTCOME
from fedlin.deploy.settings import read_settings
from fedlin.deploy.site_settings import read_limits
from fedlin.deploy.starting_model import read_start
from fedlin.engines.checkpoint import write_whole
from fedlin.engines.federation import Client, serve, wire
from fedlin.engines.federation.client import failure_reply
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
        start = read_start(kit, settings)
        result = serve(
            settings.algorithm,
            transport,
            settings.plan,
            settings.rounds,
            dim=settings.dim if start is None else None,
            x0=start,
            dtype=settings.dtype or "float64",
            seed=settings.seed,
            stop=settings.stop,
            policy=settings.policy,
            folder=kit / STATE,
            expect=settings.sites,
            weights=settings.weights,
        )
    except FedLinError as error:
        conclude(kit, {"status": "failed", "error": str(error)})
        raise
    np.save(kit / MODEL, result.x)
    end = {"status": result.status, "rounds": result.rounds}
    if result.status == "diverged":
        conclude(kit, {**end, "error": f"after {result.rounds} rounds: give smaller steps."})
        raise DeployError("the run diverged")  # a job that completes is taken for a run that was done
    conclude(kit, end)


def make_client(name: str, folder: str) -> Handler:
    """A site's handler. Where its settings or its client.py fail it refuses, and tries again with the next message.

    What an exception says may quote data, so it stays in the site's log, under a number that the server is told.
    """
    kit = Path(folder)
    client: Client | None = None

    def answer(phase: str, payload: bytes) -> bytes:
        nonlocal client
        try:
            if client is None:
                client = load_client(name, kit)
            client.limits = read_limits(kit)
        except Exception as error:
            return failure_reply(wire.read_message(payload)[0], wire.identify(payload), error)
        return client.handle(phase, payload)

    return answer


def load_client(name: str, kit: Path) -> Client:
    """The client of a site: `problem()` in its client.py gives its data and its loss."""
    settings = read_settings(kit)
    path = kit / CLIENT
    if not path.is_file():
        raise DeployError(f"{CLIENT} is not there: write it, with a function problem() that returns {name}'s problem.")
    own: dict[str, Any] = runpy.run_path(str(path))
    if "problem" not in own:
        raise DeployError(f"{CLIENT} has no function problem(): give one that returns {name}'s problem.")
    return Client(settings.algorithm, own["problem"](), folder=kit / STATE, weight=own.get("WEIGHT", 1.0))


def conclude(kit: Path, content: dict[str, Any]) -> None:
    """Tell whoever waits for the run how it ended."""
    write_whole(kit / OUTCOME, json.dumps(content).encode())
