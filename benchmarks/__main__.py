"""Run every benchmark and print its table; `--repeats N` for more than five."""

import argparse
import json
import platform
import subprocess
import sys

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import batches, recording, speed
from benchmarks.workloads import w1, w2


def show(console: Console, title: str, rows: list[dict[str, str]]) -> None:
    """Print rows with equal keys as a table."""
    table = Table(title=title, title_justify="left")
    for name in rows[0]:
        table.add_column(name)
    for row in rows:
        table.add_row(*row.values())
    console.print(table)


def in_process(code: str) -> str:
    """What a fresh interpreter prints for `code`: memory and import time are a process's own."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def main() -> None:
    """All tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    console = Console()
    console.print(
        f"Python {platform.python_version()}, JAX {jax.__version__}, NumPy {np.__version__}, {jax.devices()[0]}"
    )
    title = "Seconds a round over the NumPy loop's, measures included: median (range)"
    show(console, title, speed.measure(repeats))
    shares = [recording.cost(work, rounds, repeats) for work, rounds in ((w1(True), 2000), (w2(), 200))]
    for row in (batches.measure(rounds=200, repeats=repeats), *shares):
        console.print(", ".join(f"{k}: {v:.3g}" if isinstance(v, float) else str(v) for k, v in row.items()))
    scale = in_process("from benchmarks import scale; import json; print(json.dumps(scale.measure()))")
    show(console, "Many clients: logistic, 20 rows of 20 features each, ten local steps", [json.loads(scale)])
    importing = in_process("import time; t = time.perf_counter(); import fedlin; print(time.perf_counter() - t)")
    console.print(f"import fedlin: {float(importing):.2f} s")


if __name__ == "__main__":
    main()
