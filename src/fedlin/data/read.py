"""Tables from files: LIBSVM, CSV, Parquet and NumPy archives; in a folder of files each is one client's."""

import glob
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from fedlin.checks import did_you_mean, file_name, is_sparse, positive_integer, shown
from fedlin.data.csv_text import open_unpacked
from fedlin.data.number_text import missing_words, numbers
from fedlin.data.raw_table import RawTable, read_frames
from fedlin.data.table import Table, checked
from fedlin.errors import ArgumentError, DataError

COMPRESSED = (".gz", ".bz2")
LIBSVM = (".libsvm", ".svm", ".t", "")
FRAMES = (".csv", ".tsv", ".tab", ".dat", ".data", ".parquet")
LOOKED_AT = 100  # lines
TEXT = ".txt"  # either of the two
ARCHIVE = (".npz",)
INFINITE = ("inf", "infinity")
Source = str | PathLike[str]


def read(
    path: Source | Sequence[Source], *, label: str | None = None, client: str | None = None, dim: int | None = None
) -> Table:
    """Rows of numbers, labels and, where the data tell, clients.

    Several files share one feature space. Each is one client, called as the file without its suffix, unless the
    rows themselves tell their clients.

    Args:
        path: A file, a folder, a list of files or a glob. LIBSVM (.libsvm, .svm, .t or no suffix) stays sparse; .csv,
            .tsv, .tab, .dat, .data and .parquet have columns; .txt is taken for what its first lines look like; .npz
            has arrays `X`, `y` and, if you like, `clients`. Text may be compressed (.gz, .bz2).
        label: The column of labels, by default "label", or else the last one.
        client: The column of clients, by default "client" if there is one. All other columns are features.
        dim: The number of features of a LIBSVM file that does not show the last of them.

    Returns:
        The table. Its features are numbers; for columns of words, missing entries and units of all kinds see
        `read_table` and `prepare`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name, rows in {"north": "1,2,0\\n3,4,1\\n", "south": "5,6,1\\n"}.items():
    ...         _ = Path(folder, f"{name}.csv").write_text("age,size,label\\n" + rows)
    ...     table = read(folder)
    >>> table.X.tolist(), table.y.tolist(), table.clients.tolist()
    ([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [0.0, 1.0, 1.0], ['north', 'north', 'south'])
    """
    files = _files(path)
    kind = _kind(files)
    if kind is not FRAMES and (label, client) != (None, None):
        raise ArgumentError(
            f"label = {shown(label)} and client = {shown(client)} name columns, which {files[0]} does not have."
        )
    if kind is not LIBSVM and dim is not None:
        raise ArgumentError(f"dim = {dim!r} is for LIBSVM files; {files[0]} tells its number of features itself.")
    if kind is FRAMES:
        return _numeric(files[0] if len(files) == 1 else path, read_frames(files, label, client))
    if kind is LIBSVM:
        return _together(files, _libsvm(files, None if dim is None else positive_integer("dim", dim)))
    return _together(files, [_archive(file) for file in files])


def read_table(
    path: Source | Sequence[Source],
    *,
    label: str | None = None,
    client: str | None = None,
    missing: Sequence[str] = (),
) -> RawTable:
    """Rows as their files have them, words and missing entries included, for `prepare`.

    Args:
        path: As for `read`.
        label: The column of labels, by default "label", or else the last one.
        client: The column of clients, by default "client" if there is one. Their names stay text: 01 is not 1.
        missing: What stands for a missing entry besides nothing, NA, ?, - and the like; for example "-999".

    Returns:
        The table; its `notes` say what was assumed in reading.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "a.csv")
    ...     _ = file.write_text("site;age;ill\\n01;30,5;yes\\n1;NA;no\\n")
    ...     table = read_table(file, client="site")
    >>> table.clients.tolist(), table.columns["age"].tolist(), table.notes[0]
    (['01', '1'], ['30.5', 'NA'], 'fields are separated by semicolons')
    """
    if isinstance(missing, str) or not isinstance(missing, Sequence):
        raise ArgumentError(
            f"missing = {shown(missing)} is not allowed: give a list of what stands for a missing entry."
        )
    files = _files(path)
    if _kind(files) is FRAMES:
        table = read_frames(files, label, client)
    else:
        plain = read(path, label=label, client=client)
        X = plain.X.toarray() if is_sparse(plain.X) else plain.X
        columns = {f"feature {place + 1}": column for place, column in enumerate(np.asarray(X).T)}
        table = RawTable(columns, plain.y, None if plain.clients is None else plain.clients.astype(str))
    return _without(table, {str(code).strip().lower() for code in missing})


