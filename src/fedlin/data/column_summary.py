"""What one client tells of a column so that all can prepare it alike, and how two such summaries become one.

Counts, the mean and the sum of squared deviations, the range, the words and how often each stands, and a sketch of the
quantiles. Nothing else leaves a client: its rows stay where they are. Merging is that of T. F. Chan, G. H. Golub and
R. J. LeVeque (1979), which is exact where sums of squares would cancel.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlin.core import Array
from fedlin.data.number_text import MOSTLY, missing_words, numbers
from fedlin.errors import DataError

CODES = 50  # different entries up to which numbers may be codes, and are listed as words too
WORDS = 1000  # different words a client tells of, the most frequent first
SKETCH = 200  # quantiles a client tells; a client with fewer numbers tells each
LARGEST = 1e150  # of a number; its square is finite too
MISSING_CODES = (-9999.0, -999.0, -99.0, 999.0, 9999.0, 99999.0, 999999.0)  # numbers that often stand for a missing one
_CODE_NAMES = {f"{code:g}": code for code in MISSING_CODES}
DATES = (
    "%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y/%m/%d", "%d.%m.%Y", "%d.%m.%Y %H:%M",
    "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S.%f%z",
    "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S%z", "%Y-%m-%dT%H:%M", "%Y/%m/%d %H:%M:%S", "%d.%m.%Y %H:%M:%S",
    "%d.%m.%y", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S", "%m/%d/%Y %I:%M %p",
    "%m/%d/%Y %I:%M:%S %p", "%m/%d/%y", "%d/%m/%y", "%d-%b-%Y", "%d-%b-%y", "%d %b %Y", "%d %B %Y", "%b %d, %Y",
    "%B %d, %Y", "%Y-%m", "%H:%M", "%H:%M:%S", "%I:%M %p",
)  # fmt: skip
TRIED = 100  # entries at which a format of dates is tried before all are
_DATE = re.compile(r"\d[-/.:]\d|[^\W\d]{3,} \d{1,2}, \d{4}|\d[ -][^\W\d]{3,}[ -]\d")  # some part of any of them


@dataclass(frozen=True)
class Moments:
    """Of numbers: how many, their mean, the sum of squared deviations from it, the least and the largest."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    low: float = np.inf
    high: float = -np.inf

    @property
    def deviation(self) -> float:
        """The standard deviation, dividing by the count."""
        return float(np.sqrt(self.squares / self.count)) if self.count else 0.0

    def merge(self, other: "Moments") -> "Moments":
        """Those of both sets of numbers together."""
        count = self.count + other.count
        if count == 0:
            return self
        apart = other.mean - self.mean
        return Moments(
            count,
            self.mean + apart * other.count / count,
            self.squares + other.squares + apart**2 * self.count * other.count / count,
            min(self.low, other.low),
            max(self.high, other.high),
        )


@dataclass(frozen=True)
class ColumnSummary:
    """Of one column at one client, or at several."""

    rows: int = 0
    missing: int = 0
    moments: Moments = Moments()
    whole: bool = True  # whether all numbers are whole
    in_order: bool = True  # whether the numbers go up by one from row to row, as a row's own number does
    distinct: int = 0  # different entries; over several clients at most so many
    words: Mapping[str, int] = field(default_factory=dict)  # how often each stands
    cut: bool = False  # whether there are more entries than are listed as words
    dates: Mapping[str, Moments] = field(default_factory=dict)  # days since 1970 of the entries that fit a format
    codes: Mapping[str, int] = field(default_factory=dict)  # how often each number of MISSING_CODES stands
    uncoded: Moments = Moments()  # of the numbers that are none of these
    sketch: tuple[tuple[float, float], ...] = ()  # quantiles of the numbers, each with the weight it stands for

    @property
    def present(self) -> int:
        """Entries that are not missing."""
        return self.rows - self.missing

    def merge(self, other: "ColumnSummary") -> "ColumnSummary":
        """That of both clients' rows together."""
        words = Counter(self.words) + Counter(other.words)
        nothing = Moments()
        return ColumnSummary(
            self.rows + other.rows,
            self.missing + other.missing,
            self.moments.merge(other.moments),
            self.whole and other.whole,
            self.in_order and other.in_order,
            len(words) if words and not (self.cut or other.cut) else self.distinct + other.distinct,
            dict(words),
            self.cut or other.cut,
            {
                name: self.dates.get(name, nothing).merge(other.dates.get(name, nothing))
                for name in DATES
                if name in self.dates or name in other.dates
            },
            dict(Counter(self.codes) + Counter(other.codes)),
            self.uncoded.merge(other.uncoded),
            tuple(sorted((*self.sketch, *other.sketch))),
        )

    def quantile(self, share: float) -> float:
        """The number that a share of all numbers is at most, to within 1/(2·SKETCH) of that share."""
        values, weights = np.array(self.sketch).T
        reached = np.cumsum(weights) - weights / 2
        return float(np.interp(share * weights.sum(), reached, values))


