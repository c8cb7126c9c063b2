"""CSV as people write it: whatever the encoding, the separator, the decimal mark and the header, said in notes."""

import bz2
import csv
import gzip
import io
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedlin.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[Any]
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
SAMPLE = 200  # lines from which the separator is read
# What stands for a missing value, in small letters.
MISSING = frozenset(["", "na", "n/a", "#n/a", "nan", "null", "none", "?", "-", "--", ".", "missing", "<na>", "nil"])
_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?|[+-]?\d{1,3}(\.\d{3})+")  # 1.234,5 and 1,5e3
_WHOLE = re.compile(r"[+-]?\d+([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")  # 1,234.5
_SIGNS = re.compile(r"^[$€£]\s*|\s*[$€£%]$")


def read_csv(file: Path) -> tuple[dict[str, Array], list[str]]:
    """The columns of a file as text, None where a value is missing, and what was assumed."""
    notes: list[str] = []
    text = _decode(file, notes)
    separator = _separator(text)
    if separator != ",":
        notes.append(f"fields are separated by {SEPARATORS[separator]}")
    frame = _parse(file, text, separator)
    names = [str(name).strip() for name in frame.iloc[0]]
    if all(_PLAIN.fullmatch(name) for name in names):
        notes.append(
            f"the first line holds numbers ({', '.join(names[:3])}, ...), so it counts as a row and not as names"
        )
        names = [f"column {place + 1}" for place in range(len(names))]
    else:
        frame = frame.iloc[1:]
    if len(frame) == 0:
        raise DataError(f"{file} has no rows: leave it out, or give it at least one.")
    columns = {
        name: _stripped(frame.iloc[:, place]) for place, name in enumerate(_distinct(names, notes)) if name is not None
    }
    empty = [name for name in columns if name.startswith("column ") and missing_words(columns[name]).all()]
    for name in empty:  # a separator at the end of every line makes one
        del columns[name]
    if separator != "," or any(_COMMA.fullmatch(value) for column in columns.values() for value in column[:SAMPLE]):
        _decimal_commas(columns, separator, notes)
    return columns, notes


def missing_words(column: Array) -> NDArray[np.bool_]:
    """Which entries of a column of text stand for a missing value.

    >>> missing_words(np.array(["1", "NA", " ", "no"], object)).tolist()
    [False, True, True, False]
    """
    return np.array([value is None or value.strip().lower() in MISSING for value in column], bool)


def _decode(file: Path, notes: list[str]) -> str:
    opener: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(file.suffix.lower(), open)
    try:
        with opener(file, "rb") as content:
            raw: bytes = content.read()
    except (OSError, EOFError) as cause:
        raise DataError(f"{file} cannot be read ({cause}): check or replace the file.") from cause
    encodings = ["utf-16"] if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else ["utf-8-sig", "cp1252", "latin-1"]
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


def _separator(text: str) -> str:
    """The separator that cuts the most of the first lines into the same number of fields, more than one."""
    lines = [line for line in text[: 2**18].splitlines() if line.strip()][:SAMPLE]

    def fit(separator: str) -> tuple[float, int]:
        widths = Counter(len(row) for row in csv.reader(lines, delimiter=separator) if row)
        (width, count), *_ = widths.most_common(1) or [(1, 0)]
        return (count / len(lines), width) if width > 1 else (0.0, 1)

    return max(SEPARATORS, key=lambda separator: (fit(separator), separator == ","))


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
        told = re.sub(r"\s+", " ", str(cause)).strip().rstrip(".")
        raise DataError(
            f"{file} cannot be read as a table of columns ({told}): give every line as many fields as the first, and "
            "quote text that holds the separator."
        ) from cause


def _distinct(names: Sequence[str], notes: list[str]) -> list[str]:
    """Names for all columns, each its own."""
    distinct: list[str] = []
    for place, given in enumerate(names):
        name, number = given or f"column {place + 1}", 1
        while name in distinct:
            number += 1
            name = f"{given or f'column {place + 1}'} ({number})"
        if number > 1:
            notes.append(f"a second column is called {given!r}, and was named {name!r}")
        distinct.append(name)
    return distinct


def _stripped(column: "pd.Series[Any]") -> Array:
    return np.array([value.strip() for value in column], object)


def _decimal_commas(columns: dict[str, Array], separator: str, notes: list[str]) -> None:
    """Write numbers with a decimal comma as others write them, column by column."""
    changed = []
    for name, column in columns.items():
        present = list(column[~missing_words(column)])
        commas = [value for value in present if _COMMA.fullmatch(value)]
        plain = all(_COMMA.fullmatch(value) or _WHOLE.fullmatch(value) for value in present)
        # Between commas "1,234" is more likely a thousand than a fraction.
        ambiguous = separator == "," and all(_THOUSANDS.fullmatch(value) for value in commas)
        if commas and plain and not ambiguous:
            swap = str.maketrans({".": None, ",": "."})
            columns[name] = np.array([value.translate(swap) for value in column], object)
            changed.append(name)
    if changed:
        notes.append(f"numbers are written with a decimal comma in {', '.join(changed)}")


def numbers(column: Array) -> NDArray[np.float64]:
    """Entries as numbers, NaN for what is none: 12.5, 1e3, 1,234.5, $40 and 12% are some.

    >>> numbers(np.array(["1,234.5", "12%", "old", "", "-3"], object)).tolist()
    [1234.5, 12.0, nan, nan, -3.0]
    """
    if column.dtype.kind in "biuf":
        return column.astype(np.float64)
    return np.array([_number(value) for value in column], np.float64)


def _number(value: Any) -> float:
    if value is None:
        return np.nan
    text = _SIGNS.sub("", value) if value[:1] in "$€£" or value[-1:] in "$€£%" else value
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    return float(text) if _PLAIN.fullmatch(text) else np.nan
