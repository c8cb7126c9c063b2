"""Turns a function that builds an algorithm into the factory a user calls.

Equal arguments give the same object, and numbers are kept apart from structure, so that engines compile one
program for every β and can run many of them as a batch. A wrapper is a factory that takes a method: the numbers of
that method stay numbers too.
"""

import inspect
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import cache, wraps
from typing import Any, ParamSpec

from fedlin.core import Algorithm, Method, MethodRecipe, structure

P = ParamSpec("P")
Check = Callable[[str, Any], float]


def factory(
    **numbers: Check,
) -> Callable[[Callable[P, Method]], Callable[P, Method]]:
    """Name the numeric hyperparameters and the check of each; all other arguments are structure."""

    def wrap(build: Callable[P, Method]) -> Callable[P, Method]:
        signature = inspect.signature(build)

        @cache
        def make(
            parts: tuple[tuple[str, Any], ...],
            values: tuple[tuple[str, float | None], ...],
            kinds: tuple[type, ...],  # to the cache alone 3 and 3.0 are the same
        ) -> Method:
            recipe = MethodRecipe(build, parts, values)
            algorithm = recipe.with_numbers(dict(values))
            return replace(algorithm, recipe=recipe)

        @wraps(build)
        def call(*args: P.args, **kwargs: P.kwargs) -> Method:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            values = {
                name: None if bound.arguments[name] is None else check(name, bound.arguments[name])
                for name, check in numbers.items()
            }
            parts = {name: value for name, value in bound.arguments.items() if name not in numbers}
            if not all(isinstance(value, Hashable) for value in parts.values()):
                return build(**bound.arguments)  # type: ignore[call-arg]  # which says what is wrong with it
            for name, value in parts.items():
                if isinstance(value, Algorithm) and value.recipe is not None:
                    parts[name] = structure(value)
                    values |= {f"{name}.{inner}": number for inner, number in value.recipe.numbers}
            return make(tuple(parts.items()), tuple(values.items()), tuple(map(type, parts.values())))

        return call

    return wrap
