"""What becomes of every column, decided from the summaries of all clients.

Numbers are standardised, missing ones set to the mean; words become ones and zeros; dates become days. What is left
out, and why, is said in notes.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedlin.data.column_summary import ColumnSummary, Moments
from fedlin.data.number_text import MOSTLY, numbers
from fedlin.data.preparation import ABSENT, LABELS, OTHER, Preparation, PreparedColumn, Recipe, one_spelling
from fedlin.errors import DataError

DISTINCT = 0.9  # share of different entries from which a column names its rows
FEW = 20  # rows up to which that says nothing
VERY_FEW = 5  # rows up to which it says nothing even where every entry is different
FEW_WORDS = 5  # different words up to which a column of many numbers is one of numbers
_IDENTIFIER = re.compile(
    r"(^|[^a-z])(id|ids|nr|no|num|number|nummer|key|uuid|guid|mrn|index|row|unnamed column \d+)$", re.IGNORECASE
)
_ZEROS_FIRST = re.compile(r"0\d+")  # 007 is a code


def fit_preparation(recipe: Recipe, summaries: Mapping[str, ColumnSummary]) -> Preparation:
    """Decide what becomes of every column, from the summaries of all clients together; the labels' is among them."""
    labels = summaries.get(LABELS)
    summaries = {name: summary for name, summary in summaries.items() if name != LABELS}
    notes: list[str] = []
    columns = []
    for name, summary in summaries.items():
        column = _fit_column(name, summary, recipe, notes.append)
        if column is not None:
            columns.append(column)
    if not columns:
        raise DataError("no column is left to learn from: " + ("; ".join(notes) or "all were dropped") + ".")
    classes = () if labels is None or labels.cut else tuple(sorted(labels.words, key=_by_value))
    return Preparation(tuple(columns), recipe.intercept, classes, (*_said(columns, recipe), *notes))


def _by_value(word: str) -> tuple[bool, float, str]:
    """A key that sorts numbers by their value, and words after them."""
    value = float(numbers(np.array([word], object))[0])
    return bool(np.isnan(value)), 0.0 if np.isnan(value) else value, word


def _fit_column(
    name: str, summary: ColumnSummary, recipe: Recipe, note: Callable[[str], None]
) -> PreparedColumn | None:
    named = recipe.keep is not None  # columns that were asked for by name stay, whatever they look like
    if summary.present == 0:
        note(f"{name}: left out, since it is empty")
        return None
    if name not in recipe.words and _is_of_numbers(summary):
        return _fit_number(name, summary, recipe, note, named)
    if name not in recipe.words and _date_formats(summary):
        return _fit_date(name, summary, recipe, note)
    return _fit_words(name, summary, recipe, note, named)


def _is_of_numbers(summary: ColumnSummary) -> bool:
    """Whether nearly all entries are numbers; or most, with a few words among many different numbers."""
    if any(map(_ZEROS_FIRST.fullmatch, summary.words)):
        return False
    count = summary.moments.count
    if count >= MOSTLY * summary.present:
        return True
    return (
        2 * count >= summary.present and summary.distinct > FEW + FEW_WORDS and len(_no_numbers(summary)) <= FEW_WORDS
    )


def _no_numbers(summary: ColumnSummary) -> list[str]:
    words = np.array(list(summary.words), object)
    return list(words[np.isnan(numbers(words))])


def _fit_number(
    name: str, summary: ColumnSummary, recipe: Recipe, note: Callable[[str], None], named: bool
) -> PreparedColumn | None:
    moments = summary.moments
    if moments.low == moments.high and not summary.missing:
        note(f"{name}: left out, since it is {moments.low:g} in every row")
        return None
    every = summary.distinct >= summary.present > VERY_FEW and summary.whole and not summary.missing
    dense = moments.high - moments.low < 2 * summary.present  # as numbers given one after the other are
    signs = (summary.in_order or dense, _IDENTIFIER.search(name))  # of few rows both are asked for
    if every and not named and (any(signs) if summary.present > FEW else all(signs)):
        note(f"{name}: left out, since every row has a number of its own (an id?); name it in keep to use it")
        return None
    if moments.count < summary.present:
        odd = next(iter(_no_numbers(summary)), "")
        note(f"{name}: {summary.present - moments.count} entries such as {odd!r} are no numbers and count as missing")
    for code, count in summary.codes.items():
        if _far_out(float(code), summary.uncoded):
            note(f"{name}: {code} in {count} rows lies far from all others; if it stands for a missing value, name it "
                 "in missing")  # fmt: skip
    return _scaled(PreparedColumn(name, "number"), moments, summary, recipe)


