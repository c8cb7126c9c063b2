"""The clients' rows: read and dealt out, or drawn at random."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlin import data
from fedlin.errors import DataError
from fedlin.experiments import config
from fedlin.experiments.files import stored
from fedlin.experiments.synthetic import draw

Array = NDArray[Any]


def rows(setting: config.RowsConfig) -> tuple[Any, Any, data.Partition | None, Array | None]:
    """X and y of every client; the partition and all labels too, where the rows come from data."""
    if setting.data is None:
        assert setting.synthetic is not None  # the model asks for one of the two
        return *draw(setting.synthetic, setting.kind), None, None
    source = setting.data
    path = source.file or stored(str(source.name)) or data.fetch(str(source.name))
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
