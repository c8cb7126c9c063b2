"""A federation: server and clients on machines of their own, whatever carries their bytes."""

from fedlin.engines.federation.client import Client
from fedlin.engines.federation.limits import Limits
from fedlin.engines.federation.policy import Policy
from fedlin.engines.federation.round_log import FederationResult
from fedlin.engines.federation.serve import serve

__all__ = ["Client", "FederationResult", "Limits", "Policy", "serve"]
