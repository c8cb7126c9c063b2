"""Faults that any method can have: other local steps than the plan's, or other moves of the model.

Claims about methods other than FedLin must notice these. They are numbers of one program for each method.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from fedlin.algorithms.factory import factory
from fedlin.algorithms.wrap import wrap
from fedlin.claims.common.wrong_methods import EXCLUDED, number
from fedlin.core import Central, Local, Method, Requirement, Scalar, Vector


class Alteration(NamedTuple):
    """What is wrong: the default of both is right."""

    length: float = 1.0  # every local step, and the parameter of a proximal one, is multiplied by this
    reach: float = 1.0  # and the move of the model in a round by this


RESTS, RETREATS = "never moves", "moves the other way"
SHORTER, HALFWAY = "local steps a tenth shorter", "moves half as far"
ALTERATIONS: Mapping[str, Alteration] = {
    RESTS: Alteration(reach=0.0),
    RETREATS: Alteration(reach=-1.0),
    SHORTER: Alteration(length=0.9),
    HALFWAY: Alteration(reach=0.5),
}


def any_fault(passes: Mapping[str, str] | None = None, without: tuple[str, ...] = ()) -> dict[str, str]:
    """The faults that a claim must notice, as `must_notice` has those of FedLin.

    Args:
        passes: Those that satisfy the statement, each with the reason.
        without: Those that are not wrong there.

    Returns:
        Every name with the reason why the statement lets it pass, or EXCLUDED.
    """
    return {name: (passes or {}).get(name, EXCLUDED) for name in ALTERATIONS if name not in without}


def with_fault(method: Method, fault: Alteration) -> Method:
    """The method with this fault; where clients add up the model's moves themselves, local steps move wrongly."""
    return altered(method, fault.length, fault.reach)


@factory(length=number, reach=number)
def altered(method: Method, length: float, reach: float) -> Method:
    """The method with its local steps and its moves multiplied."""
    owns = Requirement.OWN_MODEL in method.requires
    factor = length * reach if owns else length

    def lengthen(local: Local) -> Local:
        def descend(start: Vector, *, eta: Scalar | float | None = None, **options: Any) -> Vector:
            return local.descend(start, eta=factor * (local.eta if eta is None else eta), **options)

        oracle = local.oracle._replace(prox=lambda u, s: local.oracle.prox(u, length * s))
        return local._replace(oracle=oracle, descend=descend, eta=reach * local.eta if owns else local.eta)

    def end_round(own: None, before: Vector, after: Vector, central: Central) -> tuple[None, Vector]:
        return None, before + reach * (after - before)

    return wrap(method, "altered", local=lengthen, end_round=None if owns else end_round)
