"""Numbers that others published, with the problems they were measured on; real data, so None where it is absent.

Scaffnew: WilliamYi96/VR-ProxSkip (MIT), `main_0004.py` and `logs/0019_*`. DIANA, ADIANA and FedNL:
Rustem-Islamov/FedNL-Public, whose code was run as it is.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedlin import problems
from fedlin.claims.common.instances import data_file
from fedlin.core import Array
from fedlin.data import read
from fedlin.problems.logistic import Logistic

ERRORS = (1e-4, 1e-6, 1e-8)  # f - f*
# Rounds of Scaffnew to each error by κ: as the logs have them, and as plain NumPy takes them with the logged steps.
SCAFFNEW_LOGGED = {1000: (56, 103, 166), 2000: (78, 142, 220)}
SCAFFNEW_REPLAYED = {1000: (56, 103, 167), 2000: (78, 141, 222)}
# The local steps of every round, from the logs.
SCAFFNEW_STEPS = {
    kappa: tuple(map(int, log.split()))
    for kappa, log in {
        1000: "45 18 59 36 3 112 43 47 5 18 14 79 31 52 18 8 25 2 53 30 43 14 106 68 46 7 19 2 6 35 41 103 12 14 20 "
        "7 5 20 8 34 18 54 37 12 54 49 15 11 35 5 7 1 47 33 37 46 19 26 5 4 34 20 25 44 31 25 25 11 1 18 8 16 58 8 2 "
        "10 11 33 25 46 33 16 51 6 1 3 39 19 6 21 5 36 18 15 11 30 14 3 4 98 72 37 10 105 46 38 18 10 4 70 19 7 "
        "11 26 6 59 43 39 17 30 27 32 3 17 2 21 12 5 4 27 6 78 27 13 27 1 96 20 46 3 20 21 84 26 20 10 13 23 18 1 "
        "53 68 5 25 4 34 10 33 39 44 4 75 8 2 25 14 54 50 12 92 11 22",
        2000: "64 25 84 51 5 159 61 66 6 26 20 112 44 74 25 11 35 3 75 43 61 19 151 96 65 10 27 2 8 49 59 146 17 20 28 "
        "9 6 28 11 48 25 77 52 16 77 70 21 15 49 7 10 1 66 47 53 65 27 36 7 6 48 28 36 62 43 35 35 16 2 25 11 23 "
        "82 12 3 15 15 47 35 66 47 23 72 8 1 5 55 27 8 30 8 51 26 21 16 43 20 4 6 140 102 52 14 149 65 54 26 14 5 "
        "100 26 10 16 37 9 83 61 55 25 43 38 45 4 23 2 30 18 7 5 38 8 111 38 19 39 1 136 29 66 4 29 29 119 37 28 "
        "14 18 32 25 1 75 97 7 35 5 48 15 46 56 63 5 106 12 2 35 20 76 71 17 131 15 31 13 118 8 2 25 208 95 59 95 "
        "96 32 17 63 47 20 5 59 13 118 12 6 76 8 9 39 89 10 16 65 153 30 7 1 12 7 49 6 31 51 38 10 70 54 58 6 6 "
        "112 22 16 29 47 133 15 111 2 35",
    }.items()
}
# Rounds of DIANA to each error, at the step its authors' code takes; bits up a client as they count them.
DIANA_ROUNDS, DIANA_STEP, DIANA_ALPHA, DIANA_LEVELS = (500, 2369, 4276), 1.1828, 0.5, 11
BITS_TO = (1e-6, 1e-10)
PUBLISHED_BITS: dict[str, tuple[int, ...]] = {
    "DIANA": (891_692,),
    "ADIANA": (340_643, 827_704),
    "FedNL, rank 1": (291_264, 346_368),
}
# What version 0.1.0 of this package sent on the same problem.
BEFORE = {
    ("FedLin, 8 entries up, 5 bits down", 1e-6): "431,328 (down 1,374,384) in version 0.1.0",
    ("FedLin, 8 entries up, 5 bits down", 1e-10): "not in 1500 rounds in version 0.1.0",
    ("Scaffnew, float64", 1e-6): "747,840 in version 0.1.0",
    ("Scaffnew, float64", 1e-10): "2,125,440 in version 0.1.0",
}
DITHERED_ENTRY, DITHERED_OMEGA = 2.8, 1.0  # bits an entry of a dithered vector, and its ω, as they count
CLIENTS, L2 = 80, 1e-3  # of their problem


class SortedProblem(NamedTuple):
    """a9a sorted by label over ten clients, and Scaffnew's γ and p for it.

    The source measures f over all rows, in which a client with a row more weighs a little more than in the mean of
    clients that the method takes: that is `whole`.
    """

    problem: Logistic
    whole: Logistic
    step: float  # γ = 1/L̄
    probability: float  # p = √(l2/L̄)


@lru_cache(maxsize=1)
def _rows() -> tuple[Array, Array] | None:
    path = data_file("a9a.gz")
    if path is None:
        return None
    table = read(path)
    return table.X.toarray(), np.where(table.y > 0, 1.0, -1.0)


@lru_cache(maxsize=2)
def sorted_a9a(kappa: float) -> SortedProblem | None:
    """All rows, sorted by label, split among ten clients in turn; l2 = L₁₆/κ, L₁₆ the smoothness of batches of 16."""
    rows = _rows()
    if rows is None:
        return None
    X, y = rows
    n = len(y)
    whole = np.linalg.norm(X, 2) ** 2 / (4 * n)  # L̄
    steepest = np.max(np.sum(X**2, axis=1)) / 4
    batch = n / (n - 1) * (1 - 1 / 16) * whole + (n / 16 - 1) / (n - 1) * steepest  # L₁₆
    l2 = batch / kappa
    parts = np.split(np.argsort(y), [n * i // 10 for i in range(1, 10)])
    problem = problems.logistic([X[part] for part in parts], [y[part] for part in parts], l2=l2)
    all_rows = problems.logistic(X[None], y[None], l2=l2)
    return SortedProblem(problem, all_rows, float(1 / whole), float(np.sqrt(l2 / whole)))


@lru_cache(maxsize=2)
def dealt_a9a(rows: int = 407) -> Logistic | None:
    """80 clients of 407 rows in the order of the file, or the first so many rows of each; l2 = 10⁻³."""
    table = _rows()
    if table is None:
        return None
    X, y = (part[: CLIENTS * 407] for part in table)
    return problems.logistic(X.reshape(CLIENTS, 407, -1)[:, :rows], y.reshape(CLIENTS, 407)[:, :rows], l2=L2)
