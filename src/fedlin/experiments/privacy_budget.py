"""What a member gives away of its clients, stated before it runs and in its report."""

from typing import Any

from fedlin.core import Algorithm
from fedlin.errors import UnknownError
from fedlin.experiments.config import ExperimentConfig
from fedlin.privacy import account


def promise(
    algorithm: Algorithm[Any, Any], experiment: ExperimentConfig, participation: float, clients: int
) -> str | None:
    """The guarantee of a run to its last round in words; None where the method makes no upload private.

    >>> from fedlin import fedpaq, privacy
    >>> setting = ExperimentConfig(rounds=100, problem={}, plan={}, algorithm=[{}])
    >>> promise(fedpaq(privacy.gaussian(1.0, 10.0)), setting, 1.0, 20)
    '(4.38, 1e-05)-differential privacy of each client, against the server too'
    """
    if not algorithm.mechanisms:
        return None
    try:
        return str(account(algorithm, experiment.rounds, delta=experiment.delta, share=participation, clients=clients))
    except UnknownError as error:
        return str(error)