def summarise(column: Array, *, as_words: bool = False, sketch: bool = False) -> ColumnSummary:
    """What a client tells of a column.

    Args:
        column: Its entries, text or numbers.
        as_words: Whether numbers are words too.
        sketch: Whether it has quantiles.

    Returns:
        The summary. Of numbers it has their moments and, where there are many of them, no list.

    >>> summary = summarise(np.array(["3", "5", "", "old"], object))
    >>> summary.rows, summary.missing, summary.moments.mean, dict(summary.words)
    (4, 1, 4.0, {'3': 1, '5': 1, 'old': 1})
    """
    if column.dtype.kind in "biu":
        column = column.astype(np.float64)
    absent = ~np.isfinite(column) if column.dtype.kind == "f" else missing_words(column)
    present = column[~absent]
    values = numbers(present)
    known = np.isfinite(values)
    if np.any(np.abs(values[known]) >= LARGEST):
        raise DataError(f"the number {values[known][np.argmax(np.abs(values[known]))]:g} is too large to be squared.")
    words = [f"{value:g}" for value in present.tolist()] if column.dtype.kind == "f" else present.tolist()
    counts = Counter(words)
    if not as_words and len(counts) > CODES and known.mean() >= MOSTLY:
        listed = Counter(word for word, number in zip(words, known, strict=True) if not number)  # what is no number
    else:
        listed = counts
    return ColumnSummary(
        len(column),
        int(absent.sum()),
        _moments(values[known]),
        bool(np.all(values[known] == np.round(values[known]))),
        bool(known.all() and len(values) > 2 and np.all(np.diff(values) == 1)),
        len(counts),
        dict(listed.most_common(WORDS)),
        len(listed) < len(counts) or len(listed) > WORDS,
        {} if column.dtype.kind != "O" or 2 * known.sum() > len(known) else _dates(present),
        {name: int(count) for name, code in _CODE_NAMES.items() if (count := np.sum(values == code))},
        _moments(values[known & ~np.isin(values, MISSING_CODES)]),
        _sketched(values[known]) if sketch else (),
    )


def _moments(values: Array) -> Moments:
    if len(values) == 0:
        return Moments()
    mean = float(values.mean())
    return Moments(len(values), mean, float(np.sum((values - mean) ** 2)), float(values.min()), float(values.max()))


def _dates(words: Array) -> dict[str, Moments]:
    """Moments of days since 1970 under every format that fits some of the entries."""
    tried = np.array([word for word in words[:TRIED] if _DATE.search(word)], object)
    fitting = (name for name in DATES if len(tried) and np.isfinite(as_days(tried, name)).any())
    days = {name: as_days(words, name) for name in fitting}
    return {name: _moments(values[np.isfinite(values)]) for name, values in days.items()}


