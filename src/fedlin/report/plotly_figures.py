"""A figure for the browser: Plotly, one plot a panel so that panels stack on a narrow screen."""

from html import escape
from math import ceil
from typing import Any

import numpy as np
import plotly.graph_objects as go

from fedlin.report.figure import Array, Curve, Figure, Panel, Scale
from fedlin.report.style import Style, band, styles, visible, wrapped

PLOT_HEIGHT = 300  # pixels for the axes alone
ENTRY = 20  # pixels from one legend entry to the next
LABEL = 36  # letters that fit a phone beside a legend's sample of the line
LINE = 16  # pixels for a further line of text
SYMBOLS = {
    "circle": "circle",
    "square": "square",
    "triangle": "triangle-up",
    "diamond": "diamond",
    "cross": "cross",
    "x": "x",
}


def plots(figure: Figure) -> tuple[go.Figure, ...]:
    """One Plotly figure for each panel; a click on a legend entry hides the curve and its band.

    >>> curve = Curve("FedLin", np.array([0.0, 1.0]), np.array([1.0, 0.1]))
    >>> (plot,) = plots(Figure("demo", "Demo", (Panel("One round", "round", "error", (curve,)),)))
    >>> plot.data[0].name
    'FedLin'
    """
    look = styles(figure)
    return tuple(_plot(panel, look) for panel in figure.panels)


def _plot(panel: Panel, look: dict[str, Style]) -> go.Figure:
    traces: list[go.Scatter] = []
    for curve in panel.curves:
        traces += _traces(panel, curve, look[curve.label])
    xlabel, ylabel = wrapped(panel.xlabel, 40), wrapped(panel.ylabel, 38)
    labels = [wrapped(curve.label, LABEL) for curve in panel.curves]
    # The legend stands below the axis label on ground of its own, so it can cover nothing.
    bottom = 48 + LINE * len(xlabel) + sum(ENTRY + LINE * (len(label) - 1) for label in labels)
    return go.Figure(
        data=traces,
        layout={
            "height": PLOT_HEIGHT + bottom,
            "margin": {"l": 50 + LINE * len(ylabel), "r": 12, "t": 12, "b": bottom},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"size": 12},
            "hovermode": "closest",
            "xaxis": _axis(xlabel, panel.xscale, [curve.x for curve in panel.curves]),
            "yaxis": _axis(ylabel, panel.yscale, [curve.y for curve in panel.curves]),
            "legend": {
                "x": 0,
                "xanchor": "left",
                "yref": "container",
                "y": 0,
                "yanchor": "bottom",
                "maxheight": 1,
                "tracegroupgap": 0,
                "itemwidth": 36,
                "bgcolor": "rgba(0,0,0,0)",
            },
        },
    )


def _axis(title: list[str], scale: Scale, values: list[Array]) -> dict[str, Any]:
    axis: dict[str, Any] = {
        "title": {"text": "<br>".join(map(escape, title)), "standoff": 8},
        "type": scale,
        "zeroline": False,
        "showline": True,
        "ticks": "outside",
    }
    if scale == "log":
        # Whole powers of ten, at most about seven; Plotly enlarges their figures by a quarter.
        shown_values = np.concatenate([visible(each, scale) for each in values] or [np.ones(1)])
        shown_values = shown_values[np.isfinite(shown_values)]
        decades = float(np.log10(shown_values.max() / shown_values.min())) if shown_values.size else 1.0
        axis |= {"exponentformat": "power", "dtick": max(1, ceil(decades / 7)), "tickfont": {"size": 9.6}}
    return axis


def _traces(panel: Panel, curve: Curve, style: Style) -> list[go.Scatter]:
    """The line, preceded by its band as a closed outline in the same legend group."""
    common: dict[str, Any] = {"legendgroup": curve.label, "meta": curve.kind}
    name = "<br>".join(escape(line) for line in wrapped(curve.label, LABEL))
    edges = band(curve, panel)
    traces: list[go.Scatter] = []
    if edges is not None and curve.kind != "points":
        x, low, high = edges
        traces.append(
            go.Scatter(
                x=np.concatenate((x, x[::-1])),
                y=np.concatenate((high, low[::-1])),
                mode="lines",
                line={"width": 0},
                fill="toself",
                fillcolor=_faint(style.colour),
                hoverinfo="skip",
                showlegend=False,
                **common,
            )
        )
    line = go.Scatter(
        x=visible(curve.x, panel.xscale),
        y=visible(curve.y, panel.yscale),
        name=name,
        hovertemplate="x %{x}<br>y %{y:.4g}",
        mode={"points": "markers", "measured": "lines+markers"}.get(curve.kind, "lines"),
        line={
            "color": style.colour,
            "width": 2 if curve.kind == "measured" else 1.6,
            "dash": ",".join(f"{length * 1.4:g}px" for length in style.dash) or "solid",
        },
        marker={
            "color": style.colour,
            "symbol": SYMBOLS.get(style.mark),
            "size": 7,
            "maxdisplayed": _shown(curve),
        },
        **common,
    )
    if edges is not None and curve.kind == "points":
        line.error_y = {
            "type": "data",
            "symmetric": False,
            "array": curve.high - curve.y if curve.high is not None else None,
            "arrayminus": curve.y - curve.low if curve.low is not None else None,
            "thickness": 1.2,
            "width": 0,
        }
    return [*traces, line]


def _shown(curve: Curve) -> int:
    """How many marks to draw: all of single points (0 means all), a few along a line."""
    return 0 if curve.kind == "points" else 8


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.18)"
