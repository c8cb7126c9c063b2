"""The functions on which a method does worst, built from the Gram matrices at which its program is tight.

Smooth convex data (x_k, u_k, φ_k) with constant L are fitted by the Moreau envelope of a maximum of affine functions,
φ(x) = max_α Σ α_k(⟨u_k, x⟩ - c_k) - ‖Σ α_k u_k‖²/(2L) over the simplex, c_k = ⟨u_k, x_k⟩ - φ_k - ‖u_k‖²/(2L): piecewise
quadratic, convex and L-smooth whatever the data. With μ‖x‖²/2 added it is μ-strongly convex.

Quadratic data Y = AX are fitted by the central extension of a symmetric contraction (M. G. Krein).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedlin.core import Scalar, Vector
from fedlin.problems.custom import from_loss
from fedlin.problems.problem import Problem
from fedlin.problems.quadratic import quadratic
from fedlin.theory.exact.symbols import SHARED, Array, Space, SymbolicVector
from fedlin.theory.exact.trace import Trace

_RANK = 1e-6  # of the largest eigenvalue: what lies below it is not a dimension
_STEPS = 80  # of the interior point method, at most
_CENTRED = 0.2  # what a step leaves of the gap
_CLOSED = 1e-22  # a gap, as a part of the scale, that rounding lets no step improve
_INSIDE = 0.95  # of the way to the boundary


class ClientPoints(NamedTuple):
    """The points of one client."""

    group: int
    x: Array
    gradients: Array
    values: Array


class Embedding:
    """Vectors with the Gram matrices that a program found, in as few dimensions as they need."""

    def __init__(self, space: Space, grams: Sequence[Array]) -> None:
        self.space = space
        factors = [_factor(gram) for gram in grams]
        self.ends = np.cumsum([0] + [factor.shape[1] for factor in factors])
        self.factors = factors

    @property
    def dim(self) -> int:
        """How many dimensions there are."""
        return int(self.ends[-1])

    def signs(self, group: int) -> tuple[int, ...]:
        """What the deviation of each client that stands for the group is multiplied by."""
        return (1, -1) if self.factors[1 + group].shape[1] else (0,)

    def array(self, vector: SymbolicVector, sign: int = 0) -> Array:
        """A vector as numbers, of the client with this sign where it is of a group."""
        total = np.zeros(self.dim)
        for (gram, row), value in vector.coefficients.items():
            scale = float(value) if gram == SHARED else sign * float(value)
            total[self.ends[gram] : self.ends[gram + 1]] += scale * self.factors[gram][row]
        return total


def client_data(trace: Trace, embedding: Embedding, values: dict[int, float]) -> list[ClientPoints]:
    """What every client's function must fit: one client for a group without deviations, two for any other."""
    return [
        ClientPoints(
            group,
            np.array([embedding.array(point.x, sign) for point in points]),
            np.array([embedding.array(point.gradient, sign) for point in points]),
            np.array([sum(values[number] for _, number in point.value.values) for point in points]),
        )
        for group, points in enumerate(trace.points)
        for sign in embedding.signs(group)
    ]


def piecewise_quadratic(data: Sequence[ClientPoints], L: float, mu: float) -> Problem:
    """Functions that are L-smooth and μ-strongly convex and fit the data, with their minimiser at the origin."""
    slopes = [each.gradients - mu * each.x for each in data]
    offsets = [
        np.sum(slope * each.x, axis=1)
        - (each.values - mu / 2 * np.sum(each.x**2, axis=1))
        - np.sum(slope**2, axis=1) / (2 * (L - mu))
        for slope, each in zip(slopes, data, strict=True)
    ]
    most = max(len(slope) for slope in slopes)
    # Pieces that lie below another one change nothing, and give every client equally many.
    missing = [most - len(slope) for slope in slopes]
    batch = {
        "slopes": np.array([np.pad(s, ((0, more), (0, 0)), "edge") for s, more in zip(slopes, missing, strict=True)]),
        "offsets": np.array([np.append(o, o[-1] + 1 + np.arange(n)) for o, n in zip(offsets, missing, strict=True)]),
        "smoothness": np.full(len(data), L),
        "strong_convexity": np.full(len(data), mu),
    }
    dim = data[0].x.shape[1]
    return from_loss(envelope, np.zeros(dim), batch, smoothness=L, strong_convexity=mu, minimizer=np.zeros(dim))


