"""The clients' rows: read and dealt out, or drawn at random."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlin import data
from fedlin.errors import DataError
from fedlin.experiments import config
from fedlin.experiments.experiment_file import DATA

Array = NDArray[Any]


def rows(setting: config.RowsConfig) -> tuple[Any, Any, data.Partition | None, Array | None]:
    """X and y of every client; the partition and all labels too, where the rows come from data."""
    if setting.data is None:
        assert setting.synthetic is not None  # the model asks for one of the two
        return *draw_rows(setting.synthetic, setting.kind), None, None
    source = setting.data
    path = source.file or _stored(str(source.name)) or data.fetch(str(source.name))
    table = data.read(path, label=source.label, client=source.client, dim=source.dim)
    y = _labels(setting, table.y)
    partition = _partition(setting.partition, table, y)
    return *partition.take(table.X / source.scale, y), partition, table.y


def _labels(setting: config.RowsConfig, y: Array) -> Array:
    """Labels as the problem takes them: -1 and +1, or 0, 1, ... in sorted order."""
    positive = None if setting.data is None else setting.data.positive
    if setting.kind == "logistic":
        return data.signs(y, positive=positive)
    if positive is not None:
        raise DataError(f"positive = {positive!r} is for logistic regression, not for {setting.kind}: leave it out.")
    return np.unique(y, return_inverse=True)[1] if setting.kind == "softmax" else y


def _partition(setting: config.PartitionConfig | None, table: data.Table, y: Array) -> data.Partition:
    if setting is None:
        if table.clients is None:
            raise DataError("the data do not tell their clients: give partition, or the column as data.client.")
        return data.by_column(table.clients)
    clients, seed = setting.clients, setting.seed
    if setting.kind == "dirichlet":
        return data.dirichlet(y, clients, _given(setting.alpha), seed=seed)
    if setting.kind == "quantity":
        return data.quantity(len(y), clients, _given(setting.alpha), seed=seed)
    if setting.kind == "shards":
        return data.shards(y, clients, int(_given(setting.labels)), seed=seed)
    return data.iid(len(y), clients, seed=seed)


def _given(value: float | None) -> float:
    assert value is not None  # the model asks for it
    return value


def _stored(name: str) -> str | None:
    """A public data set that lies in the folder FEDLIN_DATA names, so that it need not be fetched."""
    folder = os.environ.get(DATA)
    files = (Path(folder, f"{name}{ending}") for ending in ("", ".gz", ".npz")) if folder else ()
    return next((str(file.resolve()) for file in files if file.is_file()), None)


def draw_rows(setting: config.SyntheticConfig, kind: str) -> tuple[Array, Array]:
    """X (m, n, d) and y (m, n): a ~ N(0, I), and y by client i's own W_i = W + √α V_i, entries of W and V_i ~ N(0, 1).

    Labels and counts follow the logistic, softmax or Poisson model of Aᵢ Wᵢ/√d; targets of a regression are
    Aᵢ Wᵢ + N(0, 0.5).

    >>> X, y = draw_rows(config.SyntheticConfig(clients=2, dim=3, samples=5), "logistic")
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
    if kind == "poisson":
        return X, source.poisson(np.exp(scores[..., 0] / np.sqrt(d))).astype(np.float64)
    return X, scores[..., 0] + np.sqrt(0.5) * source.standard_normal((m, n))
