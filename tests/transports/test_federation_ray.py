"""Whole federations over Ray, in a session of their own: a Ray that runs already has its cores given away."""

from importlib.util import find_spec
from pathlib import Path

import pytest

# Looked for, not imported: Ray reads where to listen when it is imported, and the transport tells it.
if find_spec("ray") is None:
    pytest.skip("needs Ray: pip install 'fedlin[ray]'", allow_module_level=True)

from federated_rows import NAMES, assert_as_simulated, make_rows, serve_rows
from fedlin.transports.ray import RayTransport

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),  # Ray starts its processes so
]


def test_every_method_gives_the_simulated_models(tmp_path: Path) -> None:
    carrier = RayTransport(make_rows, NAMES, workers=2)
    try:
        serve_rows(carrier, str(tmp_path))
    finally:
        carrier.close()
    assert_as_simulated(tmp_path)
