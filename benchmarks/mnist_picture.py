"""Draw docs/pictures/networks.png and write what it tells into docs/networks.md, from what `mnist_study` measured."""

import json
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from PIL import Image

from benchmarks.mnist_study import FILE as FOUND
from benchmarks.mnist_study import STUDIES
from benchmarks.tables import table
from fedlin.report.matplotlib_figures import RC
from fedlin.report.style import COLOURS, MEASURED_DASHES

DOCS = Path(__file__).parent.parent / "docs"
FILE, PAGE = DOCS / "pictures" / "networks.png", DOCS / "networks.md"
MARK = "<!-- The rest is written by python -m benchmarks.mnist_picture. -->\n"
AXES = {"rounds": ("rounds", 1.0), "bytes": ("MB sent, both ways", 1e6), "seconds": ("seconds", 1.0)}
RANGES = ("FedAvg", "FedLin")  # whose seeds are shown too, so that the others can be seen
LOWEST = 0.7  # the accuracy where the axis begins
TEXT = """
## When FedLin's correction pays for a network

MNIST's 10,000 test images, 8,000 of them split among 20 or 100 clients with two digits each; a small CNN of {dim:,}
parameters. Each method has the step of {steps} with which it ended highest on 1,000 images, an asterisk where that is
the smallest or largest tried. Curves are of 1,000 other images, the median of {seeds} seeds, with their range for
FedAvg and FedLin. Seconds are a run's share of the time of {seeds} runs computed together on an {device}. FedLin takes
its correction over all rows and both gradients of a step over one batch (`same_batch=True`).

![Accuracy by rounds, bytes and seconds](pictures/networks.png)

{table}

{sentences}
"""


def load() -> dict[str, Any]:
    """What was measured."""
    results: dict[str, Any] = json.loads(FOUND.read_text())
    return results


def draw(results: dict[str, Any]) -> Figure:
    """A row for each study, a column for what the accuracy cost."""
    with rc_context(RC):
        canvas = Figure(figsize=(9, 2.6 * len(STUDIES) + 0.8), layout="constrained")
        grid = canvas.subplots(len(STUDIES), len(AXES), sharey=True)
        for across, study in zip(grid, STUDIES, strict=True):
            methods = results["studies"][study.name]["methods"]
            for axes, (name, (label, unit)) in zip(across, AXES.items(), strict=True):
                for number, (method, row) in enumerate(methods.items()):
                    curves = np.array([curve for curve in row["accuracy"] if curve])
                    x = np.array(row[name]) / unit
                    colour, dash = COLOURS[number % len(COLOURS)], MEASURED_DASHES[number // len(COLOURS)]
                    style: Any = (0, dash) if dash else "-"
                    axes.plot(x, np.median(curves, 0), color=colour, linestyle=style, linewidth=1.2, label=method)
                    if method in RANGES:
                        axes.fill_between(x, curves.min(0), curves.max(0), color=colour, alpha=0.15, linewidth=0)
                axes.set_ylim(LOWEST, 1.0)
                axes.set_xlim(left=0)
                axes.set_xlabel(label)
                axes.grid()
            across[0].set_ylabel("test accuracy")
            across[1].set_title(study.name)
        canvas.legend(*grid[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    return canvas


def ends(row: dict[str, Any]) -> list[float]:
    """The last accuracy of every seed; 0 where the run diverged."""
    return [curve[-1] if curve else 0.0 for curve in row["accuracy"]]


def write(results: dict[str, Any]) -> str:
    """The part of the page."""
    studies = results["studies"]
    first = next(iter(studies.values()))
    rows = []
    for name in first["methods"]:
        cells = [name]
        for study in STUDIES:
            row = studies[study.name]["methods"][name]
            lost = sum(curve is None for curve in row["accuracy"])
            edge = "*" if f"{row['eta']:g}" in (min(row["accuracy by step"]), max(row["accuracy by step"])) else ""
            said = f"{np.median([end for end in ends(row) if end]):.3f} with η = {row['eta']:g}{edge}"
            cells.append(f"{said}; {lost} of {len(row['accuracy'])} diverged" if lost else said)
        rows.append(cells)
    return TEXT.format(
        dim=first["dim"],
        steps=", ".join(next(iter(first["methods"].values()))["accuracy by step"]),
        seeds=results["seeds"],
        device=results["device"],
        table=table(("ends at, the median", *(study.name for study in STUDIES)), rows),
        sentences="\n".join(tell(studies[study.name], study.name) for study in STUDIES),
    )


def tell(results: dict[str, Any], name: str) -> str:
    """What FedLin's correction did in one study, at equal steps and at each method's own."""
    fedlin, fedavg = results["methods"]["FedLin"], results["methods"]["FedAvg"]
    small, *_ = fedavg["accuracy by step"]
    best = max(results["methods"], key=lambda method: float(np.median(ends(results["methods"][method]))))
    gain = float(np.median(ends(fedlin)) - np.median(ends(fedavg)))
    paid = "pays" if gain > np.ptp(ends(fedavg)) else "does not pay"
    bytes_, seconds = (fedlin[cost][-1] / fedavg[cost][-1] for cost in ("bytes", "seconds"))
    with_small = [method["accuracy by step"][small] for method in (fedlin, fedavg)]
    with_own = [float(np.median(ends(method))) for method in (fedlin, fedavg)]
    sentence = (
        f"- **{name}**: the correction {paid}. With the smallest step, {small}, FedLin ends at {with_small[0]:.3f} "
        f"and FedAvg at {with_small[1]:.3f}; each with its own, at {with_own[0]:.3f} and {with_own[1]:.3f}, "
        f"for {bytes_:.1f} times the bytes and {seconds:.1f} times the seconds. {best} ends highest."
    )
    return fill(sentence, 120, subsequent_indent="  ")


def save() -> None:
    """The picture and the page's part."""
    results = load()
    canvas = draw(results)
    with rc_context(RC):
        canvas.savefig(FILE, dpi=90)
    with Image.open(FILE) as picture:
        few = picture.convert("RGB").quantize(64)  # colours, which is a quarter of the bytes
    few.save(FILE, optimize=True)
    head, _, _ = PAGE.read_text().partition(MARK)
    PAGE.write_text(head + MARK + write(results))


if __name__ == "__main__":
    save()
