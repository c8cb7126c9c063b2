"""CSV as people write it: whatever the encoding, the separator and the lines before the header, said in notes."""

import bz2
import csv
import gzip
import io
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from fedlin.core import Array
from fedlin.data.number_text import is_number, missing_words, write_plainly
from fedlin.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
SAMPLE = 200  # lines from which the separator is read
REMARKS = 50  # lines before the names of the columns, at most
UNNAMED = "unnamed column"


def read_csv(file: Path, as_text: str | None = None) -> tuple[dict[str, Array], list[str]]:
    """The columns of a file as text, and what was assumed.

    Args:
        file: Where it is; .gz and .bz2 are unpacked.
        as_text: A column whose entries stay as they are, such as the names of clients.

    Returns:
        The columns, their numbers as programs write them; and notes.
    """
    notes: list[str] = []
    text = _decode(file, notes)
    separator, width = _separator(text)
    if width == 1 and _separator(spaced := _with_tabs(text))[1] > 1:
        notes.append("fields are separated by spaces")
        text, (separator, width) = spaced, _separator(spaced)
    elif separator != ",":
        notes.append(f"fields are separated by {SEPARATORS[separator]}")
    frame = _parse(file, _from_names_on(text, separator, width, notes), separator)
    names = [str(name) for name in _stripped(frame.iloc[0])]
    if all(map(is_number, names)):
        notes.append(
            f"the first line holds numbers ({', '.join(names[:3])}, ...), so it counts as a row and not as names"
        )
        names = [f"column {place + 1}" for place in range(len(names))]
    else:
        frame = frame.iloc[1:]
    if len(frame) == 0:
        raise DataError(f"{file} has no rows: leave it out, or give it at least one.")
    columns = {name: _stripped(frame.iloc[:, place]) for place, name in enumerate(_distinct(names, notes))}
    empty = [name for name in columns if name.startswith(UNNAMED) and missing_words(columns[name]).all()]
    for name in empty:  # a separator at the end of every line makes one
        del columns[name]
    for name, column in columns.items():
        if name != as_text:
            columns[name] = write_plainly(column, commas_separate=separator == ",", notes=notes, name=name)
    return columns, notes


def open_unpacked(file: Path) -> IO[bytes]:
    """The file's bytes, unpacked where its name ends in .gz or .bz2."""
    opener: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(file.suffix.lower(), open)
    opened: IO[bytes] = opener(file, "rb")
    return opened


def _decode(file: Path, notes: list[str]) -> str:
    try:
        with open_unpacked(file) as content:
            raw = content.read()
    except (OSError, EOFError) as cause:
        raise DataError(f"{file} cannot be read ({cause}): check or replace the file.") from cause
    encodings = ["utf-8-sig", "cp1252", "latin-1"]
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encodings = ["utf-16"]
    elif raw[1:2] == b"\0":
        encodings = ["utf-16-le"]
    for encoding in encodings:
        try:
            text = raw.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" in text:
            break
        if encoding != "utf-8-sig":
            notes.append(f"the text is not UTF-8, and was read as {encoding}")
        if not text.strip():
            break
        return text
    raise DataError(
        f"{file} cannot be read as a table of columns (it is empty, or no text): check or replace the file."
    )


def _separator(text: str) -> tuple[str, int]:
    """What cuts the most of the first lines into the same number of fields, more than one; and that number."""
    lines = [line for line in text[: 2**18].splitlines() if line.strip()][:SAMPLE]

    def fit(separator: str) -> tuple[float, int]:
        widths = Counter(len(row) for row in csv.reader(lines, delimiter=separator) if row)
        (width, count), *_ = widths.most_common(1) or [(1, 0)]
        return (count / len(lines), width) if width > 1 else (0.0, 1)

    best = max(SEPARATORS, key=lambda separator: (fit(separator), separator == ","))
    return best, fit(best)[1]


def _with_tabs(text: str) -> str:
    """The text with tabs in place of the spaces between fields, however many there are."""
    tabbed = io.StringIO()
    lines = (line.strip() for line in text.splitlines())
    try:
        csv.writer(tabbed, delimiter="\t").writerows(csv.reader(lines, delimiter=" ", skipinitialspace=True))
    except csv.Error:
        return text
    return tabbed.getvalue()


def _from_names_on(text: str, separator: str, width: int, notes: list[str]) -> str:
    """The text from the names of the columns on: titles and remarks before them have fewer fields.

    Where names are one fewer than fields, one is put in: before them for rows with names of their own, as R writes
    them, or behind them for rows that end in a separator.
    """
    lines = text.splitlines(keepends=True)
    reader = csv.reader(lines, delimiter=separator)
    start = 0
    remarks: list[str] = []
    try:
        for names in itertools.islice(reader, REMARKS):
            if len(names) >= width - 1 and sum(bool(name.strip()) for name in names) > 1:
                break
            start, remarks = reader.line_num, [*remarks, separator.join(names).strip(separator)]
        else:
            return text
        first_row = next(reader, [])
    except csv.Error:
        return text
    skipped = [remark for remark in remarks if remark.strip()]
    if skipped:
        notes.append(
            f"lines before the names of the columns are left out: {skipped[0]!r}{', ...' * (len(skipped) > 1)}"
        )
    table = "".join(lines[start:])
    if len(names) == width - 1 and len(first_row) == width:
        return table.replace("\n", f"{separator}\n", 1) if not first_row[-1].strip() else separator + table
    return table


def _parse(file: Path, text: str, separator: str) -> "pd.DataFrame":
    import pandas as pd

    try:
        return pd.read_csv(
            io.StringIO(text),
            sep=separator,
            header=None,
            dtype=str,
            keep_default_na=False,
            na_filter=False,
            skipinitialspace=True,
            skip_blank_lines=True,
        ).fillna("")
    except Exception as cause:
        error = re.sub(r"\s+", " ", str(cause)).strip().rstrip(".")
        raise DataError(
            f"{file} cannot be read as a table of columns ({error}): give every line as many fields as the first, and "
            "quote text that holds the separator."
        ) from cause


def _distinct(names: Sequence[str], notes: list[str]) -> list[str]:
    """Names for all columns, each its own."""
    distinct: list[str] = []
    for place, original in enumerate(names):
        called = original or f"{UNNAMED} {place + 1}"
        name, number = called, 1
        while name in distinct:
            number += 1
            name = f"{called} ({number})"
        if number > 1:
            notes.append(f"a second column is called {original!r}, and was named {name!r}")
        distinct.append(name)
    return distinct


def _stripped(column: "pd.Series") -> Array:
    """Entries without spaces or single quotes around them."""
    bare = (value.strip() for value in column)
    return np.array([text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text for text in bare], object)
