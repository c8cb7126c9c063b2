"""scikit-learn's checks hold, and its own estimators agree to many digits however the rows are dealt."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import scale
from sklearn.utils.estimator_checks import parametrize_with_checks

import fedlin
from fedlin import data, problems
from fedlin.errors import ArgumentError, DataError
from fedlin.sklearn import (
    FederatedLogisticRegression,
    FederatedMultinomialRegression,
    FederatedPoissonRegression,
    FederatedRidge,
)
from fedlin.sklearn.rescaled_rounds import rescale
from hospital_table import OUTCOMES, hospital_rows
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
@parametrize_with_checks(
    [
        FederatedLogisticRegression(tol=1e-2),
        FederatedMultinomialRegression(tol=1e-2),
        FederatedPoissonRegression(tol=1e-2),
        FederatedRidge(tol=1e-2),
    ]
)  # type: ignore[untyped-decorator]
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
        ({}, [None] + ["a"] * 568, DataError, "row 0 has no client, as have 1 rows in all"),
        ({}, np.r_[np.nan, np.ones(568)], DataError, "row 0 has no client"),
        ({}, pd.array([1] * 568 + [None], "Int64"), DataError, "row 568 has no client"),
    ],
)
@pytest.mark.parametrize("kind", [FederatedLogisticRegression, FederatedRidge])
def test_mistakes_are_told(kind: Any, options: Any, clients: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        kind(**options).fit(CANCER, SICK, clients=clients)


# Right by default: units, tolerance, weights, seeds.

DRAW = np.random.default_rng(0)
PLAIN = DRAW.standard_normal((400, 6))
SLOPE = np.array([3.0, -2.0, 1.0, 2.0, -1.0, 0.0])
SIGN = (PLAIN @ SLOPE + 0.3 * DRAW.standard_normal(400) > 0).astype(int)
COUNTS = DRAW.poisson(np.exp(0.3 * PLAIN @ SLOPE))
FIVE = np.arange(400) % 5


@pytest.mark.parametrize("factor", [1e-9, 1e6, 1e200])
@pytest.mark.parametrize("kind", [FederatedLogisticRegression, FederatedRidge, FederatedPoissonRegression])
def test_units_change_the_coefficients_and_not_the_predictions(kind: Any, factor: float) -> None:
    """Without a penalty the model is the same in any units, and the rounds see no difference."""
    y = {FederatedLogisticRegression: SIGN, FederatedRidge: PLAIN @ SLOPE, FederatedPoissonRegression: COUNTS}[kind]
    units = np.array([1.0, 1.0, factor, 1.0, 1 / factor, factor])
    one, other = (kind(l2=0.0).fit(X, y, clients=FIVE) for X in (PLAIN, PLAIN * units + 3 * units))
    np.testing.assert_allclose(other.coef_ * units, one.coef_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(other.predict(PLAIN * units + 3 * units), one.predict(PLAIN), rtol=1e-5, atol=1e-5)
    assert abs(other.n_iter_ - one.n_iter_) <= 1


def test_an_irrelevant_feature_in_large_units_does_no_harm() -> None:
    X = PLAIN * np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1e6])
    ours = FederatedLogisticRegression().fit(X, SIGN, clients=FIVE)
    assert ours.result_.status == "stopped"
    assert ours.score(X, SIGN) >= LogisticRegression(C=1 / 4).fit(scale(X), SIGN).score(scale(X), SIGN) - 0.005


def hospital_table() -> tuple[Any, Any, Any]:
    """The hospitals' numbers standardised and their words as ones and zeros, the outcomes, and the hospitals."""
    frame = pd.DataFrame(hospital_rows()).replace({"": None, "NA": None, "?": None})
    numbers = frame.iloc[:, 3:13].astype(float)
    numbers = numbers.fillna(numbers.mean())
    words = pd.get_dummies(frame[["sex", "smoker", "ward", "diagnosis"]], dtype=float)
    return np.hstack([scale(numbers), scale(words)]), frame["outcome"].to_numpy(str), frame["hospital"].to_numpy(str)


