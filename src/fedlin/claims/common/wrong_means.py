"""Wrong robust means that a claim about them must notice."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from fedlin.aggregation import Aggregator, mean
from fedlin.core import Key, Matrix, Vector


def _plain(aggregator: Aggregator) -> Aggregator:
    return mean()


def _first(aggregator: Aggregator) -> Aggregator:
    return replace(aggregator, name=f"the first upload, not {aggregator}", combine=lambda rows, present, key: rows[0])


def _beyond(aggregator: Aggregator) -> Aggregator:
    def combine(rows: Matrix, present: Vector, key: Key) -> Vector:
        average = mean().combine(rows, present, key)
        return average + (average - aggregator.combine(rows, present, key))

    return replace(aggregator, name=f"on the other side of the mean from {aggregator}", combine=combine)


WRONG_MEANS: Mapping[str, Callable[[Aggregator], Aggregator]] = {
    "the mean itself": _plain,
    "the first upload": _first,
    "as far on the other side of the mean": _beyond,
}