def envelope(x: Vector, batch: dict[str, Any]) -> Scalar:
    """max_α Σ α_k(⟨u_k, x⟩ - c_k) - ‖Σ α_k u_k‖²/(2(L - μ)) + μ‖x‖²/2."""
    slopes, mu = batch["slopes"], batch["strong_convexity"]
    width = batch["smoothness"] - mu
    heights = slopes @ x - batch["offsets"]
    # The maximiser may be held fixed where the maximum is differentiated.
    weights = _simplex_maximiser(slopes @ slopes.T / width, jax.lax.stop_gradient(heights))
    mean = slopes.T @ weights
    value: Scalar = weights @ heights - mean @ mean / (2 * width) + mu / 2 * x @ x
    return value


def _simplex_maximiser(Q: Vector, b: Vector) -> Vector:
    """The α in the simplex with the largest ⟨b, α⟩ - αᵀQα/2, by a primal-dual interior point method."""
    size = b.shape[0]
    one = jnp.ones(size, b.dtype)
    scale = jnp.max(jnp.abs(Q)) + jnp.max(b) - jnp.min(b)

    def unfinished(carry: tuple[Vector, Vector, Scalar, Scalar]) -> Scalar:
        alpha, slack, _, count = carry
        going: Scalar = (alpha @ slack > _CLOSED * scale) & (count < _STEPS)
        return going

    def improve(carry: tuple[Vector, Vector, Scalar, Scalar]) -> tuple[Vector, Vector, Scalar, Scalar]:
        alpha, slack, level, count = carry
        target = _CENTRED * (alpha @ slack) / size
        left = jnp.block([[Q + jnp.diag(slack / alpha), -one[:, None]], [one[None], jnp.zeros((1, 1), b.dtype)]])
        right = jnp.append(target / alpha - (Q @ alpha - b - level), 1 - jnp.sum(alpha))
        move = jnp.linalg.solve(left, right)
        step, lift = move[:-1], move[-1]
        change = (target - slack * step) / alpha - slack
        shrink = jnp.max(jnp.append(jnp.append(-step / alpha, -change / slack), _INSIDE))
        length = jnp.minimum(1.0, _INSIDE / shrink)
        return alpha + length * step, slack + length * change, level + length * lift, count + 1

    start = (one / size, scale * one, jnp.min(Q @ (one / size) - b) - scale, jnp.zeros((), jnp.int32))
    weights: Vector = jax.lax.while_loop(unfinished, improve, start)[0]
    return weights


def quadratic_functions(data: Sequence[ClientPoints], L: float, mu: float) -> Problem:
    """Quadratics with eigenvalues between μ and L that fit the data, with their minimiser at the origin."""
    matrices, linear = [], []
    for each in data:
        star = each.gradients[0]
        matrices.append(_symmetric_fit(each.x[1:], each.gradients[1:] - star, L, mu))
        linear.append(-star)
    return quadratic(np.array(matrices), np.array(linear))


def _symmetric_fit(x: Array, y: Array, L: float, mu: float) -> Array:
    """The symmetric A with Ax_k = y_k and eigenvalues between μ and L."""
    # B = (2A - (L + μ)I)/(L - μ) is a contraction, known on the span of the x_k.
    _, sizes, basis = np.linalg.svd(x)
    rank = int(np.sum(sizes > _RANK * sizes[0]))
    inside, outside = basis[:rank].T, basis[rank:].T
    image = np.linalg.lstsq(x @ inside, (2 * y - (L + mu) * x) / (L - mu), rcond=None)[0].T  # B on the span
    corner, below = inside.T @ image, outside.T @ image
    corner = (corner + corner.T) / 2
    values, vectors = np.linalg.eigh(corner)
    values = np.clip(values, -1, 1)
    free = np.maximum(1 - values**2, 0)
    inverse = np.divide(values, free, out=np.zeros_like(values), where=free > _RANK)
    rest = -below @ (vectors * inverse) @ vectors.T @ below.T
    whole = np.block([[corner, below.T], [below, rest]])
    values, vectors = np.linalg.eigh(basis.T @ whole @ basis)
    bounded = ((L - mu) * np.clip(values, -1, 1) + L + mu) / 2
    return np.asarray((vectors * bounded) @ vectors.T)


def _factor(gram: Array) -> Array:
    """Rows with these inner products."""
    if not gram.size:
        return np.zeros((0, 0))
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    kept = values > _RANK * max(1.0, float(values[-1]))
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))
