"""scikit-learn estimators fitted across clients: the minimisers of scikit-learn's own, without pooling the rows.

Both minimise (1/n) Σ_j loss_j + (l2/2)‖w‖² over all n rows, the intercept not penalised: client i enters with
weight n_i/n, so the way rows are dealt to clients changes the path and not the minimiser. Nor does it change when
features are centred, which is done where there is an intercept: the clients average their means before the first round.
"""

import warnings
from functools import cache
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from fedlin import algorithms, data, problems
from fedlin.checks import nonnegative, positive, positive_integer
from fedlin.core import Algorithm, Scalar, Vector
from fedlin.engines.simulation.simulate import simulate
from fedlin.engines.simulation.stop import Stop
from fedlin.errors import ArgumentError, DataError
from fedlin.plan import Plan
from fedlin.problems.objective import Objective, prox_by_newton
from fedlin.problems.problem import Problem, Rows
from fedlin.problems.rows import Sheet, dense, slope_of

Array = NDArray[Any]
METHODS = {
    "fedlin": algorithms.fedlin,
    "fedavg": algorithms.fedavg,
    "fednova": algorithms.fednova,
    "scaffold": algorithms.scaffold,
    "gradient_descent": algorithms.gradient_descent,
}


class _Federated(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: their parameters, clients from rows, and the run."""

    def __init__(
        self,
        l2: float = 1e-2,
        *,
        method: str | Algorithm[Any, Any] = "fedlin",
        local_steps: int | ArrayLike = 5,
        step: float = 1.0,
        rounds: int = 2000,
        tol: float = 1e-3,
        fit_intercept: bool = True,
    ) -> None:
        self.l2 = l2
        self.method = method
        self.local_steps = local_steps
        self.step = step
        self.rounds = rounds
        self.tol = tol
        self.fit_intercept = fit_intercept

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _algorithm(self) -> Algorithm[Any, Any]:
        if isinstance(self.method, Algorithm):
            return self.method
        if self.method not in METHODS:
            raise ArgumentError(
                f"method = {self.method!r} is not allowed: give an Algorithm, or one of {', '.join(METHODS)}."
            )
        return METHODS[self.method]()

    def _middle(self, X: Any) -> Array:
        return np.asarray(X.mean(axis=0)).ravel() if self.fit_intercept else np.zeros(X.shape[1])

    def _run(self, problem: Problem, sizes: Array) -> Array:
        """The model after rounds enough for ‖∇f(x)‖ ≤ tol ‖∇f(0)‖, or a warning."""
        problem = problem.weighted(sizes)
        first = float(np.linalg.norm(problem.grad(problem.start)))
        goal = max(positive("tol", self.tol) * first, float(np.finfo(np.float64).tiny))
        plan = Plan.scaled(self.local_steps, positive("step", self.step) / problem.smoothness)
        self.result_ = simulate(
            self._algorithm(),
            problem,
            plan,
            positive_integer("rounds", self.rounds),
            weights=sizes,
            stop=Stop(grad_norm=goal),
            iterates=False,
        )
        self.n_iter_ = self.result_.rounds
        if self.result_.status != "stopped":
            warnings.warn(
                f"the gradient norm is {self.result_.grad_norm[-1]:.2e} after {self.n_iter_} rounds and not below "
                f"tol·‖∇f(0)‖ = {goal:.2e} (the run is {self.result_.status}): raise rounds, l2 or tol, scale X, or "
                "lower step if it grew.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self.result_.x


class FederatedLogisticRegression(ClassifierMixin, _Federated):  # type: ignore[misc]
    """Logistic regression, multinomial for more than two classes; `LogisticRegression(C=1/(n·l2))` for n rows.

    `method` is a name or any Algorithm, with `local_steps` τ_i and step sizes η_i = step/(L τ_i): step=1/6 is what the
    paper's Theorem 1 asks for, the default is gradient descent's own. The run ends when the gradient has shrunk to
    `tol` of its first norm; a warning tells where it did not.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = FederatedLogisticRegression().fit(X - X.mean(axis=0), y, clients=5)
    >>> model.coef_.shape, model.score(X - X.mean(axis=0), y) > 0.9
    ((3, 4), True)
    """

    def fit(self, X: Any, y: ArrayLike, clients: ArrayLike | int | None = None) -> Self:
        """`clients` is a name for each row, a number to deal the rows to at random, or None for one client."""
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError(f"y holds one class only, {self.classes_.tolist()}: give rows of at least two classes.")
        binary = len(self.classes_) == 2
        columns = 1 if binary else len(self.classes_)
        part = _partition(clients, X.shape[0])
        middle = self._middle(X)
        X_each, y_each = part.take(X, 2.0 * codes - 1 if binary else codes)
        X_each = [rows - middle for rows in dense(X_each)]
        if self.fit_intercept:  # it is the weight of a last column of ones
            X_each = [np.column_stack([rows, np.ones(len(rows))]) for rows in X_each]
        l2 = nonnegative("l2", self.l2)
        problem: Problem = (
            problems.logistic(X_each, y_each, l2=l2)
            if binary
            else problems.softmax(X_each, y_each, l2=l2, classes=columns)
        )
        model = self._run(_Unsolved(problem, columns if self.fit_intercept else 0), _sizes(part)).reshape(-1, columns)
        features = X.shape[1]
        self.coef_ = model[:features].T.copy()
        self.intercept_ = model[features] - self.coef_ @ middle if self.fit_intercept else np.zeros(columns)
        return self

    def decision_function(self, X: Any) -> Array:
        """Xwᵀ + b: one number a row for two classes, one a class for more."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        scores = np.asarray(X @ self.coef_.T + self.intercept_)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Array:
        """The likeliest class of each row."""
        scores = self.decision_function(X)
        return np.asarray(self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)])

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        return np.asarray(softmax(scores, axis=1))


