"""Measure this machine, print as it goes, and write results/cpu.json, docs/performance.md and its picture.

`--only race`, for example, measures one part and keeps the others of the file; `--repeats N` for more than five.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console

from benchmarks import batches, bounds, growth, page, picture, recording, scale, speed
from benchmarks.peers import race
from benchmarks.workloads import w1, w2


def engine(repeats: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Layouts against the NumPy loop, a batch against single runs, and what recording costs."""
    say("layouts, batches and recording")
    return {
        "layouts": speed.measure(repeats),
        "batches": [batches.measure(rounds=200, repeats=repeats)],
        "recording": [recording.cost(work, rounds, repeats) for work, rounds in ((w1(True), 2000), (w2(), 200))],
    }


def main() -> None:
    """Everything, or one part."""
    parts: dict[str, Callable[[int, Callable[[str], None]], Any]] = {
        "race": race.measure,
        "growth": lambda repeats, say: growth.measure(say),
        "scale": scale.measure,
        "engine": engine,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=tuple(parts))
    arguments = parser.parse_args()
    console, began = Console(), time.perf_counter()

    def say(text: str) -> None:
        console.print(f"{time.perf_counter() - began:5.0f} s  {text}", markup=False, highlight=False, soft_wrap=True)

    stored: dict[str, Any] = json.loads(page.CPU.read_text()) if arguments.only and page.CPU.exists() else {}
    results = {**stored, "machine": bounds.machine(), "ceilings": bounds.ceilings(), "needs": bounds.needs()}
    for name in (arguments.only,) if arguments.only else parts:
        results[name] = parts[name](arguments.repeats, say)
        page.CPU.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")  # kept if a later part fails
    page.save()
    say(f"wrote {page.CPU.name}, {page.PAGE.name} and {picture.FILE.name}")


if __name__ == "__main__":
    main()
