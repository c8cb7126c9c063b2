"""Keeps what was measured of federations in benchmarks/results, and writes it into the handbook, docs/operate.md."""

import json
import os
import platform
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
UNMEASURED = "Not measured on an idle machine yet."
PAGE = ROOT / "docs" / "operate.md"


def results(name: str) -> Path:
    """The file of one benchmark's results."""
    return ROOT / "benchmarks" / "results" / f"{name}.json"


def read(name: str) -> dict[str, Any]:
    """What was kept of a benchmark; nothing before it was run."""
    path = results(name)
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return content


def keep(name: str, figures: dict[str, Any]) -> None:
    """Keep these figures of a benchmark, beside those it has under other names."""
    text = json.dumps({**read(name), **figures}, indent=1) + "\n"
    results(name).write_text(text, encoding="utf-8")


def machine() -> dict[str, Any]:
    """On what it is measured, and how busy that is with other things before it begins."""
    return {"processor": processor(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}


def processor() -> str:
    """The processor's name, as the system gives it."""
    listed = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    models = [line.partition(":")[2].strip() for line in listed.splitlines() if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def fill(section: str, text: str) -> None:
    """Write the text between the section's marks in the handbook."""
    page = PAGE.read_text(encoding="utf-8")
    begin, end = (f"<!-- {section}: {mark} -->" for mark in ("begin", "end"))
    before, after = page.partition(begin)[0], page.partition(end)[2]
    PAGE.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
