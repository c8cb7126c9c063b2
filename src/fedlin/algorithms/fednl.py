"""FedNL: Newton's method on Hessians that the server learns from compressed differences.

M. Safaryan, R. Islamov, X. Qian, P. Richtárik, FedNL: Making Newton-Type Methods Applicable to Federated Learning, ICML
2022, FedNL with both options and FedNL-LS; written after its authors' code (Rustem-Islamov/FedNL-Public).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedlin.algorithms.factory import factory
from fedlin.checks import fraction, one_of, positive
from fedlin.compressors import Compressor, identity
from fedlin.core import Algorithm, Central, Local, Matrix, Message, Phase, Requirement, Scalar, Vector
from fedlin.links import Link, Memory, as_link
from fedlin.matrices import MatrixCompressor, symmetric

CORRECTIONS = ("projection", "shift")
_LENGTHS = 0.5 ** np.arange(16)  # that a line search looks at
# Of the decrease that the slope predicts, what a length has to bring; near x* a whole step brings 1/2.
_DECREASE = 1 / 4


class FedNLServer(NamedTuple):
    """The model, the mean of the clients' estimates, and between the phases of a line search its direction."""

    x: Vector  # x
    H: Matrix  # mean of H_i
    g: Memory  # the receiving end of the gradients' link
    direction: Vector | None = None
    slope: Scalar | None = None  # ⟨∇f(x), direction⟩


class FedNLClient(NamedTuple):
    """The estimate of the client's Hessian; between the phases of a line search the model."""

    H: Matrix  # H_i
    g: Memory  # the sending end of the gradients' link
    x: Vector | None = None


class Curvature(NamedTuple):
    """A client's gradient, its compressed Hessian difference, and how far the estimate was off."""

    grad: Message
    difference: Message  # S_i
    error: Scalar | None  # l_i, None where H is projected


def as_matrix_compressor(value: Compressor | MatrixCompressor) -> MatrixCompressor:
    """A compressor of matrices as it is, one of vectors on the upper triangle."""
    return value if isinstance(value, MatrixCompressor) else symmetric(value)


def opening_compressor(start: str | Compressor | MatrixCompressor) -> MatrixCompressor | None:
    """How the first round sends Hessians, None where it sends differences to zero as every round does."""
    if isinstance(start, str):
        return None if one_of("start", start, ("hessian", "zero")) == "zero" else symmetric(identity())
    return as_matrix_compressor(start)


