"""Numbers as people write them: thousands, decimal commas, currencies, units and limits, said in notes."""

import re
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlin.core import Array

# What stands for a missing value, in small letters.
MISSING = frozenset([
    "", "na", "n/a", "#n/a", "n.a.", "n.a", "k.a.", "nan", "null", "none", "?", "-", "--", "–", "—", ".", "...", "*",
    "missing", "not available", "<na>", "nil", "\\n", "#div/0!", "#value!", "#ref!", "#name?", "#num!", "#null!",
])  # fmt: skip
MOSTLY = 0.95  # share of a column's entries that must be numbers for the others to count as missing
_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?|[+-]?[1-9]\d{0,2}(\.\d{3})+")  # 1.234,5 and 1,5e3
_WHOLE = re.compile(r"[+-]?\d+([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")  # 1,234.5
_SIGNS = re.compile(r"^[$€£]\s*|\s*[$€£%]$")
_GROUPED = re.compile(r"[+-]?\d{1,3}([ '’]\d{3})+([.,]\d+)?")  # 1 234,5 and 1'234.5
_SPACES = str.maketrans(
    {"\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2212": "-"}
)  # narrow spaces, and the minus sign
_LIMIT = re.compile(r"[<>≤≥]=?\s*(?=[\d.+-])")  # a laboratory's "<0.01"
_UNIT = re.compile(r"(?<=[\d.])\s*([^\W\d_][^\d]*|[°µ%‰][^\d]*)$")  # "kg" of "12.5 kg"
_BRACKETS = re.compile(r"\((?=[\d$€£])(.*)\)")  # an account's (12.50), which is negative
_DIGIT = re.compile(r"\d")
_CURRENCY = re.compile(r"(USD|EUR|GBP|CHF|JPY|US\$)\s*(?=[\d+-])")


def missing_words(column: Array) -> NDArray[np.bool_]:
    """Which entries of a column of text stand for a missing value.

    >>> missing_words(np.array(["1", "NA", " ", "no"], object)).tolist()
    [False, True, True, False]
    """
    return np.array([value is None or value.strip().lower() in MISSING for value in column], bool)


def numbers(column: Array) -> NDArray[np.float64]:
    """Entries as numbers, NaN for what is none: 12.5, 1e3, 1,234.5, $40 and 12% are some.

    >>> numbers(np.array(["1,234.5", "12%", "old", "", "-3"], object)).tolist()
    [1234.5, 12.0, nan, nan, -3.0]
    """
    if column.dtype.kind in "biuf":
        return column.astype(np.float64)
    return np.array([_number(value) for value in column], np.float64)


def is_number(text: str) -> bool:
    """Whether a text is a number as programs write it."""
    return _PLAIN.fullmatch(text) is not None


def _number(value: Any) -> float:
    if value is None:
        return np.nan
    text = _SIGNS.sub("", value) if value[:1] in "$€£" or value[-1:] in "$€£%" else value
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    return float(text) if is_number(text) else np.nan


def write_plainly(column: Array, *, commas_separate: bool, notes: list[str], name: str) -> Array:
    """A column of numbers as programs write them, if it is one of numbers that people wrote otherwise.

    Args:
        column: Text, None or a word for a missing value where there is none.
        commas_separate: Whether the file's fields are separated by commas, so that "1,234" is likely a thousand.
        notes: What was assumed is added here.
        name: The column's name.

    Returns:
        The column, changed or not.

    >>> notes = []
    >>> write_plainly(np.array(["1 234,5", "-"], object), commas_separate=False, notes=notes, name="v").tolist(), notes
    (['1234.5', '-'], ['v: numbers are written with a decimal comma'])
    >>> weights = np.array(["12 kg", "<3.5 kg", "9 kg"], object)
    >>> write_plainly(weights, commas_separate=True, notes=notes, name="w").tolist()
    ['12', '3.5', '9']
    """
    absent = missing_words(column)
    present = column[~absent]
    points_only = commas_separate or not any(map(_COMMA.fullmatch, present))
    if (points_only and all(map(is_number, present))) or sum(map(bool, map(_DIGIT.search, present))) < MOSTLY * len(
        present
    ):
        return column
    said: list[str] = []
    texts = _decimals(_without_units([value.translate(_SPACES) for value in present], said), commas_separate, said)
    if np.isfinite([_number(text) for text in texts]).mean() < MOSTLY:
        return column
    notes += [f"{name}: {what}" for what in said]
    plain = column.copy()
    plain[~absent] = texts
    return plain


def _without_units(values: list[str], said: list[str]) -> list[str]:
    """Without the unit that all share, and without signs of limits where most are no limits."""
    limits = [value for value in values if _LIMIT.match(value)]
    if 0 < len(limits) <= len(values) / 2:
        said.append(f"entries such as {limits[0]!r} count as the limit itself")
        values = [_LIMIT.sub("", value, count=1) for value in values]
    values = [_CURRENCY.sub("", _BRACKETS.sub(r"-\1", value), count=1) for value in values]
    units = Counter(match[1].strip() for value in values if (match := _UNIT.search(value)))
    (unit, count), *_ = units.most_common(1) or [("", 0)]
    if count >= MOSTLY * len(values):
        said.append(f"the unit {unit!r} is left out")
        values = [_UNIT.sub("", value) if value.endswith(unit) else value for value in values]
    return values


def _decimals(values: list[str], commas_separate: bool, said: list[str]) -> list[str]:
    """With a point for decimals and nothing between thousands."""
    values = [re.sub("[ '’]", "", value) if _GROUPED.fullmatch(value) else value for value in values]
    commas = [value for value in values if _COMMA.fullmatch(value)]
    points = [
        value for value in values if is_number(value) and not (_COMMA.fullmatch(value) or _WHOLE.fullmatch(value))
    ]
    # Between commas "1,234" is more likely a thousand than a fraction.
    ambiguous = commas_separate and all(_THOUSANDS.fullmatch(value) for value in commas)
    if (not any("," in value for value in commas) and (points or commas_separate)) or ambiguous:
        return values
    swap = str.maketrans({",": "."} if points else {".": None, ",": "."})
    said.append(f"numbers are written with a decimal comma{', some with a point' if points else ''}")
    return [value.translate(swap) if _COMMA.fullmatch(value) else value for value in values]
