"""What can be collected depends on what is installed, and `--minutes` ends a long session in time."""

import time
from importlib.util import find_spec

import pytest

NEEDS = {
    "src/fedlin/algorithms/client_optimizer.py": "optax",
    "src/fedlin/algorithms/server_optimizer.py": "optax",
    "src/fedlin/theory/exact": "clarabel",
    "src/fedlin/torch": "torch",
    "src/fedlin/trackers.py": "tensorboardX",
    "src/fedlin/transports/flower.py": "flwr",
    "tests/helpers/flower_sites.py": "flwr",
    "tests/theory/exact/test_client_bound.py": "clarabel",
    "tests/theory/exact/test_lyapunov.py": "clarabel",
    "tests/theory/exact/test_worst_case.py": "clarabel",
}
collect_ignore = [path for path, package in NEEDS.items() if find_spec(package) is None]
START = time.monotonic()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--minutes", type=float, default=float("inf"), help="begin no test after so many minutes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    minutes: float = item.config.getoption("--minutes")
    if time.monotonic() - START > 60 * minutes:
        pytest.skip(f"{item.nodeid}: the {minutes:g} minutes were over")
