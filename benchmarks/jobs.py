"""Twelve equal runs of an experiment file, one after another and by two processes.

`python -m benchmarks.jobs` prints wall time, CPU time, and whether both gave the same bits. Wall time needs two idle
cores; CPU time shows what distributing the runs costs, also on a busy machine.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from fedlin.experiments.run_folder import RunFolder

JOBS = 2
STUDY = """
rounds = {rounds}
seeds = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
[problem]
kind = "logistic"
l2 = 0.01
minibatch = 16
synthetic = {{ clients = 10, dim = 50, samples = 400 }}
[plan]
tau = 10
eta = 0.01
[[algorithm]]
name = "fedlin"
"""


def play(file: Path, out: Path, jobs: int) -> dict[str, float]:
    """Seconds of `fedlin run` with so many processes."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "fedlin", "run", str(file), "--out", str(out), "--jobs", str(jobs)]
    # A device each, as on a machine of one core: two processes of two devices would compete for them.
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "JAX_NUM_CPU_DEVICES": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cores = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": time.perf_counter() - began, "cores": cores}


def measure(rounds: int = 20_000) -> dict[str, Any]:
    """Both ways, and how many times faster the second is."""
    with tempfile.TemporaryDirectory() as home:
        file = Path(home, "study.toml")
        file.write_text(STUDY.format(rounds=rounds))
        taken = {jobs: play(file, Path(home, f"jobs-{jobs}"), jobs) for jobs in (1, JOBS)}
        folders = [list(RunFolder.open(Path(home, f"jobs-{jobs}")).results()) for jobs in taken]
        same = all(np.array_equal(alone.x, other.x) for (_, alone), (_, other) in zip(*folders, strict=True))
    return {
        "one after another": taken[1],
        f"{JOBS} processes": taken[JOBS],
        "times faster": taken[1]["wall"] / taken[JOBS]["wall"],
        "the same bits": same,
    }


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000), indent=2))
