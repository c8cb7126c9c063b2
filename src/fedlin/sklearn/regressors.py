"""Ridge and Poisson regression across clients."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlogy
from sklearn.base import RegressorMixin

from fedlin import problems
from fedlin.core import Array
from fedlin.errors import DataError
from fedlin.sklearn.linear_estimator import Features, LinearEstimator, Target
from fedlin.sklearn.rescaled_rounds import LinearModel


def _least_squares(X: Features, y: ArrayLike, **options: Any) -> problems.Problem:
    return problems.regression(X, y, reduction="mean", **options)


class FederatedRidge(RegressorMixin, LinearEstimator):  # type: ignore[misc]
    """Least squares with loss_j = ½(a_jᵀw + b - y_j)²; `Ridge(alpha=n·l2)` for n rows.

    The arguments are those of `LinearEstimator`.

    >>> X = np.random.default_rng(0).standard_normal((60, 2))
    >>> model = FederatedRidge(l2=1e-6).fit(X, X @ [1.0, -2.0] + 3.0, clients=3)
    >>> model.coef_.round(3).tolist(), round(model.intercept_, 3)
    ([1.0, -2.0], 3.0)
    """

    _numeric_targets = True

    def _target(self, y: Array, weights: Array) -> Target:
        # In units of its own spread, so that a tolerance means the same for every y.
        self._level = float(np.average(y, weights=weights)) if self.fit_intercept else 0.0
        largest = float(np.abs(y - self._level).max())
        spread = np.sqrt(np.average(((y - self._level) / (largest or 1.0)) ** 2, weights=weights))
        self._spread = float(spread * largest) or 1.0
        return Target(
            LinearModel(_least_squares, _slope_square, _bend_square, (1.0, 1.0)),
            (y - self._level) / self._spread,
            weights,
        )

    def _store(self, coef: Array, intercept: Array) -> None:
        self.coef_ = coef[0] * self._spread
        self.intercept_ = float(intercept[0] * self._spread + self._level)

    def predict(self, X: Features) -> Array:
        """The expected number of each row.

        Args:
            X: Features, (n, d).

        Returns:
            Xw + b, (n,).
        """
        return self._scores(X)[:, 0]


def _slope_square(scores: Array, y: Array) -> Array:
    """z - y, the derivative of ½(z - y)² in z."""
    return np.asarray(scores - y[:, None])


def _bend_square(scores: Array) -> Array:
    """1, the curvature of ½(z - y)² in z."""
    return np.ones(len(scores))


class FederatedPoissonRegression(RegressorMixin, LinearEstimator):  # type: ignore[misc]
    """Poisson regression of counts, E[y_j] = exp(a_jᵀw + b); `PoissonRegressor(alpha=l2)`.

    The arguments are those of `LinearEstimator`.

    >>> draw = np.random.default_rng(0)
    >>> X = draw.standard_normal((500, 2))
    >>> model = FederatedPoissonRegression(l2=0.0).fit(X, draw.poisson(np.exp(X @ [0.5, -0.3] + 1.0)), clients=3)
    >>> model.coef_.round(1).tolist(), round(model.intercept_, 1)
    ([0.5, -0.3], 1.0)
    """

    _numeric_targets = True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def _target(self, y: Array, weights: Array) -> Target:
        if np.any(y < 0):
            raise DataError(f"y holds {y.min():g}: counts must be at least 0.")
        mean = float(np.average(y, weights=weights))
        if mean == 0:
            raise DataError("y holds no count above 0: the mean has no logarithm. Give rows with counts.")
        return Target(
            LinearModel(problems.poisson, _slope_exponential, _bend_exponential, (0.0, np.inf)),
            y,
            weights,
            float(np.log(mean)),
        )

    def _store(self, coef: Array, intercept: Array) -> None:
        self.coef_, self.intercept_ = coef[0], float(intercept[0])

    def predict(self, X: Features) -> Array:
        """The expected count of each row.

        Args:
            X: Features, (n, d).

        Returns:
            exp(Xw + b), (n,).
        """
        return np.asarray(np.exp(self._scores(X)[:, 0]))

    def score(self, X: Features, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """D², the share of the deviance that the model explains, as `PoissonRegressor.score`.

        Args:
            X: Features, (n, d).
            y: Counts, (n,).
            sample_weight: How much each row counts, (n,); all alike unless given.

        Returns:
            1 at best, 0 for a model that predicts the mean.
        """
        counts = np.asarray(y, np.float64)
        weights = None if sample_weight is None else np.asarray(sample_weight)
        mean = np.average(counts, weights=weights)

        def deviance(expected: Array) -> float:
            each = xlogy(counts, counts) - xlogy(counts, expected) - counts + expected
            return float(np.average(each, weights=weights))

        return 1 - deviance(self.predict(X)) / deviance(np.full_like(counts, mean))


def _slope_exponential(scores: Array, y: Array) -> Array:
    """exp(z) - y, the derivative of exp(z) - y z in z."""
    return np.asarray(np.exp(scores) - y[:, None])


def _bend_exponential(scores: Array) -> Array:
    """exp(z), the curvature of exp(z) - y z in z."""
    return np.asarray(np.exp(scores[:, 0]))
