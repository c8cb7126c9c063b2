"""Problems: gradients, constants, minimisers, gaps, proximal steps and local work, against independent formulas."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import logsumexp

from compilation import compilations
from fedlin import problems
from fedlin.errors import DataError, UnknownError
from fedlin.precision import precision
from fedlin.problems.entropy import above_tangent, above_tangent_binary
from fedlin.problems.measure_model import Optimum
from fedlin.problems.objective import Descent, Objective, Sampling, descend_by_gradients
from fedlin.problems.problem import Problem
from fedlin.problems.quadratic import BY_GRADIENTS, CLOSED, Basis, Form, geometric_sum
from realdata import data_file, idx

Array = NDArray[np.float64]
M, N, D, K = 3, 7, 4, 3
LENGTHS = (5, 7, 2)


def rows(seed: int = 0, noise: float = 1.0) -> tuple[Array, Array]:
    """Features and real targets; the signs of the targets are labels no hyperplane separates."""
    draw = np.random.default_rng(seed)
    X = draw.standard_normal((M, N, D))
    return X, X @ draw.standard_normal(D) + 3 * noise * draw.standard_normal((M, N))


def cut(parts: Array) -> list[Array]:
    """The first few rows of every client, a different number each."""
    return [part[:n] for part, n in zip(parts, LENGTHS, strict=True)]


def classes(seed: int = 0) -> NDArray[np.int64]:
    """Random labels 0..K-1, each of them present."""
    labels = np.random.default_rng(seed + 100).integers(0, K, (M, N))
    labels[:, :K] = np.arange(K)
    return labels


def matrices(seed: int = 0) -> tuple[Array, Array]:
    """Positive definite A (m, d, d) and b (m, d)."""
    draw = np.random.default_rng(seed)
    half = draw.standard_normal((M, D, D))
    return half @ half.transpose(0, 2, 1) + 0.5 * np.eye(D), draw.standard_normal((M, D))


def squared_error(params: Any, batch: Any) -> jax.Array:
    """A mean over rows of (aᵀslope + bias - y)²."""
    return jnp.mean((batch["x"] @ params["slope"] + params["bias"][None] - batch["y"]) ** 2)


def params(dtype: Any = np.float64) -> dict[str, Any]:
    """A small pytree: the bias comes before the slope in the flat model."""
    return {"slope": np.arange(1, D + 1, dtype=dtype) / 4, "bias": np.asarray(0.5, dtype)}


X, Y = rows()
FACTORIES: dict[str, Callable[[], Problem]] = {
    "quadratic": lambda: problems.quadratic(*matrices()),
    "quadratic by gradients": lambda: problems.quadratic(*matrices(), closed_form=False),
    "regression": lambda: problems.regression(X, Y, l2=0.3),
    "regression ragged mean": lambda: problems.regression(cut(X), cut(Y), reduction="mean"),
    "least_squares": lambda: problems.least_squares(M, D, N, 2.0, seed=1),
    "logistic": lambda: problems.logistic(X, np.sign(Y)),
    "logistic l2": lambda: problems.logistic(X, np.sign(Y), l2=0.2),
    "logistic sum": lambda: problems.logistic(X, np.sign(Y), l2=0.2, reduction="sum"),
    "logistic ragged": lambda: problems.logistic(cut(X), cut(np.sign(Y)), l2=0.1),
    "logistic nonconvex": lambda: problems.logistic(X, np.sign(Y), l2=0.05, nonconvex=0.3),
    "softmax": lambda: problems.softmax(X, classes(), l2=0.2),
    "softmax sum": lambda: problems.softmax(X, classes(), l2=0.2, reduction="sum"),
    "softmax ragged": lambda: problems.softmax(cut(X), cut(classes().astype(float)), l2=0.1),
    "from_loss": lambda: problems.from_loss(squared_error, params(), {"x": X, "y": Y}),
    "from_loss ragged": lambda: problems.from_loss(
        squared_error, params(), [{"x": x, "y": y} for x, y in zip(cut(X), cut(Y), strict=True)]
    ),
}
EXACT = [name for name in FACTORIES if not name.startswith("from_loss")]
SOLVED = [name for name in EXACT if "nonconvex" not in name]
ENTROPIC = [name for name in SOLVED if name.startswith(("logistic", "softmax"))]


@cache
def problem(name: str) -> Problem:
    return FACTORIES[name]()


def point(of: Problem, seed: int = 5) -> Array:
    return np.random.default_rng(seed).standard_normal(of.dim)


def client(of: Problem, i: int) -> Any:
    """Client i's own data."""
    return jax.tree.map(lambda leaf: leaf[i], of.data)