@pytest.mark.slow
@pytest.mark.parametrize("l2", [1e-1, 1e-2, 1e-3])
@pytest.mark.parametrize("name", ["cancer", "iris", "hospitals"])
def test_the_defaults_end_within_1e_4_of_scikit_learn_on_standardised_data(name: str, l2: float) -> None:
    X, y, clients = {
        "cancer": lambda: (CANCER, SICK, CLIENTS),
        "iris": lambda: (IRIS, SPECIES, 4),
        "hospitals": hospital_table,
    }[name]()
    ours = FederatedLogisticRegression(l2).fit(X, y, clients=clients)
    other = LogisticRegression(C=1 / (len(X) * l2), tol=1e-12, max_iter=10_000, solver="newton-cg").fit(X, y)
    np.testing.assert_allclose(ours.coef_, other.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.predict_proba(X), other.predict_proba(X), atol=1e-4)
    assert name != "hospitals" or ours.classes_.tolist() == list(OUTCOMES)


def test_too_few_rounds_are_said() -> None:
    with pytest.warns(ConvergenceWarning, match=r"after 3 rounds the model is about .* and not within tol = 1e-06"):
        FederatedLogisticRegression(rounds=3).fit(CANCER, SICK, clients=CLIENTS)


@pytest.mark.parametrize(
    "kind",
    [FederatedLogisticRegression, FederatedMultinomialRegression, FederatedRidge, FederatedPoissonRegression],
)
def test_a_weight_of_two_is_the_row_twice(kind: Any) -> None:
    times = DRAW.integers(0, 3, 400)
    weighted = kind().fit(PLAIN, COUNTS > 1, clients=FIVE, sample_weight=times)
    twice = kind().fit(np.repeat(PLAIN, times, axis=0), np.repeat(COUNTS > 1, times), clients=np.repeat(FIVE, times))
    np.testing.assert_allclose(weighted.coef_, twice.coef_, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(weighted.intercept_, twice.intercept_, rtol=1e-4, atol=1e-6)
    half = kind().fit(PLAIN, COUNTS > 1, clients=FIVE, sample_weight=np.full(400, 0.5))
    np.testing.assert_allclose(half.coef_, kind().fit(PLAIN, COUNTS > 1, clients=FIVE).coef_, rtol=1e-9)


@pytest.mark.parametrize("class_weight", ["balanced", {0: 5.0, 1: 1.0}])
def test_class_weights_are_scikit_learns(class_weight: Any) -> None:
    y = (PLAIN @ SLOPE > 3).astype(int)
    total = float(np.sum([{0: 5.0, 1: 1.0}[label] for label in y])) if class_weight != "balanced" else 400.0
    ours = FederatedLogisticRegression(0.1, class_weight=class_weight).fit(PLAIN, y, clients=FIVE)
    other = LogisticRegression(C=1 / (total * 0.1), class_weight=class_weight, tol=1e-10, max_iter=1000).fit(PLAIN, y)
    np.testing.assert_allclose(ours.coef_, other.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, other.intercept_, atol=1e-4)


def test_counts_reach_scikit_learns_minimiser_and_score() -> None:
    ours = FederatedPoissonRegression(0.05).fit(PLAIN + 2.0, COUNTS, clients=FIVE)
    other = PoissonRegressor(alpha=0.05, tol=1e-10, max_iter=1000).fit(PLAIN + 2.0, COUNTS)
    np.testing.assert_allclose(ours.coef_, other.coef_, atol=1e-5)
    assert ours.intercept_ == pytest.approx(other.intercept_, abs=1e-4)
    assert ours.score(PLAIN + 2.0, COUNTS) == pytest.approx(other.score(PLAIN + 2.0, COUNTS), abs=1e-6)
    with pytest.raises(DataError, match="counts must be at least 0"):
        FederatedPoissonRegression().fit(PLAIN, COUNTS - 1)


def test_two_scores_differ_by_what_one_score_has() -> None:
    """‖w₁‖² + ‖w₂‖² is least for w₁ = -w₂, so that the difference d is penalised by (l2/4)‖d‖²."""
    both = FederatedMultinomialRegression(0.2).fit(PLAIN, SIGN, clients=FIVE)
    one = FederatedLogisticRegression(0.1).fit(PLAIN, SIGN, clients=FIVE)
    np.testing.assert_allclose(both.coef_[1] - both.coef_[0], one.coef_[0], atol=1e-4)
    np.testing.assert_allclose(both.predict_proba(PLAIN), one.predict_proba(PLAIN), atol=1e-4)


def test_a_warm_start_goes_on_and_a_cold_one_does_not() -> None:
    model = FederatedLogisticRegression(warm_start=True).fit(CANCER, SICK, clients=CLIENTS)
    cold = model.n_iter_
    before = model.coef_.copy()
    assert model.fit(CANCER, SICK, clients=CLIENTS).n_iter_ <= cold // 4
    np.testing.assert_allclose(model.coef_, before, atol=1e-5)
    assert model.set_params(warm_start=False).fit(CANCER, SICK, clients=CLIENTS).n_iter_ == cold


def test_the_seed_deals_the_rows() -> None:
    fits = [
        FederatedLogisticRegression(rounds=2, random_state=seed, tol=1.0).fit(PLAIN, SIGN, clients=7).coef_
        for seed in (None, 0, 0, 1)
    ]
    assert np.array_equal(fits[1], fits[2])
    assert not np.array_equal(fits[1], fits[3])


@pytest.mark.parametrize("kind", [FederatedLogisticRegression, FederatedRidge, FederatedPoissonRegression])
def test_a_fitted_estimator_pickles(kind: Any) -> None:
    model = kind().fit(PLAIN, COUNTS > 1, clients=FIVE)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(PLAIN), model.predict(PLAIN))
    assert again.result_.rounds == model.n_iter_


