"""What the estimators share: their parameters, clients from rows, units taken out, and the fit."""

import warnings
from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fedlin import algorithms, data
from fedlin.checks import nonnegative, positive, positive_integer, shape_of, shown, true_or_false
from fedlin.core import Algorithm, Array, Method
from fedlin.errors import ArgumentError, DataError
from fedlin.plan import Plan
from fedlin.problems.rows import dense
from fedlin.sklearn.rescaled_rounds import ClientRows, LinearModel, fit_linear_model

METHODS = {
    "fedlin": algorithms.fedlin,
    "fedavg": algorithms.fedavg,
    "fednova": algorithms.fednova,
    "scaffold": algorithms.scaffold,
    "gradient_descent": algorithms.gradient_descent,
}
LARGEST_PENALTY = 1e100  # in scaled units; a coefficient penalised so much is zero


class Units(NamedTuple):
    """Column k of X is middle_k + size_k times what the rounds see."""

    middle: Array
    size: Array


Features = Any  # rows: an array, a data frame or a sparse matrix


class Target(NamedTuple):
    """A model, what it is fitted to, how much each row counts, where its intercept begins, and its share of `l2`."""

    model: LinearModel
    y: Array
    weights: Array
    intercept: float = 0.0
    l2_share: float = 1.0


class LinearEstimator(BaseEstimator, ABC):  # type: ignore[misc]
    """A generalised linear model fitted across clients: the parameters and the fit of all estimators.

    Args:
        l2: The weight of the penalty (l2/2)‖w‖² on the coefficients; the intercept is not penalised.
        method: "fedlin", "scaffold", "fedavg", "fednova", "gradient_descent", or any `Algorithm`.
        local_steps: τ_i, one number or one for each client.
        step: η_i = step/τ_i in coordinates in which f has curvature 1, at most 1/L_i. Unless given, a fit starts with
            longer steps and halves them when the loss does not fall, FedLin's down to the certified ones where the loss
            has bounded curvature.
        rounds: How many rounds at most.
        tol: A fit ends once the model is within this distance of the minimiser, relative to its norm, both measured by
            the curvature of f; a `ConvergenceWarning` says where it does not.
        fit_intercept: Whether the model has an intercept.
        random_state: The seed of what is drawn: which rows go to which client where `clients` is a number, and
            whatever a method draws. 0 unless given.
        warm_start: Whether a fit begins with the model of the last.
    """

    _numeric_targets = False

    def __init__(
        self,
        l2: float = 1e-2,
        *,
        method: str | Method = "fedlin",
        local_steps: int | ArrayLike = 5,
        step: float | None = None,
        rounds: int = 2000,
        tol: float = 1e-6,
        fit_intercept: bool = True,
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
    ) -> None:
        self.l2 = l2
        self.method = method
        self.local_steps = local_steps
        self.step = step
        self.rounds = rounds
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.warm_start = warm_start

    def fit(
        self, X: Features, y: ArrayLike, clients: ArrayLike | int | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fit the model to rows that belong to clients.

        Args:
            X: Features, (n, d), dense or sparse.
            y: A label, a number or a count for each row, (n,).
            clients: A name for each row, a number of clients to deal the rows to at random, or None for one client.
            sample_weight: How much each row counts, (n,); all alike unless given.

        Returns:
            The estimator, with `coef_` and `intercept_` in the units of X, `n_iter_` rounds and `result_`.
        """
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=self._numeric_targets)
        weights = np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
        if not weights.any():
            raise DataError("sample_weight is zero for every row: at least one must be above 0.")
        self._store(*self._minimise(self._target(np.asarray(y), weights), X, clients))
        return self

    @abstractmethod
    def _target(self, y: Array, weights: Array) -> Target:
        """What is fitted to, from labels as the user gave them."""

    @abstractmethod
    def _store(self, coef: Array, intercept: Array) -> None:
        """Keep coefficients (outputs, features) and intercepts (outputs,) in the shapes that scikit-learn has."""

    def _stored(self) -> tuple[Array, Array]:
        """What `_store` was given last."""
        return np.atleast_2d(self.coef_), np.atleast_1d(self.intercept_)

    def _minimise(self, target: Target, X: Features, clients: Any) -> tuple[Array, Array]:
        """Coefficients and intercepts in the units of X; a warning where they are not the minimiser's."""
        algorithm = self._algorithm()
        for name in ("fit_intercept", "warm_start"):
            true_or_false(name, getattr(self, name))
        l2, rounds = target.l2_share * nonnegative("l2", self.l2), positive_integer("rounds", self.rounds)
        tol, step = positive("tol", self.tol), None if self.step is None else positive("step", self.step)
        seed = _seed(self.random_state)
        weighted = target.weights > 0  # a row that counts nothing must not make a client of its own
        part = _partition(clients, X.shape[0], seed, weighted)
        X_each, y_each = part.take(X[weighted], target.y[weighted])
        X_each, weights = dense(X_each), [target.weights[weighted][rows] for rows in part.indices]
        units = _units(X_each, weights, self.fit_intercept)
        rows = ClientRows([self._scaled(X, units) for X in X_each], y_each, weights, self._penalties(l2, units))
        fit = fit_linear_model(
            target.model,
            rows,
            self._start(units, target),
            algorithm,
            self._local_steps(algorithm, part.clients),
            step=step,
            rounds=rounds,
            tol=tol,
            seed=seed,
        )
        self.result_, self.n_iter_ = fit.result, fit.result.rounds
        if fit.distance > tol:
            warnings.warn(
                f"after {self.n_iter_} rounds the model is about {fit.distance:.1e} from the minimiser and not within "
                f"tol = {tol:g}: raise rounds, l2 or tol, or use a method that converges, such as fedlin.",
                ConvergenceWarning,
                stacklevel=3,
            )
        features = X.shape[1]
        coef = (fit.W[:features] / units.size[:, None]).T
        intercept = fit.W[features] - coef @ units.middle if self.fit_intercept else np.zeros(target.model.outputs)
        return coef, intercept

    def _algorithm(self) -> Method:
        if isinstance(self.method, Algorithm):
            return self.method
        if not isinstance(self.method, str) or self.method not in METHODS:
            raise ArgumentError(
                f"method = {shown(self.method)} is not allowed: give an Algorithm, or one of {', '.join(METHODS)}."
            )
        return METHODS[self.method]()

    def _local_steps(self, algorithm: Method, clients: int) -> Array:
        """τ_i; clients of gradient descent take one."""
        tau, _ = Plan(self.local_steps, 1.0).rows(clients, 1)
        if tau.ndim != 1:
            raise ArgumentError("local_steps changes from round to round: give one number, or one for each client.")
        return np.ones_like(tau) if algorithm is algorithms.gradient_descent() else tau

    def _scaled(self, X: Array, units: Units) -> Array:
        scaled = (X - units.middle) / units.size
        # The intercept is the weight of a last column of ones.
        return np.column_stack([scaled, np.ones(len(X))]) if self.fit_intercept else scaled

    def _penalties(self, l2: float, units: Units) -> Array:
        with np.errstate(over="ignore"):
            penalties = np.minimum(l2 / units.size / units.size, LARGEST_PENALTY)
        return np.append(penalties, 0.0) if self.fit_intercept else penalties

    def _start(self, units: Units, target: Target) -> Array:
        """The model before the first round, in scaled units: that of the last fit with warm_start, else no slope."""
        features, outputs = len(units.size), target.model.outputs
        W = np.zeros((features + self.fit_intercept, outputs))
        if self.fit_intercept:
            W[features] = target.intercept
        if self.warm_start and hasattr(self, "coef_"):
            coef, intercept = self._stored()
            if coef.shape == (outputs, features) and intercept.shape == (outputs,):
                W[:features] = coef.T * units.size[:, None]
                if self.fit_intercept:
                    W[features] = intercept + coef @ units.middle
        return W

    def _scores(self, X: Features) -> Array:
        """Xwᵀ + b, one column for each output."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return np.asarray(X @ np.atleast_2d(self.coef_).T + self.intercept_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _seed(random_state: int | np.random.RandomState | None) -> int:
    """A seed from what scikit-learn takes as random_state, 0 for None."""
    if random_state is None:
        return 0
    try:
        return int(check_random_state(random_state).randint(2**31))
    except (TypeError, ValueError) as cause:
        raise ArgumentError(f"random_state = {shown(random_state)} is not allowed: {cause}.") from cause


def _partition(clients: Any, rows: int, seed: int, weighted: Array) -> data.Partition:
    """Whose row each weighted one is."""
    if clients is None:
        return data.iid(int(weighted.sum()), 1)
    if shape_of("clients", clients, DataError) == ():
        return data.iid(int(weighted.sum()), positive_integer("clients", clients), seed=seed)
    if np.shape(clients) != (rows,):
        raise DataError(f"clients has shape {np.shape(clients)} for {rows} rows: give one name a row, or one number.")
    if isinstance(clients, np.ndarray):
        return data.by_column(clients[weighted])
    return data.by_column([name for name, keep in zip(clients, weighted, strict=True) if keep])


def _units(X: list[Array], weights: list[Array], centred: bool) -> Units:
    """Means and standard deviations of all rows, from sums that every client forms of its own."""
    # Divided by the largest entry of each column first, so that no square overflows.
    largest = np.max([np.abs(rows).max(axis=0) for rows in X], axis=0)
    largest = np.where(largest > 0, largest, 1.0)
    total = sum(float(part.sum()) for part in weights)
    middle = np.zeros(len(largest))
    if centred:
        middle = sum(part @ (rows / largest) for rows, part in zip(X, weights, strict=True)) / total  # type: ignore[assignment]
    square = sum(part @ (rows / largest - middle) ** 2 for rows, part in zip(X, weights, strict=True)) / total
    size = np.sqrt(square)
    # A constant column has nothing to scale by.
    size = np.where(size > 1e-12 * np.maximum(np.abs(middle), 1e-12), size, 1.0)
    return Units(middle * largest, size * largest)
