"""From a table to what problems take: rows split among clients, some held out, all prepared as a federation would.

Every client tells a summary of its columns, the server merges them and decides, and every client prepares its own rows:
`summarise_columns`, `fit_preparation` and `Preparation.transform` are what runs on real machines too. Here all of it
runs in one process, and the bytes that would travel are counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedlin.checks import one_of, random_seed, real, shown
from fedlin.core import Array
from fedlin.data.column_summary import ColumnSummary, from_bytes, merge_summaries, summarise, to_bytes
from fedlin.data.fit_preparation import fit_preparation
from fedlin.data.number_text import missing_words, numbers
from fedlin.data.partition import Partition
from fedlin.data.preparation import LABELS, Preparation, Recipe
from fedlin.data.raw_table import RawTable
from fedlin.data.split import by_column
from fedlin.errors import ArgumentError, DataError

Rows = NDArray[np.intp]


class HeldOut(NamedTuple):
    """The rows of every client to learn from, and those of every client to test on."""

    train: list[Rows]
    train_names: tuple[str, ...]
    test: list[Rows]
    test_names: tuple[str, ...]


class LabelledRows(NamedTuple):
    """Features and labels, a list entry for each client, and the clients' names."""

    X: list[Array]
    y: list[Array]
    clients: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class PreparedTable:
    """What `prepare` returns: features and labels of every client, and how they came about.

    Attributes:
        train: Features and labels of every client to learn from.
        test: Those to test on.
        preparation: How they were made.
        notes: What a reader should know of it.
        bytes_up: Bytes that preparing would send from clients to the server.
        bytes_down: The same from the server to clients.

    >>> columns = {"age": np.array(["30", "50"], object)}
    >>> prepared = prepare(RawTable(columns, np.array(["no", "yes"], object), np.array(["a", "b"])))
    >>> prepared.train.clients, prepared.preparation.names
    (('a', 'b'), ('age', 'intercept'))
    """

    train: LabelledRows
    test: LabelledRows
    preparation: Preparation
    notes: tuple[str, ...]
    bytes_up: int
    bytes_down: int


def prepare(
    table: RawTable,
    recipe: Recipe | None = None,
    *,
    partition: Partition | None = None,
    test: float = 0.0,
    test_by: str = "row",
    seed: int = 0,
) -> PreparedTable:
    """Features and labels of every client, prepared by what clients can sum without showing their rows.

    Args:
        table: The rows, as `read_table` returns them.
        recipe: What is to be done with the columns; `Recipe()` unless given, which standardises numbers, turns words
            into ones and zeros and adds an intercept.
        partition: Which rows belong to which client, unless the table tells.
        test: The share of rows, or of clients, that is held out for a test and not used to prepare.
        test_by: "row" to hold out rows of every client, "client" to hold out whole clients.
        seed: The seed of what is held out.

    Returns:
        A `PreparedTable`: `train.X` and `train.y` are lists with an entry for each client, as are those of `test`.

    >>> words = {"age": ["30", "50", "", "40"], "sex": ["f", "m", "f", "m"]}
    >>> columns = {name: np.array(column, object) for name, column in words.items()}
    >>> table = RawTable(columns, np.array(["no", "yes", "no", "no"], object), np.array(["a", "a", "b", "b"]))
    >>> prepared = prepare(table)
    >>> prepared.preparation.names, prepared.train.clients
    (('age', 'sex=m', 'intercept'), ('a', 'b'))
    >>> prepared.train.X[1].round(3).tolist()
    [[0.0, 0.0, 1.0], [0.0, 1.0, 1.0]]
    """
    recipe = Recipe() if recipe is None else recipe
    _check_kind("table", table, RawTable, "what read_table returns")
    _check_kind("recipe", recipe, Recipe, "a fedlin.data.Recipe")
    if partition is None:
        if table.clients is None:
            raise DataError("the table does not tell its clients: give partition, or name their column when reading.")
        table = with_labels(table)
        partition = by_column(table.clients)
    _check_partition(partition)
    if partition.rows != table.rows:
        raise DataError(f"the partition is of {partition.rows} rows and the table has {table.rows}.")
    held = hold_out(partition, test, test_by, seed)
    parts = [table.take(rows) for rows in held.train]
    messages = [to_bytes(summarise_table(part, recipe)) for part in parts]
    preparation = fit_preparation(recipe, merge_summaries([from_bytes(message) for message in messages]))
    reply = preparation.to_bytes()
    tests = [table.take(rows) for rows in held.test]
    return PreparedTable(
        _labelled(preparation, parts, held.train_names),
        _labelled(preparation, tests, held.test_names),
        preparation,
        (*table.notes, *preparation.notes),
        sum(map(len, messages)),
        len(reply) * len(parts),
    )


