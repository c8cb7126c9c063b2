"""Clients drawn at random for logistic, softmax and least-squares regression over rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlin.experiments.config import SyntheticConfig

Array = NDArray[Any]


def draw(setting: SyntheticConfig, kind: str) -> tuple[Array, Array]:
    """X (m, n, d) and y (m, n): a ~ N(0, I), and y by client i's own W_i = W + √α V_i, entries of W and V_i ~ N(0, 1).

    Labels follow the logistic or the softmax model of Aᵢ Wᵢ/√d; targets of a regression are Aᵢ Wᵢ + N(0, 0.5).

    >>> X, y = draw(SyntheticConfig(clients=2, dim=3, samples=5), "logistic")
    >>> X.shape, sorted(set(y.ravel().tolist()))
    ((2, 5, 3), [-1.0, 1.0])
    """
    source = np.random.default_rng(setting.seed)
    m, n, d = setting.clients, setting.samples, setting.dim
    outputs = setting.classes if kind == "softmax" else 1
    X = source.standard_normal((m, n, d))
    W = source.standard_normal((d, outputs)) + np.sqrt(setting.alpha) * source.standard_normal((m, d, outputs))
    scores = X @ W
    if kind == "softmax":
        # The largest of scores with Gumbel noise is a draw from the softmax model.
        return X, np.argmax(scores / np.sqrt(d) + source.gumbel(size=scores.shape), axis=-1)
    if kind == "logistic":
        return X, np.where(scores[..., 0] / np.sqrt(d) + source.logistic(size=(m, n)) > 0, 1.0, -1.0)
    return X, scores[..., 0] + np.sqrt(0.5) * source.standard_normal((m, n))
