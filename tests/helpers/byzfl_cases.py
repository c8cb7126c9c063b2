"""Uploads, and what the library byzfl makes of them by each of its rules that `fedlin.aggregation` has too.

byzfl imports its benchmarks too, which need more libraries; an empty module stands in for them.
"""

import sys
from importlib import import_module
from typing import Any
from unittest.mock import MagicMock, patch

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fedlin import aggregation
from fedlin.aggregation import Aggregator, draw_order
from fedlin.precision import precision

Array = NDArray[Any]
KEY = 7  # of the draws
ROWS: Array = np.random.default_rng(22).standard_normal((11, 6)) * np.linspace(0.5, 30.0, 11)[:, None] + 3.0

OURS: dict[str, Aggregator] = {
    "median": aggregation.coordinate_median(),
    "trimmed mean": aggregation.trimmed_mean(3),
    "geometric median": aggregation.geometric_median(steps=9, smoothing=0.1),
    "clipping": aggregation.centred_clipping(2.5, steps=4),
    "krum": aggregation.krum(3),
    "multi-krum": aggregation.multi_krum(3),
    "mixing, median": aggregation.nearest_neighbour_mixing(aggregation.coordinate_median(), 3),
    "mixing, trimmed mean": aggregation.nearest_neighbour_mixing(aggregation.trimmed_mean(3), 3),
    "buckets, trimmed mean": aggregation.bucketing(aggregation.trimmed_mean(2), 2),
    "buckets of three, krum": aggregation.bucketing(aggregation.krum(1), 3),
}


def shuffled() -> Array:
    """The uploads in the order in which buckets are drawn."""
    with precision(np.dtype(np.float64)):
        order = draw_order(jnp.ones(len(ROWS), bool), jax.random.key(KEY))
    return np.array([ROWS[int(number)] for number in order])


def byzfl_values() -> dict[str, list[float]]:
    """What byzfl makes of the uploads, by the name of the case."""
    with patch.dict(sys.modules):
        sys.modules["byzfl.benchmark"] = MagicMock()
        byzfl = import_module("byzfl")

    clipping = byzfl.CenteredClipping(L=4, tau=2.5)
    clipping.m = np.median(ROWS, axis=0)  # where ours begins; its own argument for it refuses every array
    with patch("numpy.random.permutation", lambda rows: shuffled()):
        pairs, triples = byzfl.Bucketing(s=2)(ROWS.copy()), byzfl.Bucketing(s=3)(ROWS.copy())
    mixed = byzfl.NNM(f=3)(ROWS.copy())
    values = {
        "median": byzfl.Median()(ROWS),
        "trimmed mean": byzfl.TrMean(f=3)(ROWS),
        "geometric median": byzfl.GeometricMedian(nu=0.1, T=9)(ROWS),
        "clipping": clipping(ROWS),
        "krum": byzfl.Krum(f=3)(ROWS),
        "multi-krum": byzfl.MultiKrum(f=3)(ROWS),
        "mixing, median": byzfl.Median()(mixed),
        "mixing, trimmed mean": byzfl.TrMean(f=3)(mixed),
        "buckets, trimmed mean": byzfl.TrMean(f=2)(pairs),
        "buckets of three, krum": byzfl.Krum(f=1)(triples),
    }
    return {name: np.asarray(value).tolist() for name, value in values.items()}
