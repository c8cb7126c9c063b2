"""An optimiser at the server: what a round moved the model by is the gradient that it steps along.

S. Reddi et al., Adaptive Federated Optimization, ICLR 2021, Algorithm 1, around any method that allows it.
"""

import hashlib
from typing import TYPE_CHECKING

import jax

from fedlin.algorithms.factory import factory
from fedlin.algorithms.wrap import wrap
from fedlin.checks import shown
from fedlin.core import Central, Method, Optimizer, PyTree, Vector
from fedlin.errors import ArgumentError
from fedlin.fingerprint import describe

if TYPE_CHECKING:
    from optax import GradientTransformation


def server_optimizer(method: Method, optimizer: "GradientTransformation") -> Method:
    """x ← x + u, u what an optimiser makes of x - x', where the method would end the round with x'.

    Around FedAvg it is FedAvgM with `optax.sgd(step, momentum=...)`, FedAdam with `optax.adam(step)` and FedYogi with
    `optax.yogi(step)`; with `optax.sgd(1.0)` it is the method itself.

    Args:
        method: A method whose model the server may move between rounds. One that needs its own (FedSplit, Scaffnew,
            FedAc, FedLin whose models come down compressed) is refused.
        optimizer: An optax `GradientTransformation`, or anything with its `init` and `update`. A number in it is part
            of the program: another one compiles anew.

    Returns:
        The method with the optimiser at its server.

    >>> import fedlin, optax
    >>> server_optimizer(fedlin.fedavg(), optax.adam(1e-2)).name
    'server_optimizer(fedavg)'
    >>> server_optimizer(fedlin.fedavg(), optax.adam(1e-2)) is server_optimizer(fedlin.fedavg(), optax.adam(1e-2))
    True
    """
    return _server_optimizer(method, read_optimizer(optimizer))


def read_optimizer(optimizer: "GradientTransformation") -> Optimizer:
    """An optax transformation, or anything with its two functions, as what a method's structure can hold."""
    init, update = (getattr(optimizer, part, None) for part in ("init", "update"))
    if not callable(init) or not callable(update):
        raise ArgumentError(
            f"optimizer = {shown(optimizer)} is not allowed: give an optax transformation such as optax.adam(1e-2) "
            "(pip install 'fedlin[optax]')."
        )
    digest = hashlib.sha256(describe((init, update)).encode()).hexdigest()
    return Optimizer(digest, init, update)


@factory()
def _server_optimizer(method: Method, optimizer: Optimizer) -> Method:
    def step(memory: PyTree, before: Vector, after: Vector, central: Central) -> tuple[PyTree, Vector]:
        # Optax's own code, which mixes types as JAX allows by default.
        with jax.numpy_dtype_promotion("standard"):
            move, memory = optimizer.update(before - after, memory, before)
        return memory, before + move.astype(before.dtype)

    return wrap(method, "server_optimizer", start=optimizer.init, end_round=step)
