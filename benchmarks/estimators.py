"""The estimators beside scikit-learn's: time on twelve unequal clients, and coefficients on its own data sets."""

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn import datasets
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.preprocessing import scale

from benchmarks.hospitals import CLASSES, SIZES, rows
from benchmarks.tables import micro, table
from fedlin.data import quantity
from fedlin.sklearn import (
    FederatedLogisticRegression,
    FederatedMultinomialRegression,
    FederatedPoissonRegression,
    FederatedRidge,
)

PENALTIES = (1e-2, 1e-4)
TIMED = 1e-2  # l2 of the fits that are timed
CLIENTS = 8
NEAR = 1e-4


class Pair(NamedTuple):
    """One of ours and the same of scikit-learn's for n rows, whose coefficients `read` makes comparable."""

    ours: Callable[[float], Any]
    theirs: Callable[[float, int], Any]
    read: Callable[[Any], Any] = lambda model: model.coef_


def logistic(l2: float, n: int, tol: float = 1e-10) -> Any:
    """scikit-learn's own."""
    return LogisticRegression(C=1 / (n * l2), tol=tol, max_iter=10_000)


PAIRS = {
    "FederatedLogisticRegression": Pair(FederatedLogisticRegression, logistic),
    "FederatedMultinomialRegression": Pair(FederatedMultinomialRegression, logistic),
    # Two scores of two classes are penalised alike: their difference has half the penalty.
    "FederatedMultinomialRegression, two classes": Pair(
        FederatedMultinomialRegression,
        lambda l2, n: logistic(l2 / 2, n),
        lambda model: model.coef_[-1:] - model.coef_[:-1],
    ),
    "FederatedRidge": Pair(FederatedRidge, lambda l2, n: Ridge(alpha=n * l2)),
    "FederatedPoissonRegression": Pair(
        FederatedPoissonRegression, lambda l2, n: PoissonRegressor(alpha=l2, tol=1e-10, max_iter=10_000)
    ),
}


def data_sets() -> Iterator[tuple[str, str, Any, Any]]:
    """Estimator, name, standardised features and targets of scikit-learn's own data sets."""
    for name in ("iris", "wine", "digits"):
        source = getattr(datasets, f"load_{name}")()
        for estimator in ("FederatedLogisticRegression", "FederatedMultinomialRegression"):
            yield estimator, name, scale(source.data), source.target
    cancer = datasets.load_breast_cancer()
    yield "FederatedLogisticRegression", "breast cancer", scale(cancer.data), cancer.target
    yield "FederatedMultinomialRegression, two classes", "breast cancer", scale(cancer.data), cancer.target
    diabetes, exercise = datasets.load_diabetes(), datasets.load_linnerud()
    yield "FederatedRidge", "diabetes", scale(diabetes.data), scale(diabetes.target)
    yield "FederatedRidge", "linnerud", scale(exercise.target), scale(exercise.data[:, 0])
    yield "FederatedPoissonRegression", "diabetes, in tens", scale(diabetes.data), np.round(diabetes.target / 10)
    yield "FederatedPoissonRegression", "linnerud", scale(exercise.target), exercise.data[:, 0]


def distances() -> list[dict[str, Any]]:
    """The largest difference of two coefficients, and whether a fit warned, on clients of unequal size."""
    measured = []
    for estimator, name, X, y in data_sets():
        pair, part = PAIRS[estimator], quantity(len(y), CLIENTS, 0.5, seed=1)
        clients = np.empty(len(y), int)
        for number, mine in enumerate(part.indices):
            clients[mine] = number
        for l2 in PENALTIES:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", ConvergenceWarning)
                ours = pair.ours(l2).fit(X, y, clients=clients)
            warned = any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
            theirs = pair.theirs(l2, len(y)).fit(X, y)
            off = float(np.abs(pair.read(ours) - theirs.coef_).max())
            measured.append({"estimator": estimator, "data": name, "l2": l2, "off": off, "warned": warned,
                          "largest": float(np.abs(theirs.coef_).max()), "rounds": int(ours.n_iter_)})  # fmt: skip
    return measured


def times(repeats: int = 7) -> list[dict[str, Any]]:
    """Seconds of a fit, ours and scikit-learn's in turns: the first, and the least of the others."""
    parts, labels = rows()
    X, y = np.concatenate(parts), np.concatenate(labels)
    sites, draw = np.repeat(np.arange(len(SIZES)), SIZES), np.random.default_rng(1)
    last = (y == CLASSES - 1).astype(int)
    targets = {
        "FederatedLogisticRegression, two classes": last,
        "FederatedLogisticRegression": y,
        "FederatedMultinomialRegression, two classes": last,
        "FederatedRidge": X @ draw.standard_normal(X.shape[1]) + draw.standard_normal(len(X)),
        "FederatedPoissonRegression": draw.poisson(np.exp(0.3 * X[:, 0] - 0.2 * X[:, 1])),
    }
    timed = []
    for name, target in targets.items():
        pair = PAIRS.get(name) or PAIRS[name.partition(",")[0]]
        theirs = pair.theirs(TIMED, len(target))
        if name != "FederatedRidge":
            theirs.set_params(tol=1e-4, max_iter=1000)  # scikit-learn's own tolerance
        ways: dict[str, Callable[[], Any]] = {
            "ours": partial(pair.ours(TIMED).fit, X, target, clients=sites),
            "theirs": partial(theirs.fit, X, target),
        }
        taken: dict[str, list[tuple[float, float]]] = {"ours": [], "theirs": []}
        for way in list(ways) * (repeats + 1):
            began = time.perf_counter(), time.process_time()
            ways[way]()
            taken[way].append((time.perf_counter() - began[0], time.process_time() - began[1]))
        wall, cores = ({way: min(each[clock] for each in taken[way][1:]) for way in ways} for clock in (0, 1))
        timed.append({"estimator": name, "first": taken["ours"][0][1], "ours": cores["ours"], "theirs": cores["theirs"],
                      "wall": wall["ours"] / wall["theirs"], "cores": cores["ours"] / cores["theirs"]})  # fmt: skip
    return timed


def measure() -> dict[str, Any]:
    """Both."""
    return {"times": times(), "distances": distances()}


def write(results: dict[str, Any]) -> str:
    """As two tables."""
    timed = [
        (f"`{row['estimator']}`", micro(row["ours"]), micro(row["theirs"]), f"{row['cores']:.1f}", f"{row['wall']:.1f}",
         micro(row["first"]))
        for row in results["times"]
    ]  # fmt: skip
    off = [
        (f"`{row['estimator']}`", row["data"], f"{row['l2']:g}", f"{row['off']:.1e}", f"{row['largest']:.3g}",
         f"{row['rounds']}", "a warning" if row["warned"] else "" if row["off"] <= NEAR else "**no warning**")
        for row in results["distances"]
    ]  # fmt: skip
    return f"""\
A fit of {sum(SIZES):,} rows of {len(SIZES)} clients with {min(SIZES)} to {max(SIZES):,} each, l2 = {TIMED:g},
everything else at its default, in CPU seconds. The first fit of a process compiles;
`fedlin.keep_compiled` spares the next process that.

{table(("", "a fit", "scikit-learn", "times", "times, wall time", "the first fit"), timed)}

On scikit-learn's own data sets, standardised and split among {CLIENTS} clients of unequal size, the largest difference
of two coefficients:

{table(("", "data", "l2", "off by", "largest coefficient", "rounds", ""), off)}"""
