"""FedNL-PP: FedNL in which some clients answer and the others' last curvature and gradients still count.

M. Safaryan, R. Islamov, X. Qian, P. Richtárik, FedNL: Making Newton-Type Methods Applicable to Federated Learning, ICML
2022, FedNL-PP; written after its authors' code (Rustem-Islamov/FedNL-Public).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from fedlin.algorithms.factory import factory
from fedlin.algorithms.fednl import as_matrix_compressor, opening_compressor, zero_matrix
from fedlin.checks import fraction
from fedlin.compressors import Compressor
from fedlin.core import Algorithm, Central, Local, Matrix, Message, Phase, Requirement, Scalar, Vector
from fedlin.matrices import MatrixCompressor


class FedNLPPServer(NamedTuple):
    """The model and the means over all clients, those who have been away included."""

    x: Vector  # x
    H: Matrix  # mean of H_i
    error: Scalar  # mean of l_i
    g: Vector  # mean of g_i


class FedNLPPClient(NamedTuple):
    """What the server counts this client with."""

    H: Matrix  # H_i
    error: Scalar  # l_i
    g: Vector  # g_i = (H_i + l_i I)w_i - ∇f_i(w_i)


class Changes(NamedTuple):
    """How the client's three have changed."""

    difference: Message  # of H_i, compressed
    error: Scalar
    g: Vector


@factory(alpha=fraction)
def fednl_pp(
    compressor: Compressor | MatrixCompressor,
    alpha: float = 1.0,
    start: str | Compressor | MatrixCompressor = "hessian",
) -> Algorithm[FedNLPPServer, FedNLPPClient]:
    """x = (H + lI)⁻¹g; who answers takes w_i = x, H_i ← H_i + α C(∇²f_i(w_i) - H_i), l_i = ‖∇²f_i(w_i) - H_i‖ and

    g_i = (H_i + l_i I)w_i - ∇f_i(w_i), and sends how these changed: H, l and g stay the means over all clients. Who has
    not answered yet counts for nothing. The plan is not used.

    Args:
        compressor: C of symmetric matrices, as in `fednl`.
        alpha: α, how fast H_i follows; 1 suits every contraction.
        start: "hessian" if those who answer in the first round send whole Hessians, "zero" if H_i begins at
            zero; or a compressor for the first round.

    Returns:
        The method.

    >>> from fedlin.matrices import low_rank
    >>> fednl_pp(low_rank(1)).name
    'fednl_pp(low_rank(1))'
    """
    matrices = as_matrix_compressor(compressor)
    first = opening_compressor(start)

    def measure(
        encoder: MatrixCompressor, whole: bool
    ) -> Callable[[FedNLPPClient, Vector, Local], tuple[FedNLPPClient, Message]]:
        def send_changes(state: FedNLPPClient, x: Vector, local: Local) -> tuple[FedNLPPClient, Message]:
            hessian = local.oracle.hessian(x)
            payload = encoder.encode(local.key, hessian - state.H)
            H = state.H + (1 if whole else alpha) * payload.decode()
            error = jnp.linalg.norm(hessian - H)
            g = H @ x + error * x - local.oracle.full(x)
            return FedNLPPClient(H, error, g), Changes(payload, error - state.error, g - state.g)

        return send_changes

    def add(whole: bool) -> Callable[[FedNLPPServer, Changes, Central], FedNLPPServer]:
        def solve(state: FedNLPPServer, mean: Changes, central: Central) -> FedNLPPServer:
            share = central.participation
            H = state.H + (1 if whole else alpha) * share * mean.difference
            error, g = state.error + share * mean.error, state.g + share * mean.g
            x: Vector = jnp.linalg.solve(H + error * jnp.eye(g.shape[0], dtype=g.dtype), g)
            return FedNLPPServer(x, H, error, g)

        return solve

    def phases(encoder: MatrixCompressor, whole: bool) -> tuple[Phase[FedNLPPServer, FedNLPPClient], ...]:
        return (Phase("curvature", lambda state: state.x, measure(encoder, whole), add(whole)),)

    return Algorithm(
        f"fednl_pp({matrices}{'' if start == 'hessian' else f', start={start}'})",
        lambda x: FedNLPPServer(x, zero_matrix(x), jnp.zeros((), x.dtype), jnp.zeros_like(x)),
        lambda x: FedNLPPClient(zero_matrix(x), jnp.zeros((), x.dtype), jnp.zeros_like(x)),
        phases(matrices, False),
        opening=None if first is None else phases(first, True),
        requires=frozenset([Requirement.HESSIAN, Requirement.OWN_MODEL, Requirement.MEAN_UPLOAD]),
        check=matrices.check,
    )
