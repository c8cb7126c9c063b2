"""Rows that count differently, a penalty for each entry, and counts: against repeated rows, NumPy and scikit-learn."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import PoissonRegressor

from fedlin import problems
from fedlin.errors import FedLinError
from fedlin.precision import precision
from fedlin.problems.problem import Problem

SIZES, D, K = (5, 9, 2), 3, 3
DRAW = np.random.default_rng(3)
X = [DRAW.standard_normal((n, D)) for n in SIZES]
TARGETS: dict[str, list[Any]] = {
    "regression": [DRAW.standard_normal(n) for n in SIZES],
    "logistic": [DRAW.choice([-1.0, 1.0], n) for n in SIZES],
    "softmax": [DRAW.integers(0, K, n).astype(float) for n in SIZES],
    "poisson": [DRAW.poisson(2.0, n).astype(float) for n in SIZES],
}
TIMES = [DRAW.integers(0, 4, n) for n in SIZES]  # how often each row is repeated
TIMES[2][0] = 1


def build(kind: str, X: Any, y: Any, **options: Any) -> Problem:
    more = {"classes": K} if kind == "softmax" else {}
    made: Problem = getattr(problems, kind)(X, y, **options, **more)
    return made


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("kind", TARGETS)
def test_a_weight_counts_as_repeating_the_row(kind: str, reduction: str) -> None:
    y = TARGETS[kind]
    weighted = build(kind, X, y, l2=0.1, reduction=reduction, row_weights=TIMES)
    repeated = build(
        kind,
        [np.repeat(rows, times, axis=0) for rows, times in zip(X, TIMES, strict=True)],
        [np.repeat(labels, times) for labels, times in zip(y, TIMES, strict=True)],
        l2=0.1,
        reduction=reduction,
    )
    x = np.linspace(-0.5, 0.5, weighted.dim)
    assert weighted.loss(x) == pytest.approx(repeated.loss(x), rel=1e-12)
    np.testing.assert_allclose(weighted.grad(x), repeated.grad(x), rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(weighted.minimizer, repeated.minimizer, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(weighted.smoothness_each, repeated.smoothness_each, rtol=1e-8)


@pytest.mark.parametrize("kind", TARGETS)
def test_each_entry_of_the_model_has_its_own_penalty(kind: str) -> None:
    y = TARGETS[kind]
    free = build(kind, X, y, reduction="mean")
    l2 = np.linspace(0.1, 2.0, free.dim)
    l2[-1] = 0.0
    penalised = build(kind, X, y, l2=l2, reduction="mean")
    x = np.linspace(-0.5, 0.7, free.dim)
    assert penalised.loss(x) == pytest.approx(free.loss(x) + np.sum(l2 * x**2) / 2, rel=1e-9)
    np.testing.assert_allclose(penalised.grad(x), free.grad(x) + l2 * x, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(penalised.grad(penalised.minimizer), 0, atol=1e-11)
    gap = penalised.loss(x) - penalised.minimum
    assert penalised.gap(x) == pytest.approx(gap, rel=1e-9)
    same = build(kind, X, y, l2=np.full(free.dim, 0.3), reduction="mean")
    one = build(kind, X, y, l2=0.3, reduction="mean")
    assert same.loss(x) == pytest.approx(one.loss(x), rel=1e-14)
    np.testing.assert_allclose(same.smoothness_each, one.smoothness_each, rtol=1e-12)
    assert same.strong_convexity == pytest.approx(one.strong_convexity)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"l2": [0.1]}, r"l2 has shape \(1,\).*the model's 3 entries"),
        ({"l2": [0.1, -0.1, 0.1]}, "give a finite number of at least 0, or one for each"),
        ({"l2": -1.0}, "l2 = -1.0"),
        ({"row_weights": [[1.0] * 5]}, "row_weights must have an array of weights for every client"),
        ({"row_weights": [[1.0] * 4, [1.0] * 9, [1.0] * 2]}, r"row_weights of client 0 has shape \(4,\) for 5 rows"),
        ({"row_weights": [[1.0] * 5, [-1.0] * 9, [1.0] * 2]}, "none may be negative"),
        ({"row_weights": [[1.0] * 5, [1.0] * 9, [0.0] * 2]}, "at least one must be above 0"),
        ({"row_weights": 3.0}, "row_weights = 3.0 is not allowed"),
    ],
)
@pytest.mark.parametrize("kind", ["regression", "logistic", "poisson"])
def test_penalties_and_weights_that_do_not_fit_are_refused(kind: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(FedLinError, match=words):
        build(kind, X, TARGETS[kind], **options)


def test_counts_end_where_scikit_learns_do_and_the_gap_is_exact() -> None:
    rows, counts = np.concatenate(X), np.concatenate(TARGETS["poisson"])
    pooled = problems.poisson(X, TARGETS["poisson"], l2=0.2).weighted(SIZES)
    theirs = PoissonRegressor(alpha=0.2, fit_intercept=False, tol=1e-12, max_iter=1000).fit(rows, counts)
    np.testing.assert_allclose(pooled.minimizer, theirs.coef_, rtol=1e-6)
    near = pooled.minimizer + 1e-9
    H = (rows.T * np.exp(rows @ pooled.minimizer)) @ rows / len(rows) + 0.2 * np.eye(D)
    assert pooled.gap(near) == pytest.approx(1e-18 * H.sum() / 2, rel=1e-6), "below the rounding of f itself"


def test_the_smoothness_of_counts_holds_on_the_way_to_the_minimiser() -> None:
    problem = problems.poisson(X, TARGETS["poisson"], l2=0.2)
    with precision(problem.dtype):
        hessian = jax.vmap(jax.hessian(problem.objective.loss, argnums=1), in_axes=(0, None))
        for share in np.linspace(0, 1, 5):
            largest = np.linalg.eigvalsh(hessian(problem.data, jnp.asarray(share * problem.minimizer)))[:, -1]
            assert np.all(largest <= problem.smoothness_each * (1 + 1e-12))


@pytest.mark.parametrize("y", [[-1.0, 1.0], [0.0, 0.0]])
def test_counts_that_are_none_are_refused(y: list[float]) -> None:
    with pytest.raises(FedLinError, match=r"counts must be at least 0|no count above 0"):
        problems.poisson([np.ones((2, 1))], [y])
