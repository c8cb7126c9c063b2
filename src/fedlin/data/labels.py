"""Labels of two values as -1 and +1, the form logistic regression takes."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedlin.errors import DataError


def signs(y: ArrayLike, *, positive: Any = None) -> NDArray[np.float64]:
    """+1 where the label is `positive`, -1 elsewhere; `positive` is the larger of the two labels unless given.

    Map all rows together, before they are dealt to clients: a client may well hold one label only.

    >>> signs([0, 1, 1]).tolist(), signs([1, 2, 1]).tolist(), signs(["no", "yes"]).tolist()
    ([-1.0, 1.0, 1.0], [-1.0, 1.0, -1.0], [-1.0, 1.0])
    """
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise DataError(f"y has shape {labels.shape}: give the labels of all rows as one array (n,).")
    values = np.unique(labels)
    if len(values) != 2:
        shown = ", ".join(map(str, values[:5].tolist())) + (", ..." if len(values) > 5 else "")
        raise DataError(
            f"y holds {len(values)} different labels ({shown or 'none'}): give exactly 2. For more than two classes "
            "use fedlin.problems.softmax, or keep two of them."
        )
    if positive is None:
        positive = values[1]
    elif positive not in values.tolist():
        raise DataError(f"positive = {positive!r} is not among the labels {values.tolist()}: choose one of them.")
    return np.where(labels == positive, 1.0, -1.0)
