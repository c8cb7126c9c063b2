"""What a client is handed in a phase: its oracle, its local work, and a count of the gradients it takes."""

from fedlin.core import Key, Local, Oracle, Scalar, Vector
from fedlin.engines.keys import descent_key
from fedlin.problems.objective import Data, Descent, Objective, Sampling, descend_by_gradients


class Counter:
    """Gradient calls of one client in one phase, counted while its functions run or are traced."""

    def __init__(self) -> None:
        self.calls: Scalar | int = 0


def make_local(
    objective: Objective,
    sampling: Sampling | None,
    data: Data,
    noise: Data,
    tau: Scalar,
    eta: Scalar,
    key: Key,
    shared_key: Key,
) -> tuple[Local, Counter]:
    """Client i's `Local`, and the counter its oracle feeds."""
    counter = Counter()

    def estimate(x: Vector, key: Key) -> Vector:
        return objective.grad(data, x) if sampling is None else sampling.grad(objective, data, noise, x, key)

    def grad(x: Vector, key: Key) -> Vector:
        counter.calls += 1
        return estimate(x, key)

    def full(x: Vector) -> Vector:
        counter.calls += 1
        return objective.grad(data, x)

    def prox(u: Vector, s: Scalar) -> Vector:
        assert objective.prox is not None  # engines refuse an algorithm that needs it before they start
        return objective.prox(data, u, s)

    def descend(
        start: Vector,
        *,
        shift: Vector | float = 0.0,
        pull: Scalar | float = 0.0,
        center: Vector | None = None,
        steps: Scalar | int | None = None,
        eta: Scalar | float | None = None,
        anchor: Vector | None = None,
    ) -> Vector:
        if anchor is not None and sampling is None:
            shift = shift - full(anchor)
        work = Descent(
            start,
            shift,
            pull,
            start if center is None else center,
            local.tau if steps is None else steps,
            local.eta if eta is None else eta,
        )
        counter.calls += work.steps
        quick = objective.shortcut(data, work) if sampling is None else None
        if quick is not None:
            return quick
        if anchor is None or sampling is None:
            return descend_by_gradients(estimate, work, descent_key(key))
        counter.calls += work.steps  # every step draws once and takes two gradients
        at: Vector = anchor
        return descend_by_gradients(lambda x, key: estimate(x, key) - estimate(at, key), work, descent_key(key))

    oracle = Oracle(lambda x: objective.loss(data, x), grad, prox, full)
    local = Local(oracle, tau, eta, descend, key, shared_key)
    return local, counter
