"""FedNL: Newton's method on Hessians that the server learns from compressed differences.

M. Safaryan, R. Islamov, X. Qian, P. Richtárik, FedNL: Making Newton-Type Methods Applicable to Federated Learning, ICML
2022, FedNL with both options and FedNL-LS; written after its authors' code (Rustem-Islamov/FedNL-Public).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedlin.algorithms.factory import factory
from fedlin.checks import one_of, positive, real
from fedlin.compressors import Compressor, identity
from fedlin.core import Algorithm, Central, Local, Matrix, Message, Phase, Requirement, Scalar, Vector
from fedlin.matrices import MatrixCompressor, symmetric

CORRECTIONS = ("projection", "shift")
STARTS = ("hessian", "zero")
_LENGTHS = 0.5 ** np.arange(16)  # that a line search looks at
_DECREASE = (
    1 / 4
)  # of the decrease that the slope predicts, which a length has to bring; near x* a whole step brings 1/2


class FedNLServer(NamedTuple):
    """The model, the mean of the clients' estimates, and between the phases of a line search its direction."""

    x: Vector  # x
    H: Matrix  # mean of H_i
    direction: Vector | None = None
    slope: Scalar | None = None  # ⟨∇f(x), direction⟩


class FedNLClient(NamedTuple):
    """The estimate of the client's Hessian; between the phases of a line search the model."""

    H: Matrix  # H_i
    x: Vector | None = None


class Curvature(NamedTuple):
    """A client's gradient, its compressed Hessian difference, and how far the estimate was off."""

    grad: Any
    difference: Any  # S_i
    error: Any  # l_i, None where H is projected


def learning_rate(name: str, value: Any) -> float:
    """α of a Hessian's estimate."""
    return real(name, value, lambda a: 0 < a <= 1, "a number in (0, 1]")


def as_matrix_compressor(value: Compressor | MatrixCompressor) -> MatrixCompressor:
    """A compressor of matrices as it is, one of vectors on the upper triangle."""
    return value if isinstance(value, MatrixCompressor) else symmetric(value)


def check_start(start: str) -> str:
    """What the estimates begin with."""
    return str(one_of("start", start, STARTS))


