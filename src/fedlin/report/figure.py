"""A picture as data: panels of curves, drawn by Matplotlib for papers and by Plotly for the browser."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Scale = Literal["linear", "log"]
Kind = Literal["measured", "theory", "floor", "points"]


@dataclass(frozen=True)
class Curve:
    """One line of a legend; `low` and `high` bound the band over draws, `y` is its median."""

    label: str
    x: Array
    y: Array
    low: Array | None = None
    high: Array | None = None
    kind: Kind = "measured"


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    xlabel: str
    ylabel: str
    curves: tuple[Curve, ...]
    xscale: Scale = "linear"
    yscale: Scale = "log"


@dataclass(frozen=True)
class Figure:
    """Panels side by side; `name` is a file name without its ending."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    caption: str = ""
