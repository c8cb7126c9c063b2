"""Lists in a file are grids: every combination of their entries is a run."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from fedlin.errors import ArgumentError

KEPT = ("each",)  # lists that are values of a single run
SINGLE = ("kind", "name")  # what decides which other keys there are

Path = tuple[str, ...]


def lists(raw: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, list[Any]]]:
    """The lists of a table and of the tables in it, with their places.

    >>> list(lists({"l2": [0.1, 0.2], "partition": {"alpha": [1.0]}}, ("problem",)))
    [(('problem', 'l2'), [0.1, 0.2]), (('problem', 'partition', 'alpha'), [1.0])]
    """
    for key, value in raw.items():
        here = (*path, key)
        if isinstance(value, dict):
            yield from lists(value, here)
        elif isinstance(value, list) and key not in KEPT:
            if not value or key in SINGLE:
                told = "is an empty list: give at least one value" if not value else "is a list: give one name"
                raise ArgumentError(f"{'.'.join(here)} {told}.")
            yield here, value


def cells(raw: Mapping[str, Any], path: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Every combination: the table with single values, and those that came from a list by their place.

    >>> [grid for _, grid in cells({"l2": [0.1, 0.2], "seed": 3}, ("problem",))]
    [{'problem.l2': 0.1}, {'problem.l2': 0.2}]
    """
    found = list(lists(raw, path))
    for values in product(*(choices for _, choices in found)):
        cell: dict[str, Any] = dict(raw)
        for (place, _), value in zip(found, values, strict=True):
            cell = _replaced(cell, place[len(path) :], value)
        yield cell, {".".join(place): value for (place, _), value in zip(found, values, strict=True)}


def _replaced(raw: Mapping[str, Any], place: Path, value: Any) -> dict[str, Any]:
    key, *rest = place
    return {**raw, key: _replaced(raw[key], tuple(rest), value) if rest else value}
