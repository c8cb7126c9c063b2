"""Labels: one for every row, and two of them as -1 and +1, the form logistic regression takes."""

from numbers import Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedlin.checks import refuse_missing, shape_of, shown
from fedlin.core import Array
from fedlin.errors import DataError


def labels_of_rows(y: ArrayLike) -> Array:
    """One label a row, none missing; words and numbers among each other become words.

    >>> labels_of_rows([1, "b"]).tolist()
    ['1', 'b']
    """
    shape_of("y", y, DataError)
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise DataError(f"y has shape {labels.shape}: give one label a row, shape (n,).")
    refuse_missing(labels, "label", "fill them in")
    return labels.astype(str) if labels.dtype.kind == "O" else labels


def signs(y: ArrayLike, *, positive: object = None) -> NDArray[np.float64]:
    """Two labels as -1 and +1. Map all rows together, before they are split among clients: a client may well hold one.

    Args:
        y: The labels of all rows, numbers or words of two kinds.
        positive: The label that becomes +1; the larger of the two unless given.

    Returns:
        +1 where the label is `positive`, -1 elsewhere.

    >>> signs([0, 1, 1]).tolist(), signs([1, 2, 1]).tolist(), signs(["no", "yes"]).tolist()
    ([-1.0, 1.0, 1.0], [-1.0, 1.0, -1.0], [-1.0, 1.0])
    """
    labels = labels_of_rows(y)
    values = np.unique(labels)
    if len(values) != 2:
        some = ", ".join(map(str, values[:5].tolist())) + (", ..." if len(values) > 5 else "")
        raise DataError(
            f"y holds {len(values)} different labels ({some or 'none'}): give exactly 2. For more than two classes "
            "use fedlin.problems.softmax, or keep two of them."
        )
    if positive is None:
        return np.where(labels == values[1], 1.0, -1.0)
    chosen = [value for value in values if _same(positive, value.item())]
    if not chosen:
        raise DataError(f"positive = {shown(positive)} is not among the labels {values.tolist()}: choose one of them.")
    return np.where(labels == chosen[0], 1.0, -1.0)


def _same(value: object, label: object) -> bool:
    """Whether a label is meant: 1 is 1.0, and True is the word True in a column of words."""
    return isinstance(value, str | Real) and bool(value == label or str(value) == str(label))
