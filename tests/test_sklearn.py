"""scikit-learn's checks hold, and its own estimators agree to many digits however the rows are dealt."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import scale
from sklearn.utils.estimator_checks import parametrize_with_checks

import fedlin
from fedlin import data, problems
from fedlin.errors import ArgumentError, DataError
from fedlin.sklearn import FederatedLogisticRegression, FederatedRidge
from realdata import data_file

CANCER, SICK = scale(load_breast_cancer().data), load_breast_cancer().target
IRIS, SPECIES = scale(load_iris().data), load_iris().target
SKEWED = data.dirichlet(SICK, 6, 0.3, seed=1)
CLIENTS = np.concatenate([np.full(len(rows), i) for i, rows in enumerate(SKEWED.indices)])[
    np.argsort(np.concatenate(SKEWED.indices))
]
EXACT: dict[str, Any] = {"l2": 0.1, "step": 1.0, "tol": 1e-10, "rounds": 20_000}


def theirs(X: Any, y: Any, intercept: bool = True) -> LogisticRegression:
    """scikit-learn's minimiser of the same objective."""
    return LogisticRegression(
        C=1 / (X.shape[0] * EXACT["l2"]), fit_intercept=intercept, tol=1e-12, max_iter=10_000, solver="newton-cholesky"
    ).fit(X, y)


def close(ours: Any, other: Any, digits: float = 1e-8) -> None:
    """Both minimisers agree to `digits`, relative to their norm."""
    for name in ("coef_", "intercept_"):
        mine, his = (np.asarray(getattr(model, name)) for model in (ours, other))
        assert np.linalg.norm(mine - his) <= digits * np.linalg.norm(his), name
        assert mine.shape == his.shape


# None is expected to fail.
@pytest.mark.slow  # together, not each: every shape of data is compiled anew
@parametrize_with_checks([FederatedLogisticRegression(tol=1e-2), FederatedRidge(tol=1e-2)])  # type: ignore[untyped-decorator]
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("intercept", [True, False])
def test_two_classes_reach_scikit_learns_minimiser(intercept: bool) -> None:
    X = CANCER + 2.0 * intercept  # off centre, which must not matter where there is an intercept
    ours = FederatedLogisticRegression(**EXACT, fit_intercept=intercept).fit(X, SICK, clients=CLIENTS)
    close(ours, theirs(X, SICK, intercept))
    assert ours.result_.status == "stopped"
    assert ours.n_iter_ == ours.result_.rounds


def test_many_classes_reach_scikit_learns_minimiser() -> None:
    ours = FederatedLogisticRegression(**EXACT).fit(IRIS, SPECIES, clients=4)
    other = theirs(IRIS, SPECIES)
    close(ours, other)
    np.testing.assert_allclose(ours.predict_proba(IRIS), other.predict_proba(IRIS), atol=1e-8)


def test_ridge_reaches_scikit_learns_minimiser_off_centre() -> None:
    X, y = CANCER[:, :8] + 5.0, CANCER[:, 9] * 3 + 7.0
    ours = FederatedRidge(**EXACT).fit(X, y, clients=CLIENTS)
    close(ours, Ridge(alpha=len(X) * EXACT["l2"], tol=1e-12, solver="cholesky").fit(X, y))


def test_sparse_rows_and_words_change_nothing() -> None:
    words = np.where(SICK, "well", "ill")
    dense = FederatedLogisticRegression().fit(CANCER, words, clients=5)
    thin = FederatedLogisticRegression().fit(sparse.csr_array(CANCER), words, clients=5)
    np.testing.assert_allclose(dense.coef_, thin.coef_, atol=1e-12)  # the means are summed in another order
    assert np.array_equal(dense.predict(CANCER), thin.predict(sparse.csr_array(CANCER)))
    assert dense.classes_.tolist() == ["ill", "well"]
    assert dense.score(CANCER, words) > 0.95
    ridge = [FederatedRidge().fit(form, SICK, clients=5) for form in (CANCER, sparse.csr_array(CANCER))]
    np.testing.assert_allclose(ridge[0].coef_, ridge[1].coef_, atol=1e-12)


