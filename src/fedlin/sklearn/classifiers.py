"""Logistic and multinomial regression across clients."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets

from fedlin import problems
from fedlin.checks import shown
from fedlin.core import Array, Method
from fedlin.errors import ArgumentError, DataError
from fedlin.sklearn.linear_estimator import Features, LinearEstimator, Target
from fedlin.sklearn.rescaled_rounds import LinearModel


def _slope_binary(scores: Array, y: Array) -> Array:
    """The derivative of log(1 + exp(-y z)) in z."""
    return np.asarray(-y[:, None] * expit(-y[:, None] * scores))


def _bend_binary(scores: Array) -> Array:
    """p(1 - p), the curvature of log(1 + exp(-y z)) in z."""
    return np.asarray(expit(scores[:, 0]) * expit(-scores[:, 0]))


def _slope_softmax(scores: Array, y: Array) -> Array:
    """softmax(z) - [y = c], the derivative of log Σ exp(z_c) - z_y in z."""
    return np.asarray(softmax(scores, axis=1) - np.eye(scores.shape[1])[y.astype(int)])


def _bend_softmax(scores: Array) -> Array:
    """2 max_c p_c(1 - p_c), which bounds the curvature diag(p) - ppᵀ (Gershgorin)."""
    p = softmax(scores, axis=1)
    return np.asarray(2 * np.max(p * (1 - p), axis=1))


class FederatedLogisticRegression(ClassifierMixin, LinearEstimator):  # type: ignore[misc]
    """Logistic regression, multinomial for more than two classes; `LogisticRegression(C=1/(n·l2))` for n rows.

    Args:
        l2: As for all estimators, see `LinearEstimator`; so are the other arguments.
        class_weight: How much each class counts: a dictionary, "balanced" (in inverse proportion to its rows), or None.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = FederatedLogisticRegression().fit(X, y, clients=5)
    >>> model.coef_.shape, model.score(X, y) > 0.9
    ((3, 4), True)
    """

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
        class_weight: Mapping[object, float] | str | None = None,
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
    ) -> None:
        super().__init__(
            l2,
            method=method,
            local_steps=local_steps,
            step=step,
            rounds=rounds,
            tol=tol,
            fit_intercept=fit_intercept,
            random_state=random_state,
            warm_start=warm_start,
        )
        self.class_weight = class_weight

    def _target(self, y: Array, weights: Array) -> Target:
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError(f"y holds one class only, {self.classes_.tolist()}: give rows of at least two classes.")
        if self.class_weight is not None:
            try:
                weights = weights * compute_sample_weight(self.class_weight, y)
            except Exception as cause:  # scikit-learn's own checks raise errors of several kinds
                raise ArgumentError(
                    f"class_weight = {shown(self.class_weight)} is not allowed: give a dictionary of classes, "
                    f'"balanced" or None ({cause}).'
                ) from cause
        if len(self.classes_) == 2:  # they share one score
            return Target(
                LinearModel(problems.logistic, _slope_binary, _bend_binary, (0.0, 0.25)), 2.0 * codes - 1, weights
            )
        classes = len(self.classes_)

        def problem(X: Features, y: ArrayLike, **options: Any) -> problems.Problem:
            return problems.softmax(X, y, classes=classes, **options)

        return Target(
            LinearModel(problem, _slope_softmax, _bend_softmax, (0.0, 0.5), classes), codes.astype(np.float64), weights
        )

    def _store(self, coef: Array, intercept: Array) -> None:
        self.coef_, self.intercept_ = coef, intercept

    def decision_function(self, X: Features) -> Array:
        """The scores of rows.

        Args:
            X: Features, (n, d).

        Returns:
            Xwᵀ + b: for two classes one number a row, above 0 for the second; for more one a class.
        """
        scores = self._scores(X)
        return scores if scores.shape[1] > 2 else scores[:, -1] - (scores[:, 0] if scores.shape[1] == 2 else 0.0)

    def predict(self, X: Features) -> Array:
        """The likeliest class of each row.

        Args:
            X: Features, (n, d).

        Returns:
            Entries of `classes_`, (n,).
        """
        likeliest = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[likeliest])

    def predict_proba(self, X: Features) -> Array:
        """The probability of each class.

        Args:
            X: Features, (n, d).

        Returns:
            Probabilities in the order of `classes_`, (n, classes).
        """
        scores = self._scores(X)
        if scores.shape[1] == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        return np.asarray(softmax(scores, axis=1))


class FederatedMultinomialRegression(FederatedLogisticRegression):
    """Multinomial regression with a score for each class, of two classes as well.

    Two classes are then penalised alike: theirs are ±w/2, w what `FederatedLogisticRegression(l2/2)` has, which is what
    is fitted. The arguments are those of `FederatedLogisticRegression`.

    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> FederatedMultinomialRegression().fit(X, y, clients=5).coef_.shape
    (2, 30)
    """

    def _target(self, y: Array, weights: Array) -> Target:
        target = super()._target(y, weights)
        return target._replace(l2_share=0.5) if len(self.classes_) == 2 else target

    def _store(self, coef: Array, intercept: Array) -> None:
        if len(self.classes_) == 2:
            coef, intercept = np.concatenate([-coef, coef]) / 2, np.concatenate([-intercept, intercept]) / 2
        super()._store(coef, intercept)

    def _stored(self) -> tuple[Array, Array]:
        coef, intercept = super()._stored()
        return (coef[1:] - coef[:1], intercept[1:] - intercept[:1]) if len(intercept) == 2 else (coef, intercept)
