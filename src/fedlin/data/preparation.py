"""How columns become features: what a user may ask for, and what every client does with its own rows."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from fedlin.checks import one_of, positive_integer, shown, true_or_false
from fedlin.core import Array
from fedlin.data.column_summary import as_days
from fedlin.data.number_text import missing_words, numbers
from fedlin.data.raw_table import RawTable
from fedlin.errors import ArgumentError, DataError
from fedlin.problems.logistic import logistic
from fedlin.problems.poisson import poisson
from fedlin.problems.problem import Problem
from fedlin.problems.regression import regression
from fedlin.problems.softmax import softmax

Kind = Literal["number", "date", "words"]
SCALES = ("standard", "robust", "range", "none")
FILLS = ("mean", "median", "zero")
OTHER, ABSENT = "(other)", "(missing)"
LABELS = "(labels)"  # the name of the column of labels among summaries
TRUTH_VALUES = ("yes", "no", "true", "false", "y", "n")


@dataclass(frozen=True)
class Recipe:
    """What is to be done with columns; what it says is the same for all clients.

    Args:
        keep: The columns to use; all unless given.
        drop: Columns to leave out.
        scale: "standard" for mean 0 and standard deviation 1, "robust" for median 0 and quartiles 1 apart, "range" for
            0 to 1, "none" for numbers as they are. Words are ones and zeros in any case.
        fill: What a missing number becomes: "mean", "median" or "zero". A missing word is a word of its own.
        words: Columns of numbers that are words, such as a code.
        most_words: How many words of a column have a feature of their own, the most frequent; the rest share one.
        intercept: Whether a column of ones is added.

    >>> Recipe(drop=("patient",)).scale
    'standard'
    """

    keep: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    scale: str = "standard"
    fill: str = "mean"
    words: tuple[str, ...] = ()
    most_words: int = 50
    intercept: bool = True

    def __post_init__(self) -> None:
        for name in ("keep", "drop", "words"):
            value = getattr(self, name)
            if value is None and name == "keep":
                continue
            if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(v, str) for v in value):
                raise ArgumentError(f"{name} = {shown(value)} is not allowed: give a list of names of columns.")
            object.__setattr__(self, name, tuple(value))
        one_of("scale", self.scale, SCALES)
        one_of("fill", self.fill, FILLS)
        positive_integer("most_words", self.most_words)
        true_or_false("intercept", self.intercept)

    def leaves(self, names: Iterable[str]) -> list[str]:
        """Those of a table's columns that are left in; a name it does not have is refused.

        Args:
            names: The names of a table's columns.

        Returns:
            The names that are left, in the same order.
        """
        columns = list(names)
        for key in ("keep", "drop", "words"):
            for name in getattr(self, key) or ():
                if name not in columns:
                    some = ", ".join(columns[:12]) + (", ..." if len(columns) > 12 else "")
                    raise DataError(f"{key} names {name!r}, which is no column of features: choose among {some}.")
        return [name for name in columns if name not in self.drop and (self.keep is None or name in self.keep)]

    @property
    def sketches(self) -> bool:
        """Whether quantiles are needed."""
        return self.scale == "robust" or self.fill == "median"


@dataclass(frozen=True)
class PreparedColumn:
    """One column's part: a number is (value - center)/size, missing ones being `fill`; words are one feature each."""

    name: str
    kind: Kind
    fill: float = 0.0
    center: float = 0.0
    size: float = 1.0
    date_format: str = ""
    levels: tuple[str, ...] = ()  # the words with a feature of their own, in this order

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its features."""
        return tuple(f"{self.name}={level}" for level in self.levels) if self.kind == "words" else (self.name,)

    def transform(self, column: Array) -> Array:
        """Its features of every row, shape (n, features)."""
        if self.kind == "words":
            return self._indicators(column)
        values = numbers(column) if self.kind == "number" else as_days(column, self.date_format)
        values = np.where(np.isfinite(values), values, self.fill)
        return np.asarray((values - self.center) / self.size)[:, None]

    def _indicators(self, column: Array) -> Array:
        words = words_of(column)
        known = {one_spelling(level): place for place, level in enumerate(self.levels)}
        rest = known.get(OTHER, -1)
        places = np.array([known.get(one_spelling(word), rest) for word in words], np.intp)
        return np.asarray(places[:, None] == np.arange(len(self.levels)), np.float64)


@dataclass(frozen=True)
class Preparation:
    """What every client does with its columns: the features in order, and what was noticed on the way.

    Attributes:
        columns: What is done with each column.
        intercept: Whether a feature that is 1 in every row comes last.
        classes: The labels of all clients, in order; none where there are too many to be classes.
        notes: What a reader should know of it.

    >>> column = PreparedColumn("age", "number", fill=40.0, center=40.0, size=10.0)
    >>> Preparation((column,), intercept=True).transform({"age": np.array(["50", ""], object)}).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """

    columns: tuple[PreparedColumn, ...]
    intercept: bool
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The name of every feature; the intercept's is the last."""
        names = tuple(name for column in self.columns for name in column.features)
        return (*names, "intercept") if self.intercept else names

    def transform(self, columns: Mapping[str, Array]) -> Array:
        """The features of rows, shape (n, features).

        Args:
            columns: The rows' entries by column, each (n,).

        Returns:
            The features, (n, features).
        """
        absent = [column.name for column in self.columns if column.name not in columns]
        if absent:
            raise DataError(f"the rows have no column {absent[0]!r}, which the preparation needs.")
        rows = len(next(iter(columns.values())))
        parts = [column.transform(columns[column.name]) for column in self.columns]
        return np.hstack([*parts, np.ones((rows, 1))] if self.intercept else parts)

    def penalties(self, l2: float, outputs: int = 1) -> Any:
        """l2 for each entry of a model with so many outputs a feature: none on the intercept.

        Args:
            l2: The penalty of every other entry.
            outputs: How many numbers the model has for a feature: the classes of softmax.

        Returns:
            l2 itself where there is no intercept, else one number for each entry of the model.
        """
        if not self.intercept:
            return l2
        return np.repeat(np.append(np.full(len(self.names) - 1, l2), 0.0), outputs)

    def codes(self, y: Array) -> Array:
        """The place of every label among `classes`.

        Args:
            y: Labels, (n,).

        Returns:
            Whole numbers from 0, (n,).
        """
        place = {name: number for number, name in enumerate(self.classes)}
        words = words_of(y)
        unknown = [word for word in words if word not in place]
        if unknown:
            raise DataError(f"{unknown[0]!r} is not among the {len(place)} labels that were known when preparing.")
        return np.array([place[word] for word in words])

    def problem(self, kind: str, tables: Sequence[RawTable], l2: float = 0.0) -> Problem:
        """The problem of some clients' tables, an intercept not penalised and clients weighed by their rows.

        Args:
            kind: "logistic", "softmax", "poisson" or "regression".
            tables: A table for each client, as `read_table` returns them.
            l2: The weight of the penalty.

        Returns:
            The problem; the larger of two labels counts as +1 in logistic regression.
        """
        one_of("kind", kind, ("logistic", "softmax", "poisson", "regression"))
        X = [self.transform(table.columns) for table in tables]
        if kind == "softmax":
            K = len(self.classes)
            y = [self.codes(table.y) for table in tables]
            problem: Problem = softmax(X, y, self.penalties(l2, K), classes=K)
        elif kind == "logistic":
            if len(self.classes) != 2:
                raise DataError(f"the clients have {len(self.classes)} different labels: give 2, or use softmax.")
            problem = logistic(X, [2.0 * self.codes(table.y) - 1 for table in tables], self.penalties(l2))
        else:
            y = [numbers(table.y) for table in tables]
            options = {"reduction": "mean", "l2": self.penalties(l2)}
            problem = poisson(X, y, **options) if kind == "poisson" else regression(X, y, **options)
        return problem.weighted([len(part) for part in X])

    def to_bytes(self) -> bytes:
        """As the server sends it."""
        return json.dumps(asdict(self), ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, message: bytes) -> "Preparation":
        """As the server sent it; whatever is not of that form is refused.

        Args:
            message: What `to_bytes` returned.

        Returns:
            The preparation.
        """
        try:
            fields = json.loads(message)
            columns = tuple(
                PreparedColumn(**{**column, "levels": tuple(column["levels"])}) for column in fields["columns"]
            )
            classes = tuple(map(str, fields["classes"]))
            return cls(columns, bool(fields["intercept"]), classes, tuple(fields["notes"]))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as cause:
            raise DataError(f"the preparation cannot be read: {cause}.") from cause


def words_of(column: Array) -> list[str]:
    """Entries as words; a number is written as short as it can be, and a missing one is a word of its own."""
    if column.dtype.kind == "O":
        return [ABSENT if gone else word for word, gone in zip(column, missing_words(column), strict=True)]
    return [ABSENT if value != value else f"{value:g}" for value in column.tolist()]


def one_spelling(word: str) -> str:
    """A truth value in small letters, whatever it was written in; any other word as it is.

    >>> one_spelling("Yes"), one_spelling("NO"), one_spelling("Norway")
    ('yes', 'no', 'Norway')
    """
    small = word.lower()
    return small if small in TRUTH_VALUES else word