@cache
def _derivatives(of: Objective) -> tuple[Any, Any]:
    # Derivatives are taken of the loss, so that they check the gradient the problem wrote itself.
    slope, bend = jax.grad(of.loss, argnums=1), jax.hessian(of.loss, argnums=1)
    return (
        jax.jit(lambda data, x: jax.vmap(lambda one: (of.grad(one, x), slope(one, x)))(data)),
        jax.jit(lambda data, x: jax.vmap(lambda one: bend(one, x))(data)),
    )


def client_grads(of: Problem, x: Array, auto: bool = False) -> Array:
    """∇f_i(x) of every client, as the problem computes it or by differentiating its loss."""
    with precision(of.dtype):
        return np.asarray(_derivatives(of.objective)[0](of.data, jnp.asarray(x, of.dtype))[auto])


def hessians(of: Problem, x: Array) -> Array:
    """∇²f_i(x) of every client, by differentiating its loss twice."""
    with precision(of.dtype):
        return np.asarray(_derivatives(of.objective)[1](of.data, jnp.asarray(x, of.dtype)))


def written_out(of: Problem, x: Array) -> float:
    """Σ w_i f_i(x) from the clients' own losses: `Problem.loss` knows f* and may take a way round over the gap."""
    with precision(of.dtype):
        each = jax.vmap(lambda client: of.objective.loss(client, jnp.asarray(x, of.dtype)))(of.data)
        return float(np.asarray(each) @ of.weights)


# Gradients.


