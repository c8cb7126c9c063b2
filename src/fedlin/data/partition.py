"""Which rows belong to which client."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedlin.checks import finite, is_sparse, shown
from fedlin.core import Array
from fedlin.errors import DataError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Rows = NDArray[np.intp]
LETTERS = 24  # of names side by side that fit under the bars
NAMED_TICKS = 24  # with more clients than this the bars are numbered, not named


@dataclass(frozen=True, eq=False, repr=False)
class Partition:
    """Rows split among clients: disjoint, none left over, no client without rows.

    Args:
        indices: The row numbers of each client.
        names: The clients' names; their numbers unless given.

    >>> import numpy as np
    >>> part = Partition([[0, 2], [1]], ["left", "right"])
    >>> X, y = part.take(np.array([[1.0], [2.0], [3.0]]), np.array([1, -1, 1]))
    >>> [rows.ravel().tolist() for rows in X]
    [[1.0, 3.0], [2.0]]
    """

    indices: tuple[Rows, ...]
    names: tuple[str, ...]

    def __init__(self, indices: Sequence[ArrayLike], names: Sequence[str] | None = None) -> None:
        rows = tuple(_row_numbers(part) for part in _listed("indices", indices))
        object.__setattr__(self, "indices", rows)
        object.__setattr__(
            self, "names", tuple(map(str, range(len(rows)) if names is None else _listed("names", names)))
        )
        self._check()

    def _check(self) -> None:
        if len(self.names) != len(self.indices):
            raise DataError(
                f"names has {len(self.names)} entries for {len(self.indices)} clients: give each client one."
            )
        if len(set(self.names)) != len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise DataError(f"two clients are named {twice!r}: give each a name of its own.")
        for name, part in zip(self.names, self.indices, strict=True):
            if part.ndim != 1 or part.size == 0:
                raise DataError(f"client {name} has no rows: leave it out, or give it at least one.")
        together = np.sort(np.concatenate(self.indices)) if self.indices else np.empty(0, np.intp)
        if together.size == 0:
            raise DataError("the partition has no clients: give at least one.")
        wrong = np.flatnonzero(together != np.arange(together.size))
        if wrong.size:
            raise DataError(
                f"the clients' rows are not each of 0..{together.size - 1} once (at {int(wrong[0])} comes "
                f"{int(together[wrong[0]])}): give every row to exactly one client."
            )

    @property
    def clients(self) -> int:
        """m, the number of clients."""
        return len(self.indices)

    @property
    def rows(self) -> int:
        """n, the number of rows of all clients together."""
        return sum(part.size for part in self.indices)

    def __repr__(self) -> str:
        sizes = [part.size for part in self.indices]
        return f"<Partition: {self.rows} rows, {self.clients} clients with {min(sizes)} to {max(sizes)} rows each>"

    def take(self, X: Any, y: ArrayLike) -> tuple[list[Any], list[Array]]:
        """X_i and y_i of every client, dense or sparse as X is; the problems take both.

        Args:
            X: Features of all rows, (n, d), dense or sparse.
            y: Labels of all rows, (n,).

        Returns:
            The lists of the clients' X_i and y_i.
        """
        X, labels = X.tocsr() if is_sparse(X) else np.asarray(X), self._labels(y)
        if X.ndim < 1 or X.shape[0] != self.rows:
            raise DataError(f"X has shape {X.shape} and the partition {self.rows} rows: give the rows it was made for.")
        return [X[part] for part in self.indices], [labels[part] for part in self.indices]

    def _labels(self, y: ArrayLike) -> Array:
        labels = np.asarray(y)
        if labels.shape != (self.rows,):
            raise DataError(
                f"y has shape {labels.shape} and the partition {self.rows} rows: give the labels it was made for."
            )
        return labels

    def _counts(self, y: ArrayLike | None) -> tuple[list[Any], NDArray[np.int64]]:
        """The labels, and how many rows of each a client has; without y all rows count as one label."""
        labels = np.zeros(self.rows) if y is None else self._labels(y)
        values, codes = np.unique(labels, return_inverse=True)
        counts = np.stack([np.bincount(codes[part], minlength=len(values)) for part in self.indices])
        return [int(v) if isinstance(v, float) and v.is_integer() else v for v in values.tolist()], counts

    def table(self, y: ArrayLike | None = None) -> "pd.DataFrame":
        """One line a client: its name, its number of rows and, with labels, how many rows of each.

        Args:
            y: Labels of all rows, (n,).

        Returns:
            The table.

        >>> Partition([[0, 2], [1]]).table([5, 6, 6])
          client  rows  5  6
        0      0     2  1  1
        1      1     1  0  1
        """
        import pandas as pd

        values, counts = self._counts(y)
        by_label = {} if y is None else dict(zip(values, counts.T, strict=True))
        return pd.DataFrame({"client": self.names, "rows": counts.sum(axis=1), **by_label})

    def plot(self, y: ArrayLike | None = None) -> "Figure":
        """A bar a client, as high as its number of rows, in layers by label.

        Args:
            y: Labels of all rows, (n,).

        Returns:
            The figure, for `savefig`.
        """
        from matplotlib import colormaps
        from matplotlib.figure import Figure

        values, counts = self._counts(y)
        figure = Figure(figsize=(min(10.0, 3.2 + 0.09 * self.clients), 3.2), layout="constrained")
        axes = figure.add_subplot()
        place, base = np.arange(self.clients), np.zeros(self.clients)
        shades = colormaps["viridis"](np.linspace(0.05, 0.95, len(values)))
        edge = 0.4 if self.clients <= 100 else 0.0
        for value, column, shade in zip(values, counts.T, shades, strict=True):
            axes.bar(place, column, 0.9, base, color=shade, label=str(value), edgecolor="white", linewidth=edge)
            base += column
        if self.clients <= NAMED_TICKS:
            widest = max(map(len, self.names))
            long = widest > 3 or self.clients * (widest + 1) > LETTERS
            axes.set_xticks(place, self.names, rotation=90 if long else 0, parse_math=False)
        axes.set_xlim(-0.75, self.clients - 0.25)
        axes.set_ylim(0, 1.04 * base.max())
        axes.set_xlabel("client")
        axes.set_ylabel("rows")
        axes.spines[["top", "right"]].set_visible(False)
        if y is not None:
            handles, labels = axes.get_legend_handles_labels()
            figure.legend(
                # The highest layer first, as in the bars.
                handles[::-1],
                labels[::-1],
                loc="outside right upper",
                title="label",
                frameon=False,
                ncols=ceil(len(values) / 12),
            )
        return figure


def _listed(name: str, value: Any) -> list[Any]:
    """The entries of a list or an array, one for each client."""
    plain = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    if not plain and (not isinstance(value, np.ndarray) or value.ndim == 0):
        raise DataError(f"{name} = {shown(value)} is not allowed: give a list with one entry for each client.")
    return list(value)


def _row_numbers(part: Any) -> Rows:
    numbers = finite("indices", part)
    if np.any(numbers != np.round(numbers)) or np.any(numbers < 0):
        raise DataError(f"indices holds {shown(part)}: rows are counted by whole numbers from 0.")
    return numbers.astype(np.intp)