def test_the_coordinates_make_curvature_and_penalty_diagonal() -> None:
    half = DRAW.standard_normal((8, 5)) @ np.diag([1e-4, 1.0, 1e3, 1e6, 0.0])
    G, penalty = half.T @ half, np.array([0.1, 0.0, 1e-3, 1e9, 0.2])
    found = rescale(G, penalty)
    np.testing.assert_allclose(found.T.T @ (G + np.diag(penalty)) @ found.T, np.eye(5), atol=1e-6)
    np.testing.assert_allclose(found.T.T @ np.diag(penalty) @ found.T, np.diag(found.rho), atol=1e-6)
    np.testing.assert_allclose(found.T @ found.inverse, np.eye(5), atol=1e-6)


def test_many_features_are_scaled_by_their_diagonal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = FederatedLogisticRegression(0.1).fit(CANCER, SICK, clients=CLIENTS)
    monkeypatch.setattr("fedlin.sklearn.rescaled_rounds.FULL", 10)
    model = FederatedLogisticRegression(0.1).fit(CANCER, SICK, clients=CLIENTS)
    np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-4)
    assert model.n_iter_ > whole.n_iter_
    assert model.result_.bytes_up[1] < whole.result_.bytes_up[1]


def test_where_all_longer_steps_fail_the_certified_ones_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedlin.sklearn.rescaled_rounds._step_sizes", lambda curvatures, at, tau, longest: 100 / tau)
    X, y = CANCER[:, :5], SICK.astype(float)
    model = FederatedRidge(0.1).fit(X, y, clients=CLIENTS)
    close(model, Ridge(alpha=0.1 * len(y)).fit(X, y), 1e-4)
    # FedAvg has no certified steps, and a Poisson loss no largest curvature.
    for other in (FederatedRidge(0.1, rounds=200, method="fedavg"), FederatedPoissonRegression(0.1, rounds=200)):
        with pytest.warns(ConvergenceWarning):
            other.fit(X, y, clients=CLIENTS)


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


def test_two_classes_with_a_score_each_are_one_score_of_half_the_penalty() -> None:
    """Their minimiser is ±w/2; a warm start begins with it, and a flat direction cannot move it."""
    draw = np.random.default_rng(3)
    X = draw.standard_normal((80, 4))
    y = X @ [1.0, -2.0, 0.5, 0.0] + draw.standard_normal(80) > 0.3
    both = FederatedMultinomialRegression(0.02, tol=1e-9, warm_start=True).fit(X, y, clients=4)
    one = FederatedLogisticRegression(0.01, tol=1e-9).fit(X, y, clients=4)
    np.testing.assert_allclose(both.coef_, [-one.coef_[0] / 2, one.coef_[0] / 2], rtol=1e-7)
    np.testing.assert_allclose(both.predict_proba(X), one.predict_proba(X), rtol=1e-7)
    slope = (both.predict_proba(X)[:, 1] - y) @ X / len(X)  # of the mean loss in the second class's scores
    np.testing.assert_allclose(slope + 0.02 * both.coef_[1], 0, atol=1e-7)
    first = both.n_iter_
    assert both.fit(X, y, clients=4).n_iter_ < first / 2
