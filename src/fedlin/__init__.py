"""Federated optimisation that reaches the exact minimiser at a linear rate."""

from importlib.metadata import PackageNotFoundError, version

from fedlin import aggregation, attacks, data, privacy, problems, theory
from fedlin.algorithms import (
    adiana,
    compressed,
    compressed_scaffnew,
    diana,
    ef21,
    fedac,
    fedavg,
    fedcomgate,
    fedlin,
    fedlin_newton,
    fednl,
    fednl_pp,
    fednova,
    fedpaq,
    fedprox,
    fedsplit,
    gradient_descent,
    gradient_tracking,
    gradskip,
    locodl,
    marina,
    s_local_svrg,
    scaffnew,
    scaffold,
    tamuna,
)
from fedlin.algorithms.client_optimizer import client_optimizer
from fedlin.algorithms.clipped import clipped
from fedlin.algorithms.momentum import momentum
from fedlin.algorithms.server_optimizer import server_optimizer
from fedlin.cache import keep_compiled
from fedlin.comparison import Comparison, compare
from fedlin.compressors import cast, identity, natural, nearest, quantize, rand_k, sign, top_k
from fedlin.core import Algorithm, Central, Local, Oracle, Phase
from fedlin.engines.bits import BitCounts, count_bits
from fedlin.engines.checkpoint import Checkpoint
from fedlin.engines.federation import Client, Evaluation, FederationResult, Limits, Policy, serve
from fedlin.engines.messages import message_sizes
from fedlin.engines.simulation.simulate import simulate, simulate_many
from fedlin.engines.simulation.stop import Stop
from fedlin.engines.timing.clock import Clock, draw_rates
from fedlin.engines.timing.flanp import flanp
from fedlin.errors import FedLinError
from fedlin.layers import per_layer
from fedlin.lazy import lazy_modules as _lazy_modules
from fedlin.links import error_feedback, innovation, plain, shifted
from fedlin.matrices import low_rank, symmetric
from fedlin.plan import Plan, draw_steps, epochs
from fedlin.result import Result

try:
    __version__ = version("fedlin")
except PackageNotFoundError:  # run from a source tree that was not installed
    __version__ = "0+unknown"

# `import fedlin` suffices for these, which need more than jax, numpy and scipy.
__getattr__ = _lazy_modules("fedlin", "identities", "sklearn", "torch", "trackers")

__all__ = [
    "Algorithm",
    "BitCounts",
    "Central",
    "Checkpoint",
    "Client",
    "Clock",
    "Comparison",
    "Evaluation",
    "FedLinError",
    "FederationResult",
    "Limits",
    "Local",
    "Oracle",
    "Phase",
    "Plan",
    "Policy",
    "Result",
    "Stop",
    "adiana",
    "aggregation",
    "attacks",
    "cast",
    "client_optimizer",
    "clipped",
    "compare",
    "compressed",
    "compressed_scaffnew",
    "count_bits",
    "data",
    "diana",
    "draw_rates",
    "draw_steps",
    "ef21",
    "epochs",
    "error_feedback",
    "fedac",
    "fedavg",
    "fedcomgate",
    "fedlin",
    "fedlin_newton",
    "fednl",
    "fednl_pp",
    "fednova",
    "fedpaq",
    "fedprox",
    "fedsplit",
    "flanp",
    "gradient_descent",
    "gradient_tracking",
    "gradskip",
    "identity",
    "innovation",
    "keep_compiled",
    "locodl",
    "low_rank",
    "marina",
    "message_sizes",
    "momentum",
    "natural",
    "nearest",
    "per_layer",
    "plain",
    "privacy",
    "problems",
    "quantize",
    "rand_k",
    "s_local_svrg",
    "scaffnew",
    "scaffold",
    "serve",
    "server_optimizer",
    "shifted",
    "sign",
    "simulate",
    "simulate_many",
    "symmetric",
    "tamuna",
    "theory",
    "top_k",
]
