"""A figure for print: Matplotlib, a column's width a panel, readable without colour."""

from math import ceil, log10
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.legend import Legend
from matplotlib.ticker import NullFormatter
from matplotlib.transforms import ScaledTranslation

from fedlin.report.figure import Array, Curve, Figure, Panel
from fedlin.report.style import Style, band, styles, visible, wrapped

COLUMN = 3.4  # inches: the width of one column of a two-column paper
POINT = 1 / 72
LINE = 11.0  # points from one line of small text to the next
RC: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7.5,
    "axes.linewidth": 0.6,
    "axes.edgecolor": "#444444",
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "grid.linewidth": 0.4,
    "grid.color": "#dddddd",
    "figure.constrained_layout.w_pad": 0.08,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "svg.hashsalt": "fedlin",  # the ids inside an SVG come out the same on every run
    "svg.fonttype": "path",
}
LEGEND: dict[str, Any] = {
    "frameon": False,
    "handlelength": 3.2,
    "columnspacing": 1.4,
    "labelspacing": 0.35,
}
MARKERS = {"circle": "o", "square": "s", "triangle": "^", "diamond": "D", "cross": "P", "x": "X", "": ""}


def draw(figure: Figure) -> Canvas:
    """The figure on a Matplotlib canvas of its own; pyplot and its state are left alone.

    >>> curve = Curve("FedLin", np.array([0.0, 1.0]), np.array([1.0, 0.1]))
    >>> canvas = draw(Figure("demo", "Demo", (Panel("One round", "round", "error", (curve,)),)))
    >>> len(canvas.axes)
    1
    """
    look = styles(figure)
    panels = figure.panels
    shared = len(panels) > 1 and len({tuple(curve.label for curve in panel.curves) for panel in panels}) == 1
    blocks = [_legend_shape(panel, COLUMN * len(panels) if shared else COLUMN) for panel in panels]
    below = max(rows for _, rows in blocks) * LINE * POINT
    above = max(len(_title(panel)) for panel in panels) * LINE * POINT
    with rc_context(RC):
        canvas = Canvas(figsize=(COLUMN * len(panels), 2.45 + above + below), layout="constrained")
        grid = canvas.subplots(1, len(panels), squeeze=False)
        for axes, panel, (columns, _) in zip(grid[0], panels, blocks, strict=True):
            _draw_panel(axes, panel, look)
            if panel.curves and not shared:
                # Hung a fixed distance under the axes, past tick labels and axis label.
                drop = 22 + LINE * len(_xlabel(panel))
                anchor = axes.transAxes + ScaledTranslation(0, -drop * POINT, canvas.dpi_scale_trans)
                place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "bbox_transform": anchor}
                _plain(axes.legend(**place, borderaxespad=0, ncols=columns, **LEGEND))
        if shared:
            handles, labels = grid[0][0].get_legend_handles_labels()
            _plain(canvas.legend(handles, labels, loc="outside lower center", ncols=blocks[0][0], **LEGEND))
    return canvas


def save(figure: Figure, folder: Path, stem: str | None = None) -> tuple[Path, Path]:
    """Write PNG and SVG named after the figure (or `stem`); the same figure gives the same bytes."""
    name = stem or figure.name
    png, svg = folder / f"{name}.png", folder / f"{name}.svg"
    canvas = draw(figure)
    with rc_context(RC):
        canvas.savefig(png, dpi=200, metadata={"Software": None})
        canvas.set_layout_engine("none")  # it is laid out by now, and doing it again is half the work
        canvas.savefig(svg, metadata={"Date": None, "Creator": None})
    return png, svg


def _plain(legend: Legend) -> None:
    """A dollar sign in a label is a dollar sign."""
    for text in legend.get_texts():
        text.set_parse_math(False)


def _title(panel: Panel) -> list[str]:
    return wrapped(panel.title, 46)


def _xlabel(panel: Panel) -> list[str]:
    return wrapped(panel.xlabel, 48)


def _label(curve: Curve) -> list[str]:
    return wrapped(curve.label, 44)


def _legend_shape(panel: Panel, width: float) -> tuple[int, int]:
    """Columns that fit side by side in that many inches, and the rows of text they come to."""
    labels = [_label(curve) for curve in panel.curves]
    if not labels:
        return 1, 0
    entry = 40 + 4.4 * max(len(line) for label in labels for line in label)  # points, from a mean letter
    columns = min(len(labels), max(1, int(width / POINT / entry)))
    return columns, ceil(len(labels) / columns) * max(len(label) for label in labels)


def _draw_panel(axes: Axes, panel: Panel, look: dict[str, Style]) -> None:
    axes.set_xscale(panel.xscale)
    axes.set_yscale(panel.yscale)
    axes.set_title("\n".join(_title(panel)), parse_math=False)
    axes.set_xlabel("\n".join(_xlabel(panel)), parse_math=False)
    axes.set_ylabel("\n".join(wrapped(panel.ylabel, 34)), parse_math=False)
    axes.grid(True)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    for i, curve in enumerate(panel.curves):
        _draw_curve(axes, panel, curve, look[curve.label], i)
    low, high = axes.get_xlim()
    if panel.xscale == "log" and ceil(log10(low)) <= log10(high):
        # Beside a power of ten, labels of the numbers between would run into each other.
        axes.xaxis.set_minor_formatter(NullFormatter())


def _draw_curve(axes: Axes, panel: Panel, curve: Curve, style: Style, i: int) -> None:
    edges = band(curve, panel)
    x, y = visible(curve.x, panel.xscale), visible(curve.y, panel.yscale)
    label = "\n".join(_label(curve))
    if curve.kind == "points":
        axes.plot(x, y, MARKERS[style.mark], color=style.colour, label=label, zorder=3)
        if edges is not None:
            axes.vlines(edges[0], edges[1], edges[2], color=style.colour, linewidth=0.9, zorder=2)
        return
    if edges is not None:
        axes.fill_between(*edges, color=style.colour, alpha=0.18, linewidth=0)
    axes.plot(
        x,
        y,
        color=style.colour,
        linestyle=(0, style.dash) if style.dash else "-",
        linewidth=1.3 if curve.kind == "measured" else 1.1,
        marker=MARKERS[style.mark],
        markevery=_sparse(x, panel, i),
        label=label,
        zorder=3 if curve.kind == "measured" else 2.5,
    )


def _sparse(x: Array, panel: Panel, i: int) -> list[int]:
    """About eight indices evenly spread on the axis, shifted by curve so that marks do not pile up."""
    if len(x) <= 8 or np.isnan(x).all():
        return list(range(len(x)))
    place = np.log(x) if panel.xscale == "log" else x
    start, stop = np.nanmin(place), np.nanmax(place)
    spots = start + (stop - start) * (np.arange(8) + 0.15 + 0.12 * (i % 6)) / 8
    return sorted({int(np.nanargmin(np.abs(place - spot))) for spot in spots})
