"""An optimiser at the clients: local steps along what it makes of each direction, with momentum, Adam or decay.

J. Wang et al., A Field Guide to Federated Optimization, 2021, Algorithm 1 (its ClientOpt), around any method whose
uploads do not assume plain steps.
"""

from typing import TYPE_CHECKING, Any

from fedlin.algorithms.factory import factory
from fedlin.algorithms.server_optimizer import read_optimizer
from fedlin.algorithms.wrap import wrap
from fedlin.core import Algorithm, Local, Method, Optimizer, Requirement, Vector
from fedlin.errors import ArgumentError

if TYPE_CHECKING:
    from optax import GradientTransformation


def client_optimizer(method: Method, optimizer: "GradientTransformation") -> Method:
    """x ← x + η_i u in every local step, u what an optimiser makes of the direction -x would have moved along.

    That direction is ∇f_i(x) with the method's own terms: FedProx's pull, FedLin's correction. With `optax.sgd(1.0)` it
    is the method itself. A schedule in the optimiser counts the steps of a round; η_i of the plan may change by round.

    Args:
        method: a method whose uploads do not assume plain steps. One that reads gradients off the way that was gone
            (SCAFFOLD's option II, FedNova, FedCOMGATE, Scaffnew, FedAc, FedSplit) is refused.
        optimizer: an optax `GradientTransformation`, or anything with its `init` and `update`. It begins anew in every
            round. A number in it is part of the program: another one compiles anew.

    Returns:
        The method with the optimiser at its clients.

    >>> import fedlin, optax
    >>> decayed = optax.chain(optax.add_decayed_weights(1e-4), optax.sgd(1.0, momentum=0.9))
    >>> client_optimizer(fedlin.fedavg(), decayed).name
    'client_optimizer(fedavg)'
    """
    if isinstance(method, Algorithm):
        for requirement in (Requirement.PLAIN_STEPS, Requirement.PROX):
            if requirement in method.requires:
                raise ArgumentError(
                    f"{method.name} needs {requirement}, and client_optimizer takes other steps: wrap a method that "
                    "does not, such as fedlin.fedavg(), fedlin.fedlin() or fedlin.scaffold(option=1)."
                )
    return _client_optimizer(method, read_optimizer(optimizer))


@factory()
def _client_optimizer(method: Method, optimizer: Optimizer) -> Method:
    def change(local: Local) -> Local:
        def descend(start: Vector, **options: Any) -> Vector:
            return local.descend(start, **{"optimizer": optimizer, **options})

        return local._replace(descend=descend)

    return wrap(method, "client_optimizer", local=change)