class FederatedRidge(RegressorMixin, _Federated):  # type: ignore[misc]
    """Least squares with loss_j = ½(a_jᵀw + b - y_j)²; `Ridge(alpha=n·l2)` for n rows.

    The intercept is b = ȳ - wᵀā, with the means of all rows. The parameters are those of FederatedLogisticRegression.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((60, 2))
    >>> model = FederatedRidge(l2=1e-6, tol=1e-8).fit(X, X @ [1.0, -2.0] + 3.0, clients=3)
    >>> model.coef_.round(3).tolist(), round(model.intercept_, 3)
    ([1.0, -2.0], 3.0)
    """

    def fit(self, X: Any, y: ArrayLike, clients: ArrayLike | int | None = None) -> Self:
        """`clients` is a name for each row, a number to deal the rows to at random, or None for one client."""
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=True)
        part = _partition(clients, X.shape[0])
        middle, level = self._middle(X), float(np.mean(np.asarray(y))) if self.fit_intercept else 0.0
        X_each, y_each = part.take(X, y)
        problem = problems.regression(
            [rows - middle for rows in dense(X_each)],
            [own - level for own in y_each],
            l2=nonnegative("l2", self.l2),
            reduction="mean",
        )
        self.coef_ = self._run(problem, _sizes(part))
        self.intercept_ = float(level - middle @ self.coef_)
        return self

    def predict(self, X: Any) -> Array:
        """Xw + b."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return np.asarray(X @ self.coef_ + self.intercept_)


class _Unsolved(Problem):
    """A problem whose last `free` entries are not penalised and whose minimiser is left to the run to find."""

    def __init__(self, base: Problem, free: int) -> None:
        self._base, self._free = base, free
        objective = _unpenalised(base.objective, free) if free else base.objective
        super().__init__(objective, base.data, start=base.start, clients=base.clients)

    def curvature(self) -> tuple[Array, Array]:
        smoothness, convexity = self._base.curvature()
        return smoothness, np.zeros_like(convexity) if self._free else convexity

    def rows(self) -> Rows:
        return self._base.rows()._replace(slope=slope_of(self.objective.loss, self.objective.grad))


@cache
def _unpenalised(base: Objective, free: int) -> Objective:
    def loss(sheet: Sheet, x: Vector) -> Scalar:
        return base.loss(sheet, x) - sheet.l2 * jnp.sum(x[-free:] ** 2) / 2

    def grad(sheet: Sheet, x: Vector) -> Vector:
        return base.grad(sheet, x).at[-free:].add(-sheet.l2 * x[-free:])

    return Objective(loss, grad, prox=prox_by_newton(loss))


def _partition(clients: Any, rows: int) -> data.Partition:
    if clients is None:
        return data.iid(rows, 1)
    if np.ndim(clients) == 0:
        return data.iid(rows, positive_integer("clients", clients))
    if np.shape(clients) != (rows,):
        raise DataError(f"clients has shape {np.shape(clients)} for {rows} rows: give one name a row, or one number.")
    return data.by_column(clients)


def _sizes(part: data.Partition) -> Array:
    return np.array([len(rows) for rows in part.indices])