def _far_out(code: float, others: Moments) -> bool:
    """Whether a number is further from all others than these are from each other."""
    return others.count > 0 and max(others.low - code, code - others.high) > others.high - others.low


def _date_formats(summary: ColumnSummary) -> list[str]:
    """The formats that nearly all entries fit, best first."""
    fits = {name: moments.count for name, moments in summary.dates.items() if moments.count >= MOSTLY * summary.present}
    return sorted(fits, key=lambda name: -fits[name])


def _fit_date(name: str, summary: ColumnSummary, recipe: Recipe, note: Callable[[str], None]) -> PreparedColumn | None:
    chosen, *others = _date_formats(summary)
    moments = summary.dates[chosen]
    if moments.low == moments.high and not summary.missing:
        note(f"{name}: left out, since it is the same date in every row")
        return None
    equal = [other for other in others if summary.dates[other].count == moments.count]
    doubt = f", though {equal[0]} fits as well" if equal else ""
    bad = summary.present - moments.count
    missing = f"; {bad} entries that do not fit count as missing" if bad else ""
    note(f"{name}: dates of the form {chosen}{doubt}, used as days since 1970{missing}")
    plain = Recipe(scale=recipe.scale if recipe.scale in ("standard", "range", "none") else "standard")
    return _scaled(PreparedColumn(name, "date", date_format=chosen), moments, summary, plain)


def _scaled(column: PreparedColumn, moments: Moments, summary: ColumnSummary, recipe: Recipe) -> PreparedColumn:
    center, size = {
        "standard": lambda: (moments.mean, moments.deviation),
        "robust": lambda: (summary.quantile(0.5), summary.quantile(0.75) - summary.quantile(0.25)),
        "range": lambda: (moments.low, moments.high - moments.low),
        "none": lambda: (0.0, 1.0),
    }[recipe.scale]()
    fill = {"mean": lambda: moments.mean, "median": lambda: summary.quantile(0.5), "zero": lambda: 0.0}[recipe.fill]()
    return PreparedColumn(column.name, column.kind, fill, center, size if size > 0 else 1.0, column.date_format)


def _fit_words(
    name: str, summary: ColumnSummary, recipe: Recipe, note: Callable[[str], None], named: bool
) -> PreparedColumn | None:
    nearly = summary.distinct > DISTINCT * summary.present and summary.present > FEW
    if not named and (nearly or summary.distinct >= summary.present > VERY_FEW):
        note(f"{name}: left out, since nearly every row has an entry of its own (an id?); name it in keep to use it")
        return None
    words, usual = Counter[str](), dict[str, str]()  # of each word its most frequent spelling
    for word in sorted(summary.words, key=lambda word: (-summary.words[word], word)):
        words[usual.setdefault(one_spelling(word), word)] += summary.words[word]
    cases = Counter(word.lower() for word in words)
    alike = [word for word in words if cases[word.lower()] > 1]
    if alike:
        note(f"{name}: {', '.join(map(repr, alike[:3]))} differ in capital letters alone, and count as different words")
    ordered = sorted(words, key=lambda word: (-words[word], word))
    if len(ordered) == 1 and not summary.missing and not summary.cut:
        note(f"{name}: left out, since it is {ordered[0]!r} in every row")
        return None
    common = sorted(ordered[: recipe.most_words])
    rest = [OTHER] if len(ordered) > len(common) or summary.cut else []
    if rest:
        note(
            f"{name}: of {summary.distinct} words the {len(common)} most frequent have a feature, the others share one"
        )
    gone = [ABSENT] if summary.missing else []
    levels = [*common, *rest, *gone]
    # Of two words one says it all.
    return PreparedColumn(name, "words", levels=tuple(levels[1:] if len(levels) == 2 else levels))


def _said(columns: Sequence[PreparedColumn], recipe: Recipe) -> list[str]:
    """What was done, in a sentence for each kind of column."""
    done = {"standard": "standardised", "robust": "scaled by their quartiles", "range": "scaled to 0..1", "none": ""}
    plain = [column.name for column in columns if column.kind == "number"]
    words = [f"{column.name} ({len(column.levels)})" for column in columns if column.kind == "words"]
    sentences = []
    if plain:
        how = done[recipe.scale] or "used as they are"
        sentences.append(
            f"{_counted(plain, 'column')} of numbers, {how}, missing ones set to the {recipe.fill}: {_some(plain)}"
        )
    if words:
        sentences.append(f"{_counted(words, 'column')} of words as ones and zeros: {_some(words)}")
    if recipe.intercept:
        sentences.append("an intercept, which is not penalised")
    return sentences


def _counted(names: Sequence[str], what: str) -> str:
    return f"{len(names)} {what}{'' if len(names) == 1 else 's'}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
