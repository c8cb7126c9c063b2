"""Nesterov's momentum around the rounds of a method: a round begins beyond the model that the last one ended with.

Y. Nesterov, Introductory Lectures on Convex Optimization, 2004, Section 2.2, with a round in place of a gradient step.
"""

from fedlin.algorithms.factory import factory
from fedlin.algorithms.wrap import wrap
from fedlin.checks import real
from fedlin.core import Central, Method, Vector


def _below_one(name: str, value: object) -> float:
    return real(name, value, lambda number: 0 <= number < 1, "a number from 0 to 1, and not 1")


@factory(beta=_below_one)
def momentum(method: Method, beta: float) -> Method:
    """v ← β(x⁺ - y + v), y ← x⁺ + v, where a round that begins at y ends with x⁺; y is the model.

    So y = x⁺ + β(x⁺ - x), with x what the round before ended with. Around FedLin rounds grow as √κ, at the steps and β
    of `theory.momentum`. `server_optimizer` with Nesterov's momentum of optax takes the same steps; here β is an input
    of the program, and no other package is needed.

    Args:
        method: A method whose model the server may move between rounds. One that needs its own (FedSplit, Scaffnew,
            FedAc, FedLin whose models come down compressed) is refused.
        beta: β, from 0 (the method itself) to 1.

    Returns:
        The method with momentum at its server.

    >>> import fedlin
    >>> momentum(fedlin.fedlin(), 0.9).name
    'momentum(fedlin)'
    """

    def extrapolate(ahead: Vector, before: Vector, after: Vector, central: Central) -> tuple[Vector, Vector]:
        ahead = beta * (after - before + ahead)  # v
        return ahead, after + ahead

    return wrap(method, "momentum", start=lambda x: 0 * x, end_round=extrapolate)