def as_days(words: Array, date_format: str) -> NDArray[np.float64]:
    """Dates of text as days since 1970, NaN for what does not fit the format; a time of day is a part of a day.

    >>> as_days(np.array(["1970-01-03", "soon"], object), "%Y-%m-%d").tolist()
    [2.0, nan]
    """
    import pandas as pd

    dates = pd.to_datetime(pd.Series(words, dtype=object), format=date_format, errors="coerce", utc=True)
    return np.asarray((dates - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1), np.float64)


def _sketched(values: Array) -> tuple[tuple[float, float], ...]:
    """The quantiles at the middle of equal shares of the numbers, and the share each stands for."""
    if len(values) <= SKETCH:
        return tuple((float(value), 1.0) for value in np.sort(values))
    middles = (np.arange(SKETCH) + 0.5) / SKETCH
    each = len(values) / SKETCH
    return tuple((float(value), each) for value in np.quantile(values, middles))


def merge_summaries(clients: Sequence[Mapping[str, ColumnSummary]]) -> dict[str, ColumnSummary]:
    """The summaries of all clients' rows together, by column; all must have the same columns."""
    names = list(clients[0])
    for client in clients[1:]:
        if set(client) != set(names):
            apart = sorted(set(client) ^ set(names))[0]
            raise DataError(f"column {apart!r} is not at every client: give all the same columns.")
    return {name: reduce(ColumnSummary.merge, (client[name] for client in clients)) for name in names}


def to_bytes(summaries: Mapping[str, ColumnSummary]) -> bytes:
    """Summaries as a client sends them."""
    return json.dumps({name: asdict(summary) for name, summary in summaries.items()}, ensure_ascii=False).encode()


def from_bytes(message: bytes) -> dict[str, ColumnSummary]:
    """Summaries as a client sent them; whatever is not of that form is refused."""
    try:
        return {name: _summary(fields) for name, fields in json.loads(message).items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as cause:
        raise DataError(f"a client's summary of its columns cannot be read: {cause}.") from cause


def _summary(fields: dict[str, Any]) -> ColumnSummary:
    unread = dict(fields)
    summary = ColumnSummary(
        rows=_count(unread.pop("rows")),
        missing=_count(unread.pop("missing")),
        distinct=_count(unread.pop("distinct")),
        whole=bool(unread.pop("whole")),
        in_order=bool(unread.pop("in_order")),
        cut=bool(unread.pop("cut")),
        moments=_read_moments(unread.pop("moments")),
        words={str(word): _count(count) for word, count in unread.pop("words").items()},
        dates={str(name): _read_moments(moments) for name, moments in unread.pop("dates").items()},
        codes={str(code): _count(count) for code, count in unread.pop("codes").items()},
        uncoded=_read_moments(unread.pop("uncoded")),
        sketch=tuple((_finite(value), _finite(weight)) for value, weight in unread.pop("sketch")),
    )
    spread = (summary.moments, summary.uncoded, *summary.dates.values())
    if (
        unread
        or any(moments.squares < 0 for moments in spread)
        or summary.missing > summary.rows
        or any(weight <= 0 for _, weight in summary.sketch)
        or not summary.codes.keys() <= _CODE_NAMES.keys()
        or not summary.dates.keys() <= set(DATES)
    ):
        raise ValueError(f"{sorted(unread) or 'a count'} does not belong there")
    return summary


def _read_moments(fields: dict[str, Any]) -> Moments:
    count, low, high = _count(fields["count"]), float(fields["low"]), float(fields["high"])
    if len(fields) != 5 or (count and not -LARGEST < low <= high < LARGEST):
        raise ValueError(f"the range {low} to {high} of {count} numbers is none")
    return Moments(count, _finite(fields["mean"]), _finite(fields["squares"], np.inf), low, high)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
        raise ValueError(f"{value!r} is no count")
    return value


def _finite(value: Any, limit: float = LARGEST) -> float:
    if not abs(float(value)) < limit:
        raise ValueError(f"{value!r} is no finite number")
    return float(value)
