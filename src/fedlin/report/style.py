"""How a curve looks: one choice for paper and browser, told apart without colour as well."""

import textwrap
from collections import Counter
from dataclasses import dataclass

import numpy as np

from fedlin.report.figure import Array, Curve, Figure, Panel, Scale

# Okabe and Ito's colours without black (kept for theory) and yellow (too pale on white paper), and three more: brown,
# purple and olive.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C510A", "#5E3C99", "#7F7F00")
GREYS = ("#000000", "#6E6E6E", "#9A9A9A")
# Lengths of on and off in points, solid where empty; Matplotlib and SVG both take these.
MEASURED_DASHES: tuple[tuple[int, ...], ...] = ((), (9, 2), (9, 2, 2, 2), (9, 2, 2, 2, 2, 2))
THEORY_DASHES: tuple[tuple[int, ...], ...] = ((4, 2), (6, 4), (3, 3))
FLOOR_DASH = (1, 2)
MARKS = ("circle", "square", "triangle", "diamond", "cross", "x")


@dataclass(frozen=True)
class Style:
    """Colour as #rrggbb, dash pattern in points, and a mark's name (none on theory and floors)."""

    colour: str
    dash: tuple[int, ...] = ()
    mark: str = ""


def styles(figure: Figure) -> dict[str, Style]:
    """A style for each label of the figure: the same label looks the same in every panel.

    >>> curve = Curve("FedLin", np.array([0.0, 1.0]), np.array([1.0, 0.1]))
    >>> styles(Figure("demo", "Demo", (Panel("", "round", "error", (curve,)),)))["FedLin"].mark
    'circle'
    """
    chosen: dict[str, Style] = {}
    used: Counter[str] = Counter()
    for curve in (curve for panel in figure.panels for curve in panel.curves):
        if curve.label in chosen:
            continue
        # Measured lines and single points share the colours, so they share the count.
        family = "measured" if curve.kind == "points" else curve.kind
        i = used[family]
        used[family] += 1
        if family == "theory":
            chosen[curve.label] = Style(GREYS[i % len(GREYS)], THEORY_DASHES[i % len(THEORY_DASHES)])
        elif family == "floor":
            chosen[curve.label] = Style(GREYS[i % len(GREYS)], FLOOR_DASH)
        else:
            chosen[curve.label] = Style(
                COLOURS[i % len(COLOURS)], MEASURED_DASHES[i % len(MEASURED_DASHES)], MARKS[i % len(MARKS)]
            )
    return chosen


def visible(values: Array, scale: Scale) -> Array:
    """The numbers an axis can show, a gap (NaN) in place of each other one."""
    return np.where(np.isfinite(values) & ((values > 0) | (scale == "linear")), values, np.nan)


def band(curve: Curve, panel: Panel) -> tuple[Array, Array, Array] | None:
    """x, low and high where the band can be shown; on a logarithmic axis it ends above zero."""
    if curve.low is None or curve.high is None:
        return None
    x, high = visible(curve.x, panel.xscale), visible(curve.high, panel.yscale)
    low = curve.low
    if panel.yscale == "log":
        heights = np.concatenate((curve.low, curve.y, curve.high))
        low = np.maximum(low, heights[heights > 0].min(initial=np.inf))
    keep = np.isfinite(x) & np.isfinite(low) & (high >= low)
    return (x[keep], low[keep], high[keep]) if keep.any() else None


def wrapped(text: str, width: int) -> list[str]:
    """The lines of a label, at least one; a value stays with its name.

    >>> wrapped("FedAvg with step η = 0.1", 20)
    ['FedAvg with step', 'η = 0.1']
    """
    joined = text.replace(" = ", "\u00a0=\u00a0")
    lines = textwrap.wrap(joined, width) or [""]
    return [line.replace("\u00a0", " ") for line in lines]
