"""CSV and Parquet: which columns are features, which the label and which the client."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlin.checks import did_you_mean
from fedlin.data.table import Table, checked
from fedlin.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

LABEL, CLIENT = "label", "client"  # the columns' names unless others are given


def read_frames(files: Sequence[Path], label: str | None, client: str | None) -> list[Table]:
    """A table a file; the first file's columns say what the others must have, in any order."""
    frames = [_load(file) for file in files]
    columns = [str(column) for column in frames[0].columns]
    client = _named(files[0], columns, client, CLIENT)
    # Without a name the last column is the label, as in most files.
    label = _named(files[0], columns, label, LABEL) or next(c for c in reversed(columns) if c != client)
    if label == client:
        raise DataError(f"{files[0]}: column {label!r} cannot be both label and client; name two columns.")
    features = [column for column in columns if column not in (label, client)]
    if not features:
        raise DataError(f"{files[0]} has no columns of features besides {label!r}: give at least one.")
    return [
        _table(file, _same(file, files[0], frame, columns), features, label, client)
        for file, frame in zip(files, frames, strict=True)
    ]


def _load(file: Path) -> "pd.DataFrame":
    import pandas as pd

    try:
        frame = pd.read_parquet(file) if file.suffix.lower() == ".parquet" else pd.read_csv(file)
    except Exception as cause:
        raise DataError(f"{file} cannot be read as a table of columns ({cause}): check or replace the file.") from cause
    frame.columns = frame.columns.astype(str)
    if len(frame) == 0:
        raise DataError(f"{file} has no rows: leave it out, or give it at least one.")
    return frame


def _named(file: Path, columns: Sequence[str], asked: str | None, usual: str) -> str | None:
    if asked is None:
        return usual if usual in columns else None
    if asked not in columns:
        raise DataError(
            f"{file} has no column {asked!r}{did_you_mean(asked, columns)}: choose one of {_listed(columns)}."
        )
    return asked


def _same(file: Path, first: Path, frame: "pd.DataFrame", columns: Sequence[str]) -> "pd.DataFrame":
    missing = [column for column in columns if column not in frame.columns]
    extra = [column for column in frame.columns if column not in columns]
    if missing:
        raise DataError(
            f"{file} has no column {missing[0]!r}, which {first} has{did_you_mean(missing[0], extra)}: "
            "give all files the same columns."
        )
    if extra:
        raise DataError(f"{file} has a column {extra[0]!r}, which {first} has not: give all files the same columns.")
    return frame


def _table(file: Path, frame: "pd.DataFrame", features: list[str], label: str, client: str | None) -> Table:
    X = np.column_stack([_numbers(file, frame[column]) for column in features])
    names = None if client is None else _values(frame[client])
    return checked(file, X, _values(frame[label]), names, features)


def _numbers(file: Path, column: "pd.Series[Any]") -> Any:
    import pandas as pd

    if not pd.api.types.is_numeric_dtype(column):
        wrong = int(np.argmax(pd.to_numeric(column, errors="coerce").isna() & column.notna()))
        raise DataError(
            f"{file}: column {column.name!r} holds {column.iloc[wrong]!r} in row {wrong}, which is no number (rows are "
            "counted from 0): encode words as numbers, or leave the column out."
        )
    return column.to_numpy(np.float64, na_value=np.nan)


def _values(column: "pd.Series[Any]") -> Any:
    """Labels or names as NumPy has them, None where there is none."""
    plain = column.to_numpy()
    return plain if plain.dtype.kind in "biuf" else column.astype(object).where(column.notna(), None).to_numpy()


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(columns[:12]) + (", ..." if len(columns) > 12 else "")