def _labelled(preparation: Preparation, parts: Sequence[RawTable], names: tuple[str, ...]) -> LabelledRows:
    return LabelledRows([preparation.transform(part.columns) for part in parts], [part.y for part in parts], names)


def summarise_table(table: RawTable, recipe: Recipe) -> dict[str, ColumnSummary]:
    """What a client tells of its table: the columns the recipe leaves in, and the labels."""
    return {**summarise_columns(table.columns, recipe), LABELS: summarise(table.y)}


def summarise_columns(columns: Mapping[str, Array], recipe: Recipe) -> dict[str, ColumnSummary]:
    """What a client tells of its columns: those the recipe leaves in."""
    summaries = {}
    for name in recipe.leaves(columns):
        try:
            summaries[name] = summarise(columns[name], as_words=name in recipe.words, sketch=recipe.sketches)
        except DataError as cause:
            raise DataError(
                f"column {name!r} cannot be prepared: {cause} Leave it out, or use another unit."
            ) from cause
    return summaries


def hold_out(partition: Partition, share: float, by: str = "row", seed: int = 0) -> HeldOut:
    """Deal every client's rows to learning and testing, each client by itself; or the clients.

    Args:
        partition: The rows of every client.
        share: The share that is held out, in [0, 1).
        by: "row" to hold out rows of every client, "client" to hold out whole clients.
        seed: What decides every draw.

    Returns:
        The rows of every client to learn from and to test on.

    >>> from fedlin.data.split import iid
    >>> held = hold_out(iid(10, 2), 0.4)
    >>> [len(rows) for rows in held.train], [len(rows) for rows in held.test]
    ([3, 3], [2, 2])
    """
    _check_partition(partition)
    share = real("test", share, lambda value: 0 <= value < 1, "a share in [0, 1)")
    one_of("test_by", by, ("row", "client"))
    seed, names = random_seed(seed), partition.names
    if share == 0:
        return HeldOut(list(partition.indices), names, [], ())
    if by == "client":
        return _hold_out_clients(partition, share, seed)
    train, test = [], []
    for number, rows in enumerate(partition.indices):
        count = min(round(share * len(rows)), len(rows) - 1)
        chosen = np.random.default_rng([seed, number]).permutation(len(rows)) < count
        train.append(rows[~chosen])
        test.append(rows[chosen])
    tested = [number for number, rows in enumerate(test) if len(rows)]
    if not tested:
        raise DataError(f"test = {share:g} leaves no row to test on: every client has too few rows. Raise it.")
    return HeldOut(train, names, [test[number] for number in tested], tuple(names[number] for number in tested))


def _check_kind(name: str, value: object, kind: type, what: str) -> None:
    if not isinstance(value, kind):
        raise ArgumentError(f"{name} = {shown(value)} is not allowed: give {what}.")


def _check_partition(partition: object) -> None:
    _check_kind("partition", partition, Partition, "a fedlin.data.Partition, such as fedlin.data.iid(n, 10)")


def _hold_out_clients(partition: Partition, share: float, seed: int) -> HeldOut:
    count = round(share * partition.clients)
    if not 0 < count < partition.clients:
        raise DataError(
            f"test = {share:g} of {partition.clients} clients is {count}: at least one must be left on either side."
        )
    chosen = np.random.default_rng(seed).permutation(partition.clients) < count
    sides = [[number for number in range(partition.clients) if chosen[number] == side] for side in (False, True)]
    (train, train_names), (test, test_names) = (
        ([partition.indices[number] for number in side], tuple(partition.names[number] for number in side))
        for side in sides
    )
    return HeldOut(train, train_names, test, test_names)


def with_labels(table: RawTable) -> RawTable:
    """The table without rows that have no label, which its notes say."""
    absent = np.isnan(table.y) if table.y.dtype.kind == "f" else missing_words(table.y)
    if absent.all():
        raise DataError("no row has a label: name the column of labels.")
    if not absent.any():
        return table
    labelled = table.take(~absent)
    return RawTable(
        labelled.columns,
        labelled.y,
        labelled.clients,
        (*table.notes, f"{int(absent.sum())} rows without a label left out"),
    )


def plain_labels(y: Array) -> Array:
    """Labels as numbers where all are, else as words."""
    values = numbers(y)
    return values if np.isfinite(values).all() else np.array([str(value) for value in y])
