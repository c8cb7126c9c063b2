"""Real data on this machine: in the folder named by FEDLIN_DATA, or in `../shared/data`; claims can do without."""

import os
from functools import lru_cache
from pathlib import Path

from fedlin import problems
from fedlin.data import read
from fedlin.experiments.experiment_file import DATA
from fedlin.problems.logistic import Logistic


def data_file(name: str) -> Path | None:
    """The path of a data file, or None where there is none."""
    path = Path(os.environ.get(DATA, "../shared/data")) / name
    return path if path.is_file() else None


@lru_cache(maxsize=4)
def a9a(part: int, clients: int, rows: int, l2: float) -> Logistic | None:
    """Logistic regression on the LIBSVM data set a9a, 123 features, as clients with `rows` consecutive rows each.

    `part` 0 takes the first clients · rows rows of the file, part 1 the next ones. None without the file.
    """
    path = data_file("a9a.gz")
    if path is None:
        return None
    table = read(path)
    taken = slice(part * clients * rows, (part + 1) * clients * rows)
    features = table.X[taken].toarray().reshape(clients, rows, -1)
    return problems.logistic(features, table.y[taken].reshape(clients, rows), l2=l2)
