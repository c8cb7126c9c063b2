"""The network that the benchmark times: that of examples/cifar10.py, as a user writes it."""

import runpy
from pathlib import Path

_EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples/cifar10.py"))
accuracy, drop, loss = (_EXAMPLE[name] for name in ("accuracy", "drop", "loss"))
