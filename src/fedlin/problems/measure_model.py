"""A pass over clients to measure a model: the sums it needs, and what follows from them."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeGuard

import jax.numpy as jnp
from jax.sharding import Mesh

from fedlin.columns import Measures, ModelView, measure_all
from fedlin.core import Scalar, Vector
from fedlin.layout import each_client, sum_over_blocks, sum_over_clients
from fedlin.problems.objective import Data, Objective

Sums = tuple[Scalar, Vector]  # Σ w_i h_i and Σ w_i ∇f_i(x), as `survey` finds them


class Optimum(NamedTuple):
    """Where f is least; `hessian` is f's own where it is constant, which makes measuring cheap and exact."""

    x: Any  # x*
    value: Any  # f*
    hessian: Any = None


def measure(objective: Objective, optimum: Optimum | None, x: Vector, look: Callable[[], Sums]) -> Measures:
    """The measures of a model, as traced code; `look` surveys the clients where that is needed."""
    return measure_all(closed_form(optimum, x) if in_closed_form(optimum) else conclude(objective, look(), optimum, x))


def in_closed_form(optimum: Optimum | None) -> TypeGuard[Optimum]:
    """Whether the measures follow from the optimum alone."""
    return optimum is not None and optimum.hessian is not None


def closed_form(optimum: Optimum, x: Vector) -> ModelView:
    """What can be said of a model where f is quadratic: f(x) - f* = ½(x - x*)ᵀH(x - x*)."""
    move = x - optimum.x
    force = optimum.hessian @ move
    gap = move @ force / 2
    return ModelView(x, optimum.value + gap, force, gap, optimum.x)


def survey(
    objective: Objective,
    data: Data,
    weights: Vector,
    optimum: Optimum | None,
    x: Vector,
    block: int | None,
    mesh: Mesh | None = None,
) -> Sums:
    """Σ w_i h_i and Σ w_i ∇f_i(x) over any part of the clients, whose mean h_i is the gap, or the loss."""
    total = objective.total
    if total is not None:
        return sum_over_blocks(lambda data, weights: total(data, weights, x), block, mesh)(data, weights)
    (sums,) = sum_over_clients([(weights, views(objective, data, optimum, x, block, mesh))], mesh)
    total_sums: Sums = sums
    return total_sums


def views(
    objective: Objective, data: Data, optimum: Optimum | None, x: Vector, block: int | None, mesh: Mesh | None
) -> tuple[Scalar, Vector]:
    """Every client's h_i and ∇f_i(x), where h_i is how high f_i lies.

    That is f_i(x) - f_i(x*) - ⟨∇f_i(x*), x - x*⟩, whose mean is the gap, or f_i(x) where x* or that is not known. The
    loss follows from the gap, so one of the two is enough.
    """
    apart = objective.divergence if optimum is not None else None

    def view(client: Data) -> tuple[Scalar, Vector]:
        height = objective.loss(client, x) if apart is None else apart(client, x, optimum.x)  # type: ignore[union-attr]
        return height, objective.grad(client, x)

    each: tuple[Scalar, Vector] = each_client(view, block, mesh)(data)
    return each


def conclude(objective: Objective, sums: Sums, optimum: Optimum | None, x: Vector) -> ModelView:
    """What can be said of a model after a survey of all clients."""
    height, grad = sums
    if optimum is None:
        return ModelView(x, height, grad, jnp.full((), jnp.nan, x.dtype), None)
    if objective.divergence is None:
        return ModelView(x, height, grad, height - optimum.value, optimum.x)
    return ModelView(x, optimum.value + height, grad, height, optimum.x)
