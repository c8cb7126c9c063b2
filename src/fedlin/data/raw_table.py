"""A table as its file has it: columns of text or numbers, a label for every row, and whose row it is."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedlin.checks import did_you_mean, missing, shown
from fedlin.core import Array
from fedlin.data.csv_text import read_csv
from fedlin.data.number_text import missing_words, write_plainly
from fedlin.errors import DataError

LABEL, CLIENT = "label", "client"  # the columns' names unless others are given


@dataclass(frozen=True, eq=False)
class RawTable:
    """Rows before they are prepared.

    Attributes:
        columns: Text (None where it is missing) or numbers (NaN), by name.
        y: A label for every row.
        clients: The name of the client that holds each row.
        notes: What was assumed in reading.

    >>> RawTable({"age": np.array(["30", "old"], object)}, np.array(["yes", "no"], object), None).rows
    2
    """

    columns: dict[str, Array]
    y: Array
    clients: Array | None
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.y)

    def take(self, rows: Any) -> "RawTable":
        """Some of the rows: by their numbers, or by which are true.

        Args:
            rows: Numbers of rows, or a truth value for each row.

        Returns:
            A table of these rows.
        """
        return replace(
            self,
            columns={name: column[rows] for name, column in self.columns.items()},
            y=self.y[rows],
            clients=None if self.clients is None else self.clients[rows],
        )


def read_frames(files: Sequence[Path], label: str | None, client: str | None) -> RawTable:
    """One table of CSV or Parquet files; a file is a client, called as it without its ending, unless a column tells."""
    notes: list[str] = []
    frames = []
    for file in files:
        columns, assumed = _load(file, client or CLIENT)
        frames.append(columns)
        notes += [note if len(files) == 1 else f"{file.name}: {note}" for note in assumed]
    names = list(frames[0])
    client = _named(files[0], names, client, CLIENT)
    # Without a name the last column is the label, as in most files.
    label = _named(files[0], names, label, LABEL) or next((name for name in reversed(names) if name != client), None)
    if label is None or label == client:
        raise DataError(f"{files[0]}: column {client!r} cannot be both label and client; name two columns.")
    for name, role in ((label, "labels"), (client, "clients")):
        if f"{name} (2)" in names:
            raise DataError(f"{files[0]} has two columns called {name!r}, that of the {role}: rename one of them.")
    features = [name for name in names if name not in (label, client)]
    if not features:
        raise DataError(f"{files[0]} has no columns of features besides {label!r}: give at least one.")
    for file, columns in zip(files, frames, strict=True):
        _check_same(file, files[0], columns, names)
    together = {name: _joined([columns[name] for columns in frames]) for name in names}
    owners = _owners(files, frames) if client is None and len(files) > 1 else None
    return RawTable(
        {name: together[name] for name in features},
        together[label],
        _client_names(files[0], together[client]) if client is not None else owners,
        tuple(notes),
    )


def _load(file: Path, client: str) -> tuple[dict[str, Array], list[str]]:
    if file.suffix.lower() != ".parquet":
        return read_csv(file, as_text=client)
    import pandas as pd

    try:
        frame = pd.read_parquet(file)
    except Exception as cause:
        raise DataError(f"{file} cannot be read as a table of columns ({cause}): check or replace the file.") from cause
    if len(frame) == 0:
        raise DataError(f"{file} has no rows: leave it out, or give it at least one.")
    frame.columns = frame.columns.astype(str)
    if frame.columns.has_duplicates:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise DataError(f"{file} has two columns called {twice!r}: name each its own.")
    notes: list[str] = []
    columns = {name: _values(frame[name]) for name in frame.columns}
    for name, column in columns.items():
        if column.dtype.kind == "O" and name != client:
            columns[name] = write_plainly(column, commas_separate=True, notes=notes, name=name)
    return columns, notes


def _values(column: Any) -> Array:
    """A column of pandas: numbers with NaN, or text with None."""
    import pandas as pd

    if pd.api.types.is_bool_dtype(column) or not pd.api.types.is_numeric_dtype(column):
        return np.array([None if pd.isna(value) else str(value) for value in column], object)
    return np.asarray(column.to_numpy(np.float64, na_value=np.nan))


def _named(file: Path, names: Sequence[str], column: str | None, usual: str) -> str | None:
    if column is None:
        return usual if usual in names else None
    if column not in names:
        near = did_you_mean(str(column), names)
        some = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        raise DataError(f"{file} has no column {shown(column)}{near}: choose one of {some}.")
    return column


def _check_same(file: Path, first: Path, columns: dict[str, Array], names: Sequence[str]) -> None:
    absent = [name for name in names if name not in columns]
    extra = [name for name in columns if name not in names]
    if absent:
        raise DataError(
            f"{file} has no column {absent[0]!r}, which {first} has{did_you_mean(absent[0], extra)}: "
            "give all files the same columns."
        )
    if extra:
        raise DataError(f"{file} has a column {extra[0]!r}, which {first} has not: give all files the same columns.")


def _joined(parts: Sequence[Array]) -> Array:
    """One column of all files: numbers where all have numbers, else text."""
    if len({part.dtype.kind for part in parts}) == 1:
        return np.concatenate(parts)
    return np.concatenate([part if part.dtype.kind == "O" else _as_text(part) for part in parts])


def _as_text(numbers: Array) -> Array:
    return np.array([None if value != value else f"{value:.17g}" for value in numbers.tolist()], object)


def _owners(files: Sequence[Path], frames: Sequence[dict[str, Array]]) -> Array:
    stems = [file.name.split(".")[0] for file in files]
    if len(set(stems)) != len(stems):
        twice = next(stem for stem in stems if stems.count(stem) > 1)
        raise DataError(f"two files are called {twice!r}, which names the client: rename one of them.")
    counts = [len(next(iter(columns.values()))) for columns in frames]
    return np.repeat(np.array(stems), counts)


def _client_names(file: Path, column: Array) -> Array:
    """Names of clients as text, so that 01 and 1 are two; none may be missing."""
    text = _as_text(column) if column.dtype.kind != "O" else column
    absent = missing(text) | missing_words(np.where(missing(text), "", text))
    if absent.any():
        raise DataError(
            f"{file}: {int(absent.sum())} of {len(absent)} rows name no client, the first is row "
            f"{int(np.argmax(absent))} (rows are counted from 0): fill them in, or leave these rows out."
        )
    return text.astype(str)
