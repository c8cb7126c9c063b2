"""Local steps corrected by a tracked gradient: what FedCOMGATE and K-GT are.

A client sends the mean direction of its local steps, receives all clients' mean, and corrects by the difference.
"""

from typing import NamedTuple

from fedlin.compressors import Compressor
from fedlin.core import Algorithm, Central, Local, Message, Phase, Requirement, Vector
from fedlin.links import encoding_key


class TrackedServer(NamedTuple):
    """Between rounds `direction` is None."""

    x: Vector  # w
    direction: Vector | None  # Δ/τ, the mean of what the clients sent


class TrackedClient(NamedTuple):
    """Between rounds `sent` is None."""

    delta: Vector  # δ_i
    sent: Vector | None  # Δ_i/τ as the server decoded it


def tracked_descent(
    name: str, compressor: Compressor, server_step: float, from_gradients: bool
) -> Algorithm[TrackedServer, TrackedClient]:
    """y ← y - η_i(∇f_i(y) - δ_i), τ_i times from x; z_i = C((x - y)/(η_i τ_i)); x ← x - γ η̄ z, δ_i ← δ_i + z_i - z.

    z is the mean of z_i and η̄ that of η_i τ_i, which travels up as one number. z comes down when it is known, so that
    a client needs nothing of the rounds it missed, and the δ_i of those who answer keep their sum.
    The δ_i begin at ∇f_i(x_0) - ∇f(x_0) if `from_gradients`, else at zero.
    """

    def send_gradient(state: TrackedClient, x: Vector, local: Local) -> tuple[TrackedClient, Message]:
        grad = local.oracle.grad(x, local.key)
        return TrackedClient(state.delta, grad), grad

    def average(state: TrackedServer, grad: Vector, central: Central) -> TrackedServer:
        return TrackedServer(state.x, grad)

    def move_locally(state: TrackedClient, x: Vector, local: Local) -> tuple[TrackedClient, Message]:
        span = local.eta * local.tau.astype(x.dtype)  # η_i τ_i
        direction = (x - local.descend(x, shift=-state.delta)) / span
        payload = compressor.encode(encoding_key(compressor, local, local.key), direction)
        return TrackedClient(state.delta, payload.decode()), (payload, span)

    def move(state: TrackedServer, message: tuple[Vector, Vector], central: Central) -> TrackedServer:
        direction, span = message
        return TrackedServer(state.x - server_step * span * direction, direction)

    def track(state: TrackedClient, direction: Vector, local: Local) -> tuple[TrackedClient, Message]:
        assert state.sent is not None
        return TrackedClient(state.delta + state.sent - direction, None), ()

    gradient = Phase("gradient", lambda state: state.x, send_gradient, average)
    model = Phase("model", lambda state: state.x, move_locally, move)
    tracking = Phase("track", lambda state: state.direction, track, lambda state, nothing, central: _at_rest(state.x))
    return Algorithm(
        name,
        _at_rest,
        lambda x: TrackedClient(0 * x, None),
        (model, tracking),
        opening=(gradient, tracking, model, tracking) if from_gradients else None,
        requires=frozenset([Requirement.PLAIN_STEPS, Requirement.MEAN_UPLOAD]),
        check=compressor.check,
    )


def _at_rest(x: Vector) -> TrackedServer:
    return TrackedServer(x, None)