def test_any_algorithm_can_be_given_and_cloned() -> None:
    method = fedlin.fedlin(uplink=fedlin.innovation(fedlin.top_k(20)))
    model = clone(FederatedLogisticRegression(l2=0.1, method=method, step=0.2, tol=0.01, local_steps=2))
    model.fit(CANCER, SICK, clients=CLIENTS)
    assert model.result_.algorithm == method.name
    assert model.score(CANCER, SICK) > 0.95
    assert cross_val_score(FederatedRidge(), CANCER, SICK, cv=3).min() > 0.5


def test_fedavg_stays_short_of_the_minimiser_and_says_so() -> None:
    settings = {**EXACT, "rounds": 500, "local_steps": 50}
    with pytest.warns(ConvergenceWarning, match="raise rounds"):
        drifted = FederatedLogisticRegression(**settings, method="fedavg").fit(CANCER, SICK, clients=CLIENTS)
    other = theirs(CANCER, SICK)
    assert np.linalg.norm(drifted.coef_ - other.coef_) > 1e-3 * np.linalg.norm(other.coef_)


@pytest.mark.parametrize(
    ("options", "clients", "error", "words"),
    [
        ({"method": "fedlim"}, None, ArgumentError, "method = 'fedlim'.*fedlin, fedavg"),
        ({"l2": -1.0}, None, ArgumentError, "l2 = -1.0"),
        ({"tol": 0.0}, None, ArgumentError, "tol = 0.0"),
        ({"step": 0.0}, None, ArgumentError, "step = 0.0"),
        ({"rounds": 0}, None, ArgumentError, "rounds = 0"),
        ({"local_steps": 0}, None, fedlin.FedLinError, "tau holds 0"),
        ({}, 0, ArgumentError, "clients = 0"),
        ({}, 1000, DataError, "1000 clients cannot share 569 rows"),
        ({}, ["a", "b"], DataError, r"clients has shape \(2,\) for 569 rows"),
    ],
)
@pytest.mark.parametrize("kind", [FederatedLogisticRegression, FederatedRidge])
def test_mistakes_are_told(kind: Any, options: Any, clients: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        kind(**options).fit(CANCER, SICK, clients=clients)


def test_one_class_alone_is_told() -> None:
    with pytest.raises(DataError, match="one class only"):
        FederatedLogisticRegression().fit(CANCER, np.ones(len(CANCER)))


@pytest.mark.slow
def test_dealing_a9a_to_clients_keeps_scikit_learns_minimiser() -> None:
    """80 clients by Dirichlet(0.1), weighted by their rows, at l2 = 10⁻³: the federated objective is the pooled one."""
    table = data.read(data_file("a9a.gz"))
    part = data.dirichlet(table.y, 80, 0.1)
    pooled = problems.logistic(*part.take(table.X, table.y), l2=1e-3)
    problem = pooled.weighted([len(rows) for rows in part.indices])
    other = LogisticRegression(
        C=1 / (len(table.y) * 1e-3), fit_intercept=False, tol=1e-12, solver="newton-cholesky"
    ).fit(table.X.toarray(), table.y)
    assert np.linalg.norm(problem.minimizer - other.coef_[0]) <= 1e-8 * np.linalg.norm(other.coef_)


@pytest.mark.slow
def test_fedlin_on_a9a_reaches_scikit_learns_minimiser() -> None:
    table = data.read(data_file("a9a.gz"))
    X, y = table.X[:1500], table.y[:1500]
    part = data.dirichlet(y, 20, 0.1)
    names = np.empty(1500, int)
    for i, rows in enumerate(part.indices):
        names[rows] = i
    ours = FederatedLogisticRegression(**EXACT, local_steps=2, fit_intercept=False).fit(X, y, clients=names)
    close(ours, theirs(X.toarray(), y, intercept=False))