@factory(alpha=learning_rate, strong_convexity=positive)
def fednl(
    compressor: Compressor | MatrixCompressor,
    alpha: float = 1.0,
    correction: str = "projection",
    line_search: bool = False,
    start: str = "hessian",
    strong_convexity: float | None = None,
) -> Algorithm[FedNLServer, FedNLClient]:
    """x ← x - η[H]⁻¹∇f(x), H = mean of H_i, H_i ← H_i + α C(∇²f_i(x) - H_i): the Hessian is learned, not sent.

    [H] is H with its eigenvalues raised to μ at least (option 1), or H + lI with l the mean of ‖∇²f_i(x) - H_i‖ in the
    Frobenius norm (option 2). η is the plan's, 1 for Newton's step; its τ is not used. A second phase may search along
    the direction: the length is the first of η, η/2, η/4, ... at which f falls by a quarter of what its slope predicts.

    Args:
        compressor: C of symmetric matrices: `low_rank(R)`, or a contraction of vectors such as top_k(k), which then
            acts on the upper triangle.
        alpha: α, how fast H_i follows; 1 suits every contraction.
        correction: "projection" for option 1, "shift" for option 2.
        line_search: Whether the length of a step is searched for, for a start far from x*.
        start: "hessian" if the first round sends whole Hessians, "zero" if H_i begins at zero, for "shift" alone.
        strong_convexity: μ; the problem's unless given.

    Returns:
        The method.

    >>> from fedlin.matrices import low_rank
    >>> fednl(low_rank(1)).name
    'fednl(low_rank(1))'
    """
    matrices = as_matrix_compressor(compressor)
    one_of("correction", correction, CORRECTIONS)
    if check_start(start) == "zero":
        one_of("correction of a start at zero", correction, ("shift",))
    shifts = correction == "shift"

    def measure(encoder: MatrixCompressor, whole: bool) -> Any:
        """The client's part; where Hessians go `whole`, the estimate is the Hessian at once."""

        def send_curvature(state: FedNLClient, x: Vector, local: Local) -> tuple[FedNLClient, Message]:
            difference = local.oracle.hessian(x) - state.H
            payload = encoder.encode(local.key, difference)
            H = state.H + (1 if whole else alpha) * payload.decode()
            error = jnp.linalg.norm(difference) if shifts and not whole else None
            return FedNLClient(H, x if line_search else None), Curvature(local.oracle.full(x), payload, error)

        return send_curvature

    def solve(H: Matrix, error: Scalar | None, grad: Vector) -> Vector:
        """[H]⁻¹g, by eigenvalues, so that a matrix that is nearly singular does no harm."""
        values, vectors = jnp.linalg.eigh(H)
        raised = values if error is None else values + error
        raised = jnp.maximum(raised, jnp.asarray(strong_convexity, H.dtype))
        result: Vector = vectors @ ((vectors.T @ grad) / raised)
        return result

    def step(whole: bool) -> Any:
        def newton(state: FedNLServer, mean: Curvature, central: Central) -> FedNLServer:
            H = state.H + (1 if whole else alpha) * mean.difference
            # As in the paper, a step takes the estimate from before its own round; the first has none but its own.
            move = solve(H if whole else state.H, mean.error, mean.grad)
            if line_search:
                return FedNLServer(state.x, H, -central.eta * move, -central.eta * (mean.grad @ move))
            return FedNLServer(state.x - central.eta * move, H)

        return newton

    def try_lengths(state: FedNLClient, direction: Vector, local: Local) -> tuple[FedNLClient, Message]:
        assert state.x is not None
        lengths = jnp.asarray(np.append(0, _LENGTHS), direction.dtype)
        losses = jax.vmap(local.oracle.loss)(state.x[None] + lengths[:, None] * direction[None])
        return FedNLClient(state.H), losses

    def choose(state: FedNLServer, losses: Vector, central: Central) -> FedNLServer:
        assert state.direction is not None
        assert state.slope is not None
        lengths = jnp.asarray(_LENGTHS, losses.dtype)
        rounding = 4 * float(np.finfo(losses.dtype).eps) * jnp.abs(losses[0])
        enough = losses[1:] <= losses[0] + _DECREASE * lengths * state.slope + rounding
        length = jnp.where(jnp.any(enough), lengths[jnp.argmax(enough)], lengths[-1])
        return FedNLServer(state.x + length * state.direction, state.H)

    def phases(encoder: MatrixCompressor, whole: bool) -> tuple[Phase[FedNLServer, FedNLClient], ...]:
        curvature = Phase("curvature", lambda state: state.x, measure(encoder, whole), step(whole))
        search = Phase("line search", lambda state: state.direction, try_lengths, choose)
        return (curvature, search) if line_search else (curvature,)

    required = {Requirement.ONE_STEP_SIZE, Requirement.EVERY_CLIENT, Requirement.HESSIAN}
    if strong_convexity is None:
        required.add(Requirement.STRONG_CONVEXITY)
    options = [str(matrices)] + (["shift"] if shifts else []) + (["line search"] if line_search else [])
    return Algorithm(
        f"fednl({', '.join(options + (['from zero'] if start == 'zero' else []))})",
        lambda x: FedNLServer(x, zero_matrix(x)),
        lambda x: FedNLClient(zero_matrix(x)),
        phases(matrices, False),
        opening=phases(symmetric(identity()), True) if start == "hessian" else None,
        requires=frozenset(required),
        check=matrices.check,
    )


def zero_matrix(x: Vector) -> Matrix:
    """The d × d matrix of zeros."""
    return jnp.zeros((x.shape[0], x.shape[0]), x.dtype)
