"""f_i(x) = ½ xᵀA_i x - b_iᵀx + c_i: everything about it is known, and τ_i local steps cost two products.

With A = VΛVᵀ the steps x ← x - η(Ax - b + shift + pull (x - center)) sum to
x_τ = x_0 - V φ(Λ + pull) Vᵀ r_0, φ(λ) = η Σ_{l<τ} (1 - ηλ)^l, r_0 the first step's direction.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fedlin.checks import finite
from fedlin.core import Array, Matrix, Scalar, Vector
from fedlin.errors import DataError, UnknownError
from fedlin.problems.fused_quadratic import descend_on_chip
from fedlin.problems.measure_model import Optimum
from fedlin.problems.objective import Descent, Objective
from fedlin.problems.problem import Problem, Rows


class Basis(NamedTuple):
    """The eigenbasis of A_i."""

    vectors: jax.Array  # V
    values: jax.Array  # Λ


class Form(NamedTuple):
    """A client's quadratic; `basis` is None where local steps are to be taken one by one."""

    A: jax.Array
    b: jax.Array
    c: jax.Array
    basis: Basis | None


def _loss(form: Form, x: Vector) -> Scalar:
    return x @ (form.A @ x) / 2 - form.b @ x + form.c


def _grad(form: Form, x: Vector) -> Vector:
    return form.A @ x - form.b


def _hessian(form: Form, x: Vector) -> Matrix:
    return form.A


def _divergence(form: Form, x: Vector, y: Vector) -> Scalar:
    return (x - y) @ (form.A @ (x - y)) / 2


def _prox(form: Form, u: Vector, s: Scalar) -> Vector:
    if form.basis is None:
        result: Vector = jnp.linalg.solve(form.A + jnp.eye(u.size, dtype=u.dtype) / s, form.b + u / s)
        return result
    vectors, values = form.basis
    return vectors @ ((vectors.T @ (form.b + u / s)) / (values + 1 / s))


def _descend(form: Form, work: Descent) -> Vector:
    assert form.basis is not None
    vectors, values = form.basis
    outer = work.shift - form.b + work.pull * (work.start - work.center)
    # A GPU is to read V once. A CPU takes ten times longer for a product with two columns where many runs share V.
    if jax.default_backend() == "gpu":
        start, outer = (vectors.T @ jnp.stack([work.start, outer], axis=1)).T
    else:
        start, outer = work.start @ vectors, outer @ vectors
    factor = work.eta * geometric_sum(work.eta * (values + work.pull), work.steps)  # φ
    move: Vector = vectors @ (factor * (values * start + outer))
    return work.start - move


def geometric_sum(z: Vector, steps: Scalar | int) -> Vector:
    """Σ_{l<τ} (1 - z)^l = (1 - (1 - z)^τ)/z for z ≥ 0, accurate for small z too."""
    gentle = z < 0.5
    power = jnp.asarray(steps, z.dtype)
    safe = jnp.where(z > 0, z, 1)
    small = -jnp.expm1(power * jnp.log1p(-jnp.where(gentle, z, 0)))
    base = jnp.where(gentle, 0.5, 1 - z)
    sign = jnp.where((base < 0) & (steps % 2 == 1), -1, 1).astype(z.dtype)
    size = jnp.maximum(jnp.abs(base), np.finfo(z.dtype).tiny)  # at z = 1 no step at all still leaves 0⁰ = 1
    large = 1 - sign * jnp.exp(power * jnp.log(size))
    return jnp.where(z > 0, jnp.where(gentle, small, large) / safe, power)


CLOSED = Objective(_loss, _grad, _divergence, _prox, _descend, hessian=_hessian, origin=(__name__, "CLOSED"))
BY_GRADIENTS = Objective(
    _loss,
    _grad,
    _divergence,
    _prox,
    fused=lambda form, work: descend_on_chip(form.A, form.b, work),
    hessian=_hessian,
    origin=(__name__, "BY_GRADIENTS"),
)


