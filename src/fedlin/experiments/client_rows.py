"""The clients' rows: read and split, or drawn at random."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedlin import data
from fedlin.core import Array
from fedlin.data.prepare_table import HeldOut, LabelledRows, plain_labels, with_labels
from fedlin.data.read import has_columns
from fedlin.errors import DataError
from fedlin.experiments import config
from fedlin.experiments.experiment_file import DATA


@dataclass(frozen=True, eq=False)
class ClientData:
    """What a problem is built from: rows to learn from, rows to test on, and where they came from."""

    X: Any  # of every client
    y: Any
    test: LabelledRows | None = None
    classes: tuple[str, ...] = ()  # the labels that y numbers, in order
    partition: data.Partition | None = None  # of all rows of the data, where the rows come from data
    labels: Array | None = None  # of all rows, as the data have them
    preparation: data.Preparation | None = None
    notes: tuple[str, ...] = ()
    exchanged: tuple[int, int] = (0, 0)  # bytes that preparing sends up and down

    @property
    def sizes(self) -> list[int]:
        """The number of rows of every client."""
        return [len(part) for part in self.y]

    def penalties(self, l2: float, outputs: int = 1) -> Any:
        """l2 for each entry of a model: none on an intercept."""
        return l2 if self.preparation is None else self.preparation.penalties(l2, outputs)


def client_data(setting: config.RowsConfig) -> ClientData:
    """The rows of every client that a file's [problem] describes."""
    if setting.data is None:
        return _drawn(setting)
    source = setting.data
    path = source.file or _stored(str(source.name)) or data.fetch(str(source.name))
    # Whoever scales by hand wants nothing else done.
    automatic = setting.prepare.mode == "auto" and source.scale == 1 and has_columns(path)
    if setting.prepare.mode == "always" or automatic:
        return _prepared(setting, source, path)
    table = data.read(path, label=source.label, client=source.client, dim=source.dim)
    y, classes = _labels(setting, table.y)
    partition = _partition(setting.partition, table.clients, y)
    X = table.X / source.scale
    held = _held_out(setting, partition)
    test = LabelledRows([X[rows] for rows in held.test], [y[rows] for rows in held.test], held.test_names)
    return ClientData(
        [X[rows] for rows in held.train],
        [y[rows] for rows in held.train],
        test if held.test else None,
        classes,
        partition,
        table.y,
    )


def _prepared(setting: config.RowsConfig, source: config.DataConfig, path: str | Path) -> ClientData:
    if source.dim is not None:
        raise DataError(f"dim = {source.dim} is for LIBSVM files as they are: leave it or prepare out.")
    table = with_labels(data.read_table(path, label=source.label, client=source.client, missing=source.missing))
    labels = plain_labels(table.y)
    y, classes = _labels(setting, labels)
    partition = _partition(setting.partition, table.clients, y)
    fields = setting.prepare.model_dump(exclude={"mode"})
    test = setting.test
    prepared = data.prepare(
        table,
        data.Recipe(**fields),
        partition=partition,
        test=0.0 if test is None else test.share,
        test_by="row" if test is None else test.by,
        seed=0 if test is None else test.seed,
    )
    held = _held_out(setting, partition)
    return ClientData(
        prepared.train.X,
        [y[rows] for rows in held.train],
        prepared.test._replace(y=[y[rows] for rows in held.test]) if held.test else None,
        classes,
        partition,
        labels,
        prepared.preparation,
        prepared.notes,
        (prepared.bytes_up, prepared.bytes_down),
    )


def _held_out(setting: config.RowsConfig, partition: data.Partition) -> HeldOut:
    test = setting.test
    return data.hold_out(partition, 0.0) if test is None else data.hold_out(partition, test.share, test.by, test.seed)


def _drawn(setting: config.RowsConfig) -> ClientData:
    assert setting.synthetic is not None  # the model asks for data or this
    X, y = draw_rows(setting.synthetic, setting.kind)
    classes = tuple(map(str, range(setting.synthetic.classes))) if setting.kind == "softmax" else ()
    if setting.test is None:
        return ClientData(X, y, classes=classes)
    clients, samples = y.shape
    held = _held_out(setting, data.Partition(np.split(np.arange(clients * samples), clients)))
    rows, labels = X.reshape(-1, X.shape[-1]), y.reshape(-1)
    test = LabelledRows([rows[part] for part in held.test], [labels[part] for part in held.test], held.test_names)
    return ClientData([rows[part] for part in held.train], [labels[part] for part in held.train], test, classes)


def _labels(setting: config.RowsConfig, y: Array) -> tuple[Array, tuple[str, ...]]:
    """Labels as the problem takes them, and what they stand for: -1 and +1, or 0, 1, ... in sorted order."""
    positive = None if setting.data is None else setting.data.positive
    if setting.kind == "logistic":
        signs = data.signs(y, positive=positive)
        return signs, tuple(str(y[np.argmax(signs == sign)]) for sign in (-1, 1))
    if positive is not None:
        raise DataError(f"positive = {positive!r} is for logistic regression, not for {setting.kind}: leave it out.")
    if setting.kind == "softmax":
        values, codes = np.unique(y, return_inverse=True)
        return codes, tuple(f"{value:g}" if isinstance(value, float) else str(value) for value in values.tolist())
    if y.dtype.kind not in "biuf":
        raise DataError(f"the label holds words such as {y[0]!r}: give numbers for {setting.kind}, or another kind.")
    return y, ()


def _partition(setting: config.PartitionConfig | None, names: Array | None, y: Array) -> data.Partition:
    if setting is None:
        if names is None:
            raise DataError("the data do not tell their clients: give partition, or the column as data.client.")
        return data.by_column(names)
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
