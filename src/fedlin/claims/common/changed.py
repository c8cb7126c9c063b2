"""A method with its phases changed, whose numbers stay inputs of its program rather than parts of it."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from fedlin.core import Algorithm

Change = Callable[[Algorithm[Any, Any]], Algorithm[Any, Any]]
Build = Callable[..., Algorithm[Any, Any]]


def changed(method: Algorithm[Any, Any], change: Change) -> Algorithm[Any, Any]:
    """`change(method)`; as often as `change` is the same function, one program serves all numbers of the method."""
    made = replace(change(method), recipe=None)
    if method.recipe is None:
        return made
    return replace(made, recipe=replace(method.recipe, build=_builder(method.recipe.build, change)))


@cache
def _builder(build: Build, change: Change) -> Build:
    return lambda **arguments: change(build(**arguments))