class Quadratic(Problem):
    """Clients whose losses are quadratic."""

    searches = False

    def __init__(self, A: Array, b: Array, c: Array, closed_form: bool, rows: Rows | None = None) -> None:
        self.spectrum, vectors = np.linalg.eigh(A)
        smallest, largest = self.spectrum[:, 0], self.spectrum[:, -1]
        indefinite = np.flatnonzero(smallest < -_rounding(A) * np.maximum(largest, np.finfo(A.dtype).tiny))
        if indefinite.size:
            i = int(indefinite[0])
            raise DataError(
                f"A of client {i} is indefinite (least eigenvalue {smallest[i]:.3g}): every A_i must be positive "
                "semidefinite for f to have a minimum."
            )
        self.spectrum = np.maximum(self.spectrum, 0)
        host: Any = (A, b, c, Basis(vectors, self.spectrum) if closed_form else None)  # type: ignore[arg-type]
        objective = CLOSED if closed_form else BY_GRADIENTS
        super().__init__(objective, Form(*host), start=np.zeros(A.shape[-1], A.dtype), clients=len(A))
        self._rows = rows

    @property
    def hessian(self) -> Array:
        """H = Σ w_i A_i."""
        return np.asarray(np.einsum("i,ijk->jk", self.weights.astype(self.dtype), self.data.A))

    def curvature(self) -> tuple[Array, Array]:
        return self.spectrum[:, -1], self.spectrum[:, 0]

    @property
    def polyak_lojasiewicz(self) -> float:
        """The least non-zero eigenvalue of H."""
        values = np.linalg.eigvalsh(self.hessian)
        above = values[values > values[-1] * self.dim * np.finfo(self.dtype).eps]
        if not above.size:
            raise UnknownError(f"{self!r} is linear (all A_i are zero), so it has no Polyak-Łojasiewicz constant.")
        return float(above[0])

    def solve(self) -> Optimum:
        H, b = self.hessian, self.weights.astype(self.dtype) @ self.data.b
        values, vectors = np.linalg.eigh(H)
        nonzero = values > values[-1] * self.dim * np.finfo(self.dtype).eps
        inverse = np.where(nonzero, 1 / np.where(nonzero, values, 1), 0)

        def pseudo(v: Array) -> Array:
            return np.asarray(vectors @ (inverse * (vectors.T @ v)))

        x = pseudo(b)
        x += pseudo(b - H @ x)  # one refinement takes the solver's rounding out
        if np.linalg.norm(b - H @ x) > 1e3 * self.dim * np.finfo(self.dtype).eps * (
            np.linalg.norm(b) + values[-1] * np.linalg.norm(x)
        ):
            raise UnknownError(
                f"{self!r} has no minimum: the mean of b_i lies outside the range of the mean of A_i, "
                "so f falls without end. Add l2 regularisation."
            )
        value = -b @ x / 2 + self.weights.astype(self.dtype) @ self.data.c
        return Optimum(x, value, H)

    def rows(self) -> Rows:
        return self._rows if self._rows is not None else super().rows()


def quadratic(A: ArrayLike, b: ArrayLike, *, closed_form: bool = True) -> Quadratic:
    """f_i(x) = ½ xᵀA_i x - b_iᵀx with A of shape (m, d, d) and b of shape (m, d).

    Args:
        A: A_i, symmetric, (m, d, d).
        b: b_i, (m, d).
        closed_form: Whether local steps are computed in closed form; if not, one by one, as in every other problem.

    Returns:
        The problem.

    >>> import numpy as np
    >>> problem = quadratic(np.array([[[2.0]], [[4.0]]]), np.array([[2.0], [10.0]]))
    >>> problem.minimizer.tolist(), problem.condition
    ([2.0], 2.0)
    """
    A, b = finite("A", A), finite("b", b)
    dtype = np.result_type(A, b)
    if A.ndim != 3 or A.shape[1] != A.shape[2] or 0 in A.shape:
        raise DataError(f"A has shape {A.shape}: give one square matrix a client, shape (clients, d, d).")
    if b.shape != A.shape[:2]:
        raise DataError(f"b has shape {b.shape} and A {A.shape}: give one vector a client, shape {A.shape[:2]}.")
    skew = np.max(np.abs(A - A.transpose(0, 2, 1)), axis=(1, 2))
    bad = np.flatnonzero(skew > _rounding(A) * np.max(np.abs(A), axis=(1, 2)))
    if bad.size:
        i = int(bad[0])
        raise DataError(f"A of client {i} is not symmetric (entries differ by {skew[i]:.3g}): give (A + Aᵀ)/2 instead.")
    symmetric = ((A + A.transpose(0, 2, 1)) / 2).astype(dtype)
    return Quadratic(symmetric, b.astype(dtype), np.zeros(len(symmetric), dtype), closed_form)


def _rounding(A: Array) -> float:
    # What is lost in computing a Gram matrix and its eigenvalues, relative to the largest.
    return float(max(1e-10, 10 * A.shape[-1] * np.finfo(A.dtype).eps))
