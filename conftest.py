"""What can be collected depends on what is installed."""

from importlib.util import find_spec

NEEDS = {
    "src/fedlin/algorithms/server_optimizer.py": "optax",
    "src/fedlin/theory/exact": "clarabel",
    "src/fedlin/torch": "torch",
    "src/fedlin/trackers.py": "tensorboardX",
    "src/fedlin/transports/flower.py": "flwr",
    "tests/helpers/flower_sites.py": "flwr",
}
collect_ignore = [path for path, package in NEEDS.items() if find_spec(package) is None]