def _without(table: RawTable, codes: set[str]) -> RawTable:
    """The table with entries missing where they are one of the codes."""
    if not codes:
        return table
    values = {number for number in numbers(np.array(sorted(codes), object)).tolist() if number == number}

    def clean(column: Any) -> Any:
        if column.dtype.kind == "f":
            return np.where(np.isin(column, sorted(values)), np.nan, column)
        return np.array([None if word is None or word.strip().lower() in codes else word for word in column], object)

    return replace(table, columns={name: clean(column) for name, column in table.columns.items()}, y=clean(table.y))


def _numeric(source: object, table: RawTable) -> Table:
    """The table of numbers a raw table is, or an error that names the first entry that is none."""
    X = np.empty((table.rows, len(table.columns)))
    for place, (name, column) in enumerate(table.columns.items()):
        X[:, place] = numbers(column)
        if column.dtype.kind == "O":
            infinite = np.array([word is not None and word.lower().lstrip("+-") in INFINITE for word in column])
            words = np.isnan(X[:, place]) & ~missing_words(column) & ~infinite
            if words.any():
                row = int(np.argmax(words))
                raise DataError(
                    f"{source}: column {name!r} holds {column[row]!r} in row {row}, which is no number (rows are "
                    "counted from 0): encode words as numbers, leave the column out, or use read_table and prepare."
                )
    y = table.y
    if y.dtype.kind == "O":
        absent = missing_words(y)
        values = numbers(y)
        y = (
            values
            if np.isfinite(values[~absent]).all()
            else np.array([None if gone else word for word, gone in zip(y, absent, strict=True)], object)
        )
    return checked(source, X, y, table.clients, list(table.columns))


def has_columns(path: Source | Sequence[Source]) -> bool:
    """Whether the files are tables of named columns: CSV or Parquet."""
    return _kind(_files(path)) is FRAMES


def _files(path: Source | Sequence[Source]) -> list[Path]:
    """The files meant, in the order of their names unless they were listed."""
    if isinstance(path, str | PathLike):
        given_path = Path(path).expanduser()
        file_name("path", path, DataError)
        if given_path.is_file():
            return [given_path]
        if given_path.is_dir():
            files = sorted(file for file in given_path.iterdir() if file.is_file() and not file.name.startswith("."))
        else:
            files = sorted(Path(file) for file in glob.glob(str(given_path)) if Path(file).is_file())
        if not files:
            _nothing(given_path)
    elif isinstance(path, Sequence) and path and all(isinstance(file, str | PathLike) for file in path):
        files = [Path(file).expanduser() for file in path]
        for file in files:
            file_name("path", file, DataError)
            if not file.is_file():
                _nothing(file)
    else:
        raise ArgumentError(f"path = {shown(path)} is not allowed: give a file, a folder, a list of files or a glob.")
    return files


def _nothing(place: Path) -> NoReturn:
    if place.is_dir():
        raise DataError(f"{place} holds no files: give the folder that has one file a client.")
    folder = place.parent
    near = did_you_mean(place.name, [p.name for p in folder.iterdir()] if folder.is_dir() else [])
    raise DataError(f"{place} is neither a file nor a folder{near}: correct it.")


def _bare(file: Path) -> Path:
    """The path without .gz or .bz2."""
    return file.with_suffix("") if file.suffix.lower() in COMPRESSED else file