@factory(alpha=fraction, strong_convexity=positive)
def fednl(
    compressor: Compressor | MatrixCompressor,
    alpha: float = 1.0,
    correction: str = "projection",
    line_search: bool = False,
    start: str | Compressor | MatrixCompressor = "hessian",
    uplink: Link | Compressor = identity(),  # noqa: B008 - cached, and immutable
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
        start: "hessian" if the first round sends whole Hessians, "zero" if H_i begins at zero, for "shift" alone; or a
            compressor for the first round, such as cast("float16").
        uplink: How gradients go up, such as innovation(cast("float16")), which stays exact.
        strong_convexity: μ; the problem's unless given.

    Returns:
        The method.

    >>> from fedlin.matrices import low_rank
    >>> fednl(low_rank(1)).name
    'fednl(low_rank(1))'
    """
    matrices = as_matrix_compressor(compressor)
    first, link = opening_compressor(start), as_link(uplink, "uplink")
    one_of("correction", correction, CORRECTIONS)
    if first is None:
        one_of("correction of a start at zero", correction, ("shift",))
    shifts = correction == "shift"

    def measure(
        encoder: MatrixCompressor, whole: bool
    ) -> Callable[[FedNLClient, Vector, Local], tuple[FedNLClient, Message]]:
        """The client's part; where Hessians go `whole`, the estimate is the Hessian at once."""

        def send_curvature(state: FedNLClient, x: Vector, local: Local) -> tuple[FedNLClient, Message]:
            of_matrix, of_grad = jax.random.split(local.key)
            difference = local.oracle.hessian(x) - state.H
            payload = encoder.encode(of_matrix, difference)
            H = state.H + (1 if whole else alpha) * payload.decode()
            error = jnp.linalg.norm(difference) if shifts and not whole else None
            grad, memory = (link.dense if whole else link).send(of_grad, state.g, local.oracle.full(x))
            return FedNLClient(H, memory, x if line_search else None), Curvature(grad, payload, error)

        return send_curvature

    def solve(H: Matrix, error: Scalar | None, grad: Vector) -> Vector:
        """[H]⁻¹g, by eigenvalues, so that a matrix that is nearly singular does no harm."""
        values, vectors = jnp.linalg.eigh(H)
        raised = values if error is None else values + error
        raised = jnp.maximum(raised, jnp.asarray(strong_convexity, H.dtype))
        result: Vector = vectors @ ((vectors.T @ grad) / raised)
        return result

    def step(whole: bool) -> Callable[[FedNLServer, Curvature, Central], FedNLServer]:
        def newton(state: FedNLServer, mean: Curvature, central: Central) -> FedNLServer:
            H = state.H + (1 if whole else alpha) * mean.difference
            grad, memory = (link.dense if whole else link).receive(state.g, mean.grad, central)
            # As in the paper, a step takes the estimate from before its own round; the first has none but its own.
            move = solve(H if whole else state.H, mean.error, grad)
            if line_search:
                return FedNLServer(state.x, H, memory, -central.eta * move, -central.eta * (grad @ move))
            return FedNLServer(state.x - central.eta * move, H, memory)

        return newton

    def try_lengths(state: FedNLClient, direction: Vector, local: Local) -> tuple[FedNLClient, Message]:
        assert state.x is not None
        lengths = jnp.asarray(np.append(0, _LENGTHS), direction.dtype)
        losses = jax.vmap(local.oracle.loss)(state.x[None] + lengths[:, None] * direction[None])
        return FedNLClient(state.H, state.g), losses

    def choose(state: FedNLServer, losses: Vector, central: Central) -> FedNLServer:
        assert state.direction is not None
        assert state.slope is not None
        lengths = jnp.asarray(_LENGTHS, losses.dtype)
        rounding = 4 * float(np.finfo(losses.dtype).eps) * jnp.abs(losses[0])
        enough = losses[1:] <= losses[0] + _DECREASE * lengths * state.slope + rounding
        length = jnp.where(jnp.any(enough), lengths[jnp.argmax(enough)], lengths[-1])
        return FedNLServer(state.x + length * state.direction, state.H, state.g)

    def phases(encoder: MatrixCompressor, whole: bool) -> tuple[Phase[FedNLServer, FedNLClient], ...]:
        curvature = Phase("curvature", lambda state: state.x, measure(encoder, whole), step(whole))
        search = Phase("line search", lambda state: state.direction, try_lengths, choose)
        return (curvature, search) if line_search else (curvature,)

    required = {
        Requirement.ONE_STEP_SIZE,
        Requirement.EVERY_CLIENT,
        Requirement.HESSIAN,
        Requirement.MEAN_UPLOAD,
    }
    if strong_convexity is None:
        required.add(Requirement.STRONG_CONVEXITY)
    options = [str(matrices), *(["shift"] if shifts else []), *(["line search"] if line_search else [])]
    options += [] if start == "hessian" else [f"start={start}"]
    options += [] if link.lossless else [f"uplink={link}"]
    return Algorithm(
        f"fednl({', '.join(options)})",
        lambda x: FedNLServer(x, zero_matrix(x), link.receiver(x)),
        lambda x: FedNLClient(zero_matrix(x), link.sender(x)),
        phases(matrices, False),
        opening=None if first is None else phases(first, True),
        requires=frozenset(required),
        check=_check(matrices, link),
    )


def _check(matrices: MatrixCompressor, link: Link) -> Callable[[int], None]:
    def check(dim: int) -> None:
        matrices.check(dim)
        link.check(dim)

    return check


def zero_matrix(x: Vector) -> Matrix:
    """The d × d matrix of zeros."""
    return jnp.zeros((x.shape[0], x.shape[0]), x.dtype)