@pytest.mark.parametrize("name", FACTORIES)
def test_gradient_is_the_slope_of_the_loss(name: str) -> None:
    f, h = problem(name), 1e-5
    x = point(f)
    slopes = [(written_out(f, x + h * e) - written_out(f, x - h * e)) / (2 * h) for e in np.eye(f.dim)]
    np.testing.assert_allclose(f.grad(x), slopes, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", FACTORIES)
def test_each_clients_gradient_is_that_of_its_loss(name: str) -> None:
    f = problem(name)
    x = point(f)
    np.testing.assert_allclose(client_grads(f, x), client_grads(f, x, auto=True), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(f.weights @ client_grads(f, x), f.grad(x), rtol=1e-10, atol=1e-12)


def test_float32_loss_stays_float32_and_agrees_with_float64() -> None:
    small = problems.from_loss(squared_error, params(np.float32), {"x": X, "y": Y})
    large = problem("from_loss")
    assert small.dtype == np.float32
    assert small.grad(small.start).dtype == np.float32
    np.testing.assert_allclose(small.grad(small.start), large.grad(large.start), rtol=1e-5)
    x = small.params(np.arange(5.0))
    assert x["bias"] == 0
    np.testing.assert_array_equal(x["slope"], [1, 2, 3, 4])
    assert x["slope"].dtype == np.float32


def test_quadratic_is_what_it_says() -> None:
    A, b = matrices()
    f, x = problem("quadratic"), point(problem("quadratic"))
    assert f.loss(x) == pytest.approx(np.mean([x @ a @ x / 2 - c @ x for a, c in zip(A, b, strict=True)]), rel=1e-12)
    np.testing.assert_allclose(f.minimizer, np.linalg.solve(A.mean(0), b.mean(0)), rtol=1e-12)


# Row-based losses against NumPy, one client after another.


def numpy_loss(kind: str, X: Array, y: Array, x: Array, l2: float, reduction: str) -> float:
    if kind == "regression":
        each = (X @ x - y) ** 2 / 2
    elif kind == "logistic":
        each = np.logaddexp(0, -y * (X @ x))
    else:
        z = X @ x.reshape(D, K)
        each = logsumexp(z, axis=1) - z[np.arange(len(y)), y.astype(int)]
    return float((each.mean() if reduction == "mean" else each.sum()) + l2 * x @ x / 2)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("kind", ["regression", "logistic", "softmax"])
def test_ragged_clients_equal_the_same_clients_one_by_one(kind: str, reduction: str) -> None:
    targets = {"regression": Y, "logistic": np.sign(Y), "softmax": classes().astype(float)}[kind]
    build = getattr(problems, kind)
    f = build(cut(X), cut(targets), l2=0.1, reduction=reduction)
    x = point(f)
    each = [numpy_loss(kind, a, y, x, 0.1, reduction) for a, y in zip(cut(X), cut(targets), strict=True)]
    assert f.loss(x) == pytest.approx(np.mean(each), rel=1e-12)
    alone = [
        build([a], [y], l2=0.1, reduction=reduction, **({"classes": K} if kind == "softmax" else {}))
        for a, y in zip(cut(X), cut(targets), strict=True)
    ]
    np.testing.assert_allclose(f.smoothness_each, [one.smoothness for one in alone], rtol=1e-10)
    np.testing.assert_allclose(client_grads(f, x), [client_grads(one, x)[0] for one in alone], rtol=1e-10, atol=1e-13)


def test_ragged_loss_equals_the_same_clients_one_by_one() -> None:
    f = problem("from_loss ragged")
    x = point(f)
    each = [np.mean((a @ x[1:] + x[0] - y) ** 2) for a, y in zip(cut(X), cut(Y), strict=True)]
    assert f.loss(x) == pytest.approx(np.mean(each), rel=1e-12)


def test_nonconvex_regulariser() -> None:
    f, x = problem("logistic nonconvex"), point(problem("logistic nonconvex"))
    plain = np.mean([numpy_loss("logistic", X[i], np.sign(Y[i]), x, 0.05, "mean") for i in range(M)])
    assert f.loss(x) == pytest.approx(plain + 0.3 * np.sum(x**2 / (1 + x**2)), rel=1e-12)


# Curvature.


@pytest.mark.parametrize("name", EXACT)
def test_smoothness_and_strong_convexity_bound_every_hessian(name: str) -> None:
    f = problem(name)
    for scale in (0.0, 0.1, 1.0, 10.0):
        spectrum = np.linalg.eigvalsh(hessians(f, scale * point(f)))
        slack = 1e-10 * f.smoothness
        assert np.all(spectrum[:, -1] <= f.smoothness_each + slack)
        if "nonconvex" not in name:
            assert np.all(spectrum[:, 0] >= f.strong_convexity_each - slack)
    assert f.smoothness == f.smoothness_each.max()
    assert f.strong_convexity == f.strong_convexity_each.min()


@pytest.mark.parametrize("name", [n for n in EXACT if "softmax" not in n])
def test_smoothness_is_attained(name: str) -> None:
    # Quadratics everywhere; logistic, with or without the bounded regulariser, at zero.
    f = problem(name)
    spectrum = np.linalg.eigvalsh(hessians(f, np.zeros(f.dim)))
    np.testing.assert_allclose(f.smoothness_each, spectrum[:, -1], rtol=1e-10)


def test_softmax_smoothness_is_attained_by_two_classes() -> None:
    f = problems.softmax(X, (Y > 0).astype(int), l2=0.1)
    spectrum = np.linalg.eigvalsh(hessians(f, np.zeros(f.dim)))
    np.testing.assert_allclose(f.smoothness_each, spectrum[:, -1], rtol=1e-10)


@pytest.mark.parametrize("name", ["quadratic", "regression", "regression ragged mean", "least_squares"])
def test_quadratic_constants_are_the_spectrum(name: str) -> None:
    f = problem(name)
    spectrum = np.linalg.eigvalsh(hessians(f, point(f)))
    np.testing.assert_allclose(f.strong_convexity_each, spectrum[:, 0], rtol=1e-9, atol=1e-12)
    if f.strong_convexity > 1e-9:
        assert f.condition == pytest.approx(spectrum[:, -1].max() / spectrum[:, 0].min(), rel=1e-9)


# Minimisers and gaps.


@pytest.mark.parametrize("name", SOLVED)
def test_gradient_vanishes_at_the_minimiser(name: str) -> None:
    f = problem(name)
    limit = 1e-12 if name in ENTROPIC else 1e-13 * (1 + f.smoothness)
    assert np.linalg.norm(f.grad(f.minimizer)) <= limit
    assert written_out(f, f.minimizer) == pytest.approx(f.minimum, rel=1e-12)
    assert f.gap(f.minimizer) == 0


@pytest.mark.parametrize("name", SOLVED)
def test_gap_is_the_loss_above_the_minimum(name: str) -> None:
    f = problem(name)
    for scale in (0.01, 1.0, 30.0):
        x = f.minimizer + scale * point(f)
        assert f.gap(x) == pytest.approx(written_out(f, x) - f.minimum, rel=1e-9, abs=1e-12 * abs(f.minimum))
        assert f.loss(x) == pytest.approx(written_out(f, x), rel=1e-12)


@pytest.mark.parametrize("size", [1e-6, 1e-9])
@pytest.mark.parametrize("name", SOLVED)
def test_gap_is_accurate_below_the_rounding_of_the_loss(name: str, size: float) -> None:
    f = problem(name)
    x = f.minimizer + size * point(f)
    move = x - f.minimizer
    H = np.einsum("i,ijk->jk", f.weights, hessians(f, f.minimizer))
    assert f.gap(x) == pytest.approx(move @ H @ move / 2, rel=1e-5)


@pytest.mark.parametrize("size", [1.0, 30.0, 300.0])
@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_gap_is_right_with_rows_that_are_all_but_certain(kind: str, size: float) -> None:
    # At the minimiser, log 3, the last row's margin is about `size`; at zero it is no surer than the others.
    A, y = np.array([[[1.0], [1], [1], [1], [size]]]), np.array([[1.0, 1, 1, -1, 1]])
    f = problems.logistic(A, y) if kind == "logistic" else problems.softmax(A, y > 0, l2=1e-3)
    for x in (np.zeros(f.dim), 0.5 * f.minimizer, 2 * f.minimizer, -f.minimizer):
        assert f.gap(x) == pytest.approx(written_out(f, x) - f.minimum, rel=1e-9)


@pytest.mark.parametrize("there", [-40.0, -3.0, 0.5, 12.0])
@pytest.mark.parametrize("s", [-300.0, -20.0, -0.04, 0.04, 20.0, 300.0])
def test_height_above_the_tangent_far_from_it(s: float, there: float) -> None:
    # Where nothing cancels the definition itself is exact: softplus(-here) - softplus(-there) - p (there - here).
    definition = np.logaddexp(0, s - there) - np.logaddexp(0, -there) - s / (1 + np.exp(there))
    with precision(np.float64):
        two = above_tangent_binary(jnp.asarray(there - s), jnp.asarray(there))
        many = above_tangent(jnp.asarray([there, 0.0]), jnp.asarray([there - s, 0.0]))
    assert float(two) == pytest.approx(definition, rel=1e-10, abs=1e-15 * max(abs(there), abs(s)))
    assert float(many) == pytest.approx(definition, rel=1e-10, abs=1e-15 * max(abs(there), abs(s)))


@pytest.mark.parametrize("s", [1e-150, 1e-12, 1e-6, 0.01, 0.1, 0.49, 0.51, 0.98, 1.02, 5.0])
def test_height_above_the_tangent_keeps_its_digits(s: float) -> None:
    # log((1 + exp(s))/2) - s/2 = log cosh(s/2), and cosh(h) - 1 = 2 sinh²(h/2)
    expected = np.log1p(2 * np.sinh(s / 4) ** 2)
    with precision(np.float64):
        two = above_tangent_binary(jnp.asarray(-s), jnp.asarray(0.0))
        many = above_tangent(jnp.zeros(2), jnp.asarray([0.0, s]))
    assert float(two) == pytest.approx(expected, rel=1e-13)
    assert float(many) == pytest.approx(expected, rel=1e-13)


def test_softmax_that_is_flat_along_a_shift_of_its_intercepts_has_a_minimiser() -> None:
    draw = np.random.default_rng(28)  # of forty draws the one at which conjugate gradients blow up rounding
    rows = [np.column_stack([draw.standard_normal((n, 4)), np.ones(n)]) for n in (60, 30, 2)]
    W = 3 * draw.standard_normal((5, 3))
    labels = [np.argmax(part @ W + draw.gumbel(size=(len(part), 3)), axis=1) for part in rows]
    f = problems.softmax(rows, labels, np.repeat([1e-4] * 4 + [0.0], 3), classes=3)
    assert np.linalg.norm(f.grad(f.minimizer)) <= 1e-12


def test_rank_deficient_least_squares() -> None:
    draw = np.random.default_rng(3)
    basis = np.linalg.qr(draw.standard_normal((D, D)))[0]
    flat = draw.standard_normal((M, N, 2)) @ basis[:2]
    f = problems.regression(flat, draw.standard_normal((M, N)))
    x = f.minimizer
    assert np.linalg.norm(f.grad(x)) <= 1e-12 * f.smoothness
    np.testing.assert_allclose(basis[2:] @ x, 0, atol=1e-13)  # the shortest minimiser
    assert f.gap(x + basis[2] * 7) == pytest.approx(0, abs=1e-12 * f.smoothness)
    with pytest.raises(UnknownError, match="condition number"):
        _ = f.condition


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fewer_rows_than_features_is_positive_semidefinite_in_both_precisions(dtype: Any) -> None:
    few = X[:, :2].astype(dtype)
    f = problems.regression(few, Y[:, :2].astype(dtype))
    assert f.dtype == dtype
    assert f.strong_convexity == 0
    again = problems.quadratic(f.data.A, f.data.b)
    np.testing.assert_array_equal(again.smoothness_each, f.smoothness_each)


def test_half_precision_is_computed_in_double() -> None:
    f = problems.quadratic(np.ones((2, 1, 1), np.float16), np.ones((2, 1), np.float16))
    assert f.dtype == np.float64
    assert f.minimizer.tolist() == [1.0]


def test_quadratic_that_falls_without_end() -> None:
    f = problems.quadratic(np.array([np.diag([1.0, 0.0])] * 2), np.array([[1.0, 1.0], [0.0, 1.0]]))
    with pytest.raises(UnknownError, match="no minimum"):
        _ = f.minimizer
    assert f.known_optimum is None


def test_polyak_lojasiewicz_holds_and_is_tight() -> None:
    A = np.array([np.diag([4.0, 0.0, 2.0]), np.diag([2.0, 0.0, 0.0])])
    f = problems.quadratic(A, np.array([[1.0, 0, 0], [0, 0, 1.0]]))
    assert f.polyak_lojasiewicz == pytest.approx(1.0, rel=1e-12)  # the least non-zero eigenvalue of the mean
    for seed in range(20):
        x = np.random.default_rng(seed).standard_normal(3)
        assert f.grad(x) @ f.grad(x) >= 2 * f.polyak_lojasiewicz * f.gap(x) * (1 - 1e-12)
    x = f.minimizer + np.array([0, 0, 1.0])
    assert f.grad(x) @ f.grad(x) == pytest.approx(2 * f.polyak_lojasiewicz * f.gap(x), rel=1e-12)
    assert problem("logistic l2").polyak_lojasiewicz == problem("logistic l2").strong_convexity
    with pytest.raises(UnknownError, match="Łojasiewicz"):
        _ = problem("logistic").polyak_lojasiewicz
    with pytest.raises(UnknownError, match="Łojasiewicz"):
        _ = problems.quadratic(np.zeros((2, 2, 2)), np.zeros((2, 2))).polyak_lojasiewicz


def test_separable_labels_have_no_minimiser() -> None:
    for f in (
        problems.logistic(X, np.sign(X[..., 0])),
        problems.softmax(X, (X[..., 0] > 0).astype(int)),
    ):
        with pytest.raises(UnknownError, match=r"separate.*l2"):
            _ = f.minimizer
        with pytest.raises(UnknownError, match=r"separate.*l2"):
            f.gap(np.zeros(f.dim))
        assert f.loss(np.zeros(f.dim)) == pytest.approx(np.log(2))


def test_what_is_not_known_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    f = problems.logistic(X, np.sign(X[..., 0]))
    solve, calls = f.solve, []

    def counted() -> Optimum:
        calls.append(1)
        return solve()

    monkeypatch.setattr(f, "solve", counted)
    for _ in range(3):
        f.loss(np.zeros(D))
    assert len(calls) == 1


@pytest.mark.parametrize("name", ["quadratic", "logistic l2", "softmax", "from_loss"])
def test_weighted_minimiser(name: str) -> None:
    f = problem(name)
    w = np.array([3.0, 0.0, 1.0])
    g = f.weighted(w)
    x = point(f)
    np.testing.assert_allclose(g.weights, w / 4)
    np.testing.assert_allclose(g.grad(x), w / 4 @ client_grads(f, x), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(f.weights, 1 / M)  # the original is as it was
    if name != "from_loss":
        assert np.linalg.norm(g.grad(g.minimizer)) <= 1e-12
        assert np.linalg.norm(g.minimizer - f.minimizer) > 1e-3
        assert g.gap(x) == pytest.approx(written_out(g, x) - g.minimum, rel=1e-9)


def test_known_constants_of_a_loss() -> None:
    f = problems.from_loss(
        lambda x, batch: jnp.mean((x - batch) ** 2) / 2,
        np.zeros(1),
        np.array([[1.0], [3.0]]),
        smoothness=1.0,
        strong_convexity=1.0,
        polyak_lojasiewicz=1.0,
        minimizer=[2.0],
    )
    assert (f.smoothness, f.strong_convexity, f.condition, f.polyak_lojasiewicz) == (1, 1, 1, 1)
    assert f.minimum == 0.5
    assert f.gap([4.0]) == pytest.approx(2.0)
    with pytest.raises(UnknownError, match="equal weights"):
        _ = f.weighted([1.0, 2.0]).minimizer


@pytest.mark.parametrize(
    ("name", "asked", "words"),
    [
        ("from_loss", "smoothness", "smoothness="),
        ("from_loss", "strong_convexity", "smoothness="),
        ("from_loss", "minimizer", "minimizer="),
        ("from_loss", "minimum", "minimizer="),
        ("logistic", "condition", "not strongly convex"),
        ("logistic nonconvex", "minimizer", "nonconvex=0.3"),
    ],
)
def test_unknown_constants_say_so(name: str, asked: str, words: str) -> None:
    with pytest.raises(UnknownError, match=words):
        getattr(problem(name), asked)


def test_quadratic_without_rows_has_no_minibatches() -> None:
    with pytest.raises(UnknownError, match=r"no rows.*noisy"):
        problems.minibatch(problem("quadratic"), 2)


# Proximal steps.


@cache
def _prox(of: Objective) -> Any:
    assert of.prox is not None
    return jax.jit(of.prox)


@pytest.mark.parametrize("s", [1e-3, 0.7, 1e3])
@pytest.mark.parametrize(
    "name",
    ["quadratic", "quadratic by gradients", "regression", "logistic", "logistic sum", "logistic ragged", "softmax"],
)
def test_prox_is_where_its_gradient_vanishes(name: str, s: float) -> None:
    f = problem(name)
    u = 2 * point(f)
    with precision(f.dtype):
        p = np.asarray(_prox(f.objective)(client(f, 1), jnp.asarray(u), jnp.asarray(s)))
    slope = client_grads(f, p)[1]
    scale = f.smoothness * (1 + np.linalg.norm(u)) + np.linalg.norm(u) / s
    assert np.linalg.norm(slope + (p - u) / s) <= 1e-13 * scale
    assert np.linalg.norm(p - u) > 1e-5


# Local work.


@cache
def rotation() -> Array:
    q: Array = np.linalg.qr(np.random.default_rng(11).standard_normal((D, D)))[0]
    return q


def _both(form: Form, work: Descent) -> tuple[jax.Array, jax.Array]:
    assert CLOSED.descend is not None
    loop = descend_by_gradients(lambda x: BY_GRADIENTS.grad(form, x), work)
    return CLOSED.descend(form, work), loop


both, summed = jax.jit(_both), jax.jit(geometric_sum)

STEP_TIMES_EIGENVALUE = st.one_of(
    st.just(0.0),
    st.floats(1e-18, 1e-6),
    st.floats(1e-6, 1.0),
    st.floats(1.0, 2.0),
    st.floats(2.0, 3.0),
    st.sampled_from([0.5, 1.0, 2.0]),
)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(
    z=st.lists(STEP_TIMES_EIGENVALUE, min_size=D, max_size=D),
    eta=st.floats(1e-3, 10.0),
    steps=st.integers(1, 40),
    pull=st.one_of(st.just(0.0), st.floats(0.0, 0.5)),
    seed=st.integers(0, 2**16),
)
def test_closed_form_equals_the_steps_taken_one_by_one(
    z: list[float], eta: float, steps: int, pull: float, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    values, V = np.array(z) / eta, rotation()
    start, shift, center, b = draw.standard_normal((4, D))
    with precision(np.float64):
        form: Any = Form((V * values) @ V.T, b, np.zeros(()), Basis(V, values))  # type: ignore[arg-type]
        work: Any = Descent(start, shift, np.float64(pull), center, np.int32(steps), np.float64(eta))  # type: ignore[arg-type]
        closed, loop = (np.asarray(part) for part in both(form, work))
    growth = max(1.0, float(np.max(np.abs(1 - eta * (values + pull))))) ** steps
    scale = steps * growth * (10 + eta * 10)
    np.testing.assert_allclose(closed, loop, rtol=0, atol=1e-14 * scale)


def test_without_steps_of_its_own_a_descent_moves_as_by_hand() -> None:
    form: Any = Form(np.diag([2.0] * D), np.ones(D), np.zeros(()), Basis(np.eye(D), np.full(D, 2.0)))  # type: ignore[arg-type]
    with precision(np.float64):
        work: Any = Descent(np.full(D, 3.0), 0.5, 4.0, np.full(D, 1.0), np.int32(2), 0.1)  # type: ignore[arg-type]
        closed, loop = both(form, work)
    # 3 - 0.1 (6 - 1 + 0.5 + 4·2) = 1.65, then 1.65 - 0.1 (3.3 - 1 + 0.5 + 4·0.65) = 1.11
    np.testing.assert_allclose(closed, 1.11, rtol=1e-14)
    np.testing.assert_allclose(loop, 1.11, rtol=1e-14)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(z=st.lists(STEP_TIMES_EIGENVALUE, min_size=D, max_size=D), steps=st.integers(0, 60))
@example(z=[1.0] * D, steps=0)
def test_geometric_sum_is_the_sum(z: list[float], steps: int) -> None:
    array = np.array(z)
    with precision(np.float64):
        found = np.asarray(summed(jnp.asarray(array), jnp.int32(steps)))
    powers = (1 - array) ** np.arange(steps)[:, None]
    np.testing.assert_allclose(found, powers.sum(0), rtol=0, atol=1e-14 * steps * np.abs(powers).sum(0).max())
    positive = array <= 1  # every term is positive: accurate to the last digits
    np.testing.assert_allclose(found[positive], powers.sum(0)[positive], rtol=1e-13)


# The paper's generator.


def test_least_squares_draws_what_the_paper_describes() -> None:
    m, d, n, alpha = 1500, 4, 40, 10.0
    sheet = problems.least_squares(m, d, n, alpha, seed=7).rows().data
    A, b = np.asarray(sheet.X), np.asarray(sheet.y)
    assert A.shape == (m, n, d)
    assert np.mean(A) == pytest.approx(0, abs=0.01)
    assert np.var(A) == pytest.approx(1, rel=0.02)
    found = [np.linalg.lstsq(a, c, rcond=None) for a, c in zip(A, b, strict=True)]
    truth = np.array([x for x, *_ in found])  # x_i + noise of variance ≈ 0.5/(n - d - 1)
    residual = np.array([float(r[0]) for _, r, *_ in found])
    assert residual.mean() / (n - d) == pytest.approx(0.5, rel=0.03)
    extra = 0.5 / (n - d - 1)
    assert np.var(truth, axis=1, ddof=1).mean() == pytest.approx(1 + extra, rel=0.06)
    assert np.var(truth.mean(axis=1)) == pytest.approx(alpha + (1 + extra) / d, rel=0.12)
    assert truth.mean() == pytest.approx(0, abs=0.35)


def test_least_squares_is_a_function_of_its_seed() -> None:
    one, same, other = (problems.least_squares(M, D, N, 2.0, seed=s).data.A for s in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.allclose(one, other)


# Noisy oracles.


@cache
def _estimates(objective: Objective, sampling: Sampling) -> Any:
    return jax.jit(jax.vmap(lambda *a: sampling.slope(objective, *a).grad, in_axes=(None, None, None, 0)))


def draws(of: Problem, i: int, x: Array, count: int) -> Array:
    """Many estimates of ∇f_i(x)."""
    assert of.sampling is not None
    with precision(of.dtype):
        data, noise = jax.tree.map(lambda leaf: leaf[i], (of.data, of.noise))
        keys = jax.random.split(jax.random.key(3), count)
        return np.asarray(_estimates(of.objective, of.sampling)(data, noise, jnp.asarray(x), keys))


def test_gaussian_noise_has_the_variance_asked_for() -> None:
    exact = problem("logistic l2")
    f = problems.noisy(exact, 0.49)
    x = point(f)
    seen = draws(f, 2, x, 20_000)
    np.testing.assert_allclose(seen.mean(0), client_grads(exact, x)[2], atol=5 * 0.7 / np.sqrt(20_000))
    np.testing.assert_allclose(np.cov(seen.T), 0.49 * np.eye(D), atol=0.49 * 0.06)
    assert exact.sampling is None
    np.testing.assert_array_equal(draws(f, 2, x, 3), draws(f, 2, x, 3))
    np.testing.assert_array_equal(f.grad(x), exact.grad(x))  # what is measured has no noise


@pytest.mark.parametrize(
    "name",
    [
        "regression",
        "regression ragged mean",
        "logistic sum",
        "logistic ragged",
        "logistic nonconvex",
        "softmax ragged",
        "from_loss",
        "from_loss ragged",
    ],
)
def test_minibatches_are_unbiased(name: str) -> None:
    exact, count, size = problem(name), 8000, 2
    f = problems.minibatch(exact, size)
    x = point(f)
    for i in (1, 2):  # with seven rows, and with seven or two
        seen = draws(f, i, x, count)
        target = client_grads(exact, x)[i]
        error = seen.std(0) / np.sqrt(count)
        assert np.all(error > 0)
        assert np.all(np.abs(seen.mean(0) - target) <= 5 * error)


def test_variance_of_minibatches_falls_with_their_size() -> None:
    exact = problem("logistic l2")
    x = point(exact)
    small, large = (draws(problems.minibatch(exact, size), 0, x, 8000).var(0).sum() for size in (1, 4))
    assert small / large == pytest.approx(4, rel=0.1)


# One program for all problems of a shape.


@pytest.mark.parametrize(
    "build",
    [
        lambda seed: problems.logistic(rows(seed)[0], np.sign(rows(seed)[1]), l2=0.1 + seed),
        lambda seed: problems.softmax(rows(seed)[0], classes(seed), l2=0.1 + seed),
        lambda seed: problems.quadratic(*matrices(seed)),
        lambda seed: problems.from_loss(
            squared_error, params(), {"x": rows(seed)[0], "y": rows(seed)[1]}
        ),
    ],
    ids=["logistic", "softmax", "quadratic", "from_loss"],
)  # fmt: skip
def test_two_problems_of_one_shape_share_one_program(build: Callable[[int], Problem]) -> None:
    first = build(1)
    first.loss(point(first))
    first.grad(point(first))
    with compilations() as seen:
        second = build(2)
        assert second.loss(point(second)) != first.loss(point(first))
        second.grad(point(second))
    assert seen == []
    assert second.objective is first.objective


# Real data.


@pytest.mark.slow
def test_a9a_minimiser_agrees_with_scikit_learn() -> None:
    from sklearn.datasets import load_svmlight_file
    from sklearn.linear_model import LogisticRegression

    m, l2 = 80, 1e-3
    sparse, y = load_svmlight_file(str(data_file("a9a.gz")))
    A = sparse.toarray()
    f = problems.logistic([A[i::m] for i in range(m)], [y[i::m] for i in range(m)], l2=l2)
    weight = np.empty(len(y))
    for i in range(m):
        weight[i::m] = 1 / (m * len(y[i::m]))
    model = LogisticRegression(C=1 / l2, fit_intercept=False, tol=1e-10, solver="newton-cholesky", max_iter=200)
    theirs = model.fit(A, y, sample_weight=weight).coef_[0]
    assert np.linalg.norm(f.minimizer - theirs) <= 1e-8 * np.linalg.norm(theirs)
    assert np.linalg.norm(f.grad(f.minimizer)) <= 1e-12


@pytest.mark.slow
def test_mnist_minimiser() -> None:
    images = idx("t10k-images-idx3-ubyte.gz", 16).reshape(-1, 784)[:1000] / 255
    labels = idx("t10k-labels-idx1-ubyte.gz", 8)[:1000]
    f = problems.softmax(images.reshape(20, 50, 784), labels.reshape(20, 50), l2=1e-2)
    assert f.dim == 7840
    assert np.linalg.norm(f.grad(f.minimizer)) <= 1e-12


def test_labels_of_softmax_may_leave_classes_out() -> None:
    f = problems.softmax(X, (Y > 0).astype(int), l2=0.1, classes=5)
    assert f.dim == 5 * D
    with pytest.raises(DataError, match="labels from 0 to 1"):
        problems.softmax(X, (Y > 0).astype(int), classes=1)


@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_long_clients_are_summed_block_by_block(kind: str) -> None:
    """Rows beyond a block, a whole number of blocks or not: f, ∇f and the gap are those of all rows at once."""
    source = np.random.default_rng(5)
    lengths = (3, 511, 512, 513, 1300)
    X = [source.standard_normal((n, 4)) for n in lengths]
    x = source.standard_normal(4 if kind == "logistic" else 12)
    if kind == "logistic":
        y = [np.where(source.random(n) < 0.5, 1.0, -1.0) for n in lengths]
        problem: Any = problems.logistic(X, y, l2=0.3)
        each = [np.mean(np.logaddexp(0, -labels * (rows @ x))) for rows, labels in zip(X, y, strict=True)]
    else:
        y = [source.integers(0, 3, n) for n in lengths]
        problem = problems.softmax(X, y, l2=0.3, classes=3)
        scores = [rows @ x.reshape(4, 3) for rows in X]
        each = [
            np.mean(np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(z)), labels])
            for z, labels in zip(scores, y, strict=True)
        ]
    expected = np.mean(each) + 0.15 * x @ x
    assert problem.loss(x) == pytest.approx(expected, rel=1e-12)
    assert problem.gap(x) == pytest.approx(expected - problem.minimum, rel=1e-9)
    step = 1e-6 * np.eye(len(x))
    slope = [(problem.loss(x + e) - problem.loss(x - e)) / 2e-6 for e in step]
    np.testing.assert_allclose(problem.grad(x), slope, atol=1e-8)
    assert np.linalg.norm(problem.grad(problem.minimizer)) < 1e-12
