"""What server and sites agree on. A run's settings say it, and both sides compare what they made of it."""

from collections.abc import Mapping
from typing import Any

import fedlin


def algorithm(config: Mapping[str, Any]) -> Any:
    """FedLin with TOP-k gradients both ways, or SCAFFOLD."""
    if config["method"] == "scaffold":
        return fedlin.scaffold()
    return fedlin.fedlin(uplink=fedlin.top_k(int(config["top"])), downlink=fedlin.top_k(int(config["top"])))


def plan(config: Mapping[str, Any]) -> fedlin.Plan:
    """Each site's local steps, and a step size to match."""
    return fedlin.Plan.scaled([int(tau) for tau in config["tau"].split()], eta_bar=float(config["eta"]))
