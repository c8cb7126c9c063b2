"""Draw docs/pictures/peers.svg: every contestant's time over the NumPy loop's, with its range, on a log axis."""

from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from fedlin.report.matplotlib_figures import RC
from fedlin.report.style import COLOURS

FILE = Path(__file__).parent.parent / "docs" / "pictures" / "peers.svg"
MARKS = {"W1": ("o", COLOURS[0], "W1, least squares"), "W2": ("s", COLOURS[1], "W2, logistic regression")}


def draw(race: list[dict[str, Any]]) -> Figure:
    """A line a contestant that ran; a point is a median, its bar the range over repeats."""
    rows = [row for row in race if any("ratio" in row.get(name, {}) for name in MARKS)]
    with rc_context(RC):
        canvas = Figure(figsize=(6.4, 1.1 + 0.34 * len(rows)), layout="constrained")
        axes = canvas.subplots()
        for offset, (name, (mark, colour, label)) in zip((-0.13, 0.13), MARKS.items(), strict=True):
            ratios = [(place, row[name]["ratio"]) for place, row in enumerate(rows) if "ratio" in row.get(name, {})]
            middle = [ratio["median"] for _, ratio in ratios]
            below = [ratio["median"] - ratio["low"] for _, ratio in ratios]
            above = [ratio["high"] - ratio["median"] for _, ratio in ratios]
            places = [place + offset for place, _ in ratios]
            axes.errorbar(middle, places, xerr=[below, above], fmt=mark, color=colour, capsize=2, ms=4, label=label)
        axes.axvline(1, color="#6E6E6E", linewidth=0.8)
        axes.set_xscale("log")
        names = [row["title"] if row["title"] == "NumPy loop" else f"{row['title']} ({row['method']})" for row in rows]
        axes.set_yticks(range(len(rows)), names)
        axes.invert_yaxis()
        axes.grid(axis="x")
        axes.set_axisbelow(True)
        axes.set_xlabel("seconds a round over the plain NumPy loop's: median and range")
        canvas.legend(loc="outside upper center", ncols=2, frameon=False)
    return canvas


def save(race: list[dict[str, Any]], path: Path = FILE) -> None:
    """As SVG, or as what the ending says; the same figures give the same bytes."""
    canvas = draw(race)
    with rc_context(RC):
        canvas.savefig(path, dpi=150, metadata={"Date": None, "Creator": None} if path.suffix == ".svg" else {})