def _kind(files: Sequence[Path]) -> tuple[str, ...]:
    kinds = set()
    for file in files:
        suffix = _bare(file).suffix.lower()
        if suffix == TEXT:
            kind: tuple[str, ...] | None = LIBSVM if _looks_like_libsvm(file) else FRAMES
        else:
            kind = next((kind for kind in (LIBSVM, FRAMES, ARCHIVE) if suffix in kind), None)
        if kind is None:
            known = ", ".join(s for s in (*LIBSVM, *FRAMES, TEXT, *ARCHIVE) if s)
            raise DataError(f"{file}: files ending in {suffix} are not known; give one of {known}, or rename it.")
        kinds.add(kind)
    if len(kinds) > 1:
        raise DataError(f"{files[0].parent} mixes LIBSVM, columns and archives: give files of one kind.")
    return kinds.pop()


def _looks_like_libsvm(file: Path) -> bool:
    """Whether one of the first lines has a label and then entries such as 3:0.5."""
    try:
        with open_unpacked(file) as lines:
            return any(re.match(rb"\s*[-+.\deE]+\s+\d+:[-+.\d]", line) for line in itertools.islice(lines, LOOKED_AT))
    except (OSError, EOFError):
        return False  # reading it says what is wrong


def _libsvm(files: Sequence[Path], dim: int | None) -> list[Table]:
    from scipy.sparse import csr_array  # takes long to import
    from sklearn.datasets import load_svmlight_file

    # Read as they are: whether counting starts at 0 or 1 shows only when all files are seen.
    read = [_attempt(file, "LIBSVM", lambda f: load_svmlight_file(str(f), zero_based=True)) for file in files]
    for file, (X, _) in zip(files, read, strict=True):
        if X.nnz == 0:
            raise DataError(f"{file} has no features: give rows like `+1 3:0.5 7:1`.")
    first = min(1, *(int(X.indices.min()) for X, _ in read))
    widest = max(X.shape[1] for X, _ in read) - first
    if dim is not None and dim < widest:
        raise DataError(f"{files[0]}: dim = {dim} and the data have {widest} features; give at least that.")
    tables = []
    for file, (X, y) in zip(files, read, strict=True):
        rows = csr_array((X.data, X.indices - first, X.indptr), shape=(X.shape[0], dim or widest))
        tables.append(checked(file, rows, y))
    return tables


def _archive(file: Path) -> Table:
    def load(file: Path) -> dict[str, Any]:
        with open(file, "rb") as content, np.load(content, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}

    arrays = _attempt(file, "NumPy archive", load)
    for name in ("X", "y"):
        if name not in arrays:
            held = ", ".join(arrays) or "nothing"
            raise DataError(f"{file} has no array {name!r} (it holds {held}): save it by np.savez(path, X=..., y=...).")
    return checked(file, arrays["X"], arrays["y"], arrays.get("clients"))


def _attempt(file: Path, kind: str, load: Callable[[Path], Any]) -> Any:
    try:
        return load(file)
    except Exception as cause:
        raise DataError(f"{file} cannot be read as {kind} ({cause}): check or replace the file.") from cause


def _together(files: Sequence[Path], tables: Sequence[Table]) -> Table:
    if len(tables) == 1:
        return tables[0]
    stems = [_bare(file).stem for file in files]
    if len(set(stems)) != len(stems):
        twice = next(stem for stem in stems if stems.count(stem) > 1)
        raise DataError(f"two files are called {twice!r}, which names the client: rename one of them.")
    for file, table in zip(files, tables, strict=True):
        if table.X.shape[1] != tables[0].X.shape[1]:
            raise DataError(
                f"{file} has {table.X.shape[1]} features and {files[0]} has {tables[0].X.shape[1]}: all clients must "
                "share one feature space."
            )
        if (table.clients is None) != (tables[0].clients is None):
            raise DataError(f"of {file} and {files[0]} only one tells its clients: let both do it, or neither.")
    own = [np.full(len(t.y), stem) if t.clients is None else t.clients for t, stem in zip(tables, stems, strict=True)]
    parts = [table.X for table in tables]
    X = _stacked(parts) if is_sparse(parts[0]) else np.concatenate(parts)
    return Table(X, np.concatenate([t.y for t in tables]), np.concatenate(own))


def _stacked(parts: Sequence[Any]) -> Any:
    from scipy.sparse import vstack  # takes long to import

    return vstack(parts, format="csr")
