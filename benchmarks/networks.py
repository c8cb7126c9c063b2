"""Networks on a GPU beside pfl: `python -m benchmarks.networks [NAME ...]` measures all rows, or those named.

pfl itself runs from the folder that PFL_FOLDER names; without it its row says so. Every row is a process of its own,
and what it found is written to benchmarks/results/networks.json as it ends.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cifar.setting import Setting
from benchmarks.process import FailedError, run

FILE = Path(__file__).parent / "results" / "networks.json"
SHARED = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.3"}  # JAX leaves the rest of the GPU to torch


@dataclass(frozen=True)
class Row:
    """A contestant with a setting of its own."""

    program: str  # of benchmarks/cifar
    method: str
    setting: Mapping[str, Any] = field(default_factory=dict)  # where it differs from the benchmark's
    environment: Mapping[str, str] = field(default_factory=dict)


RESNET = {"users": 100, "rounds": 6, "again": 6, "every": 6, "test": 1000}
ROWS = {
    "pfl": Row("with_pfl", "fedavg", {"rounds": 41}),
    "bare JAX": Row("with_bare_jax", "fedavg"),
    "fedlin": Row("with_fedlin", "fedavg"),
    "fedlin, full float32": Row("with_fedlin", "fedavg/highest", {"rounds": 200}),
    "fedlin, bfloat16": Row("with_fedlin", "fedavg/bfloat16", {"rounds": 200}),
    "fedlin's FedLin": Row("with_fedlin", "fedlin", {"rounds": 100, "again": 100}),
    "fedlin's SCAFFOLD": Row("with_fedlin", "scaffold", {"rounds": 100, "again": 100}),
    "fedlin, cohort of 500": Row("with_fedlin", "fedavg", {"rounds": 40, "again": 40, "cohort": 500}),
    "ResNet-18, cohort of 10": Row("with_resnet", "fedavg", {**RESNET, "cohort": 10}),
    "ResNet-18, cohort of 100": Row("with_resnet", "fedavg", {**RESNET, "cohort": 100}),
    "fedlin.torch": Row("with_fedlin_torch", "fedavg", {"rounds": 60, "again": 60}, SHARED),
    "fedlin.torch, TF32": Row("with_fedlin_torch", "fedavg/tf32", {"rounds": 60, "again": 60}, SHARED),
    "fedlin.torch, JAX on the CPU": Row(
        "with_fedlin_torch", "fedavg", {"rounds": 20, "again": 20}, {"JAX_PLATFORMS": "cpu"}
    ),
}


def measure(row: Row) -> dict[str, Any]:
    """What one process found, or why it did not."""
    if row.program == "with_pfl" and not os.environ.get("PFL_FOLDER"):
        return {"failed": "PFL_FOLDER does not name a folder with pfl"}
    setting = Setting(**row.setting)
    command = [sys.executable, "-m", f"benchmarks.cifar.{row.program}", row.method, json.dumps(setting._asdict())]
    try:
        result = run([*command, str(time.time())], row.environment)
    except FailedError as cause:
        print(cause.details, file=sys.stderr, flush=True)
        return {"failed": str(cause)}
    return {"rounds": setting.rounds, "cohort": setting.cohort, **result}


def main() -> None:
    """All rows, or those named; the others of the file are kept."""
    names, begun = sys.argv[1:] or list(ROWS), time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    results: dict[str, Any] = json.loads(FILE.read_text()) if sys.argv[1:] and FILE.exists() else {}
    for name in names:
        results[name] = {"run": begun, **measure(ROWS[name])}
        print(name, json.dumps(results[name]), flush=True)
        FILE.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
