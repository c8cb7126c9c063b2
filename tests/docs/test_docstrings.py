"""Docstrings of public functions, classes and methods name every argument, and say what is returned."""

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from typing import Any, get_origin

import pytest

# Modules whose `__all__`, or whose own names without an underscore, are public.
PUBLIC = (
    "fedlin",
    "fedlin.aggregation",
    "fedlin.algorithms",
    "fedlin.algorithms.wrap",
    "fedlin.attacks",
    "fedlin.columns",
    "fedlin.compressors",
    "fedlin.core",
    "fedlin.data",
    "fedlin.layers",
    "fedlin.links",
    "fedlin.matrices",
    "fedlin.privacy",
    "fedlin.problems",
    "fedlin.sklearn",
    "fedlin.theory",
    "fedlin.theory.bounds",
    "fedlin.theory.lower_bound",
    "fedlin.theory.splitting",
    "fedlin.theory.staged",
    "fedlin.theory.surrogate",
)
# Those of them whose classes' methods name their arguments too.
METHODS = ("fedlin", "fedlin.columns", "fedlin.data")
SECTION = r"^{}:\n((?:[ ]+.*\n?|\n)*)"


def public_names(module_name: str) -> Iterator[tuple[str, Any]]:
    """The public functions and classes of a module, by name."""
    module = import_module(module_name)
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module_name]
    for name in getattr(module, "__all__", own):
        value = getattr(module, name)
        if not name.startswith("_") and callable(value) and get_origin(value) is None:
            yield name, value


def is_protocol(value: type) -> bool:
    return bool(getattr(value, "_is_protocol", False))


PLACES = [
    pytest.param(value, id=f"{module}.{name}")
    for module in PUBLIC
    for name, value in public_names(module)
    # A protocol's methods take the arguments, and the members of an enumeration are its values.
    if not (inspect.isclass(value) and (issubclass(value, BaseException | Enum) or is_protocol(value)))
]

CLASSES = {value for module in METHODS for _, value in public_names(module) if inspect.isclass(value)}
METHODS_OF_CLASSES = [
    pytest.param(method, id=method.__qualname__)
    for value in sorted(CLASSES, key=lambda value: value.__qualname__)
    for name, given in vars(value).items()
    if not name.startswith("_") and inspect.isfunction(method := getattr(given, "__func__", given))
    if method.__name__ == name  # a function of its own, and no field's default
]


def documented(docstring: str) -> set[str]:
    """The names under Args and Attributes."""
    sections = [match for head in ("Args", "Attributes") for match in re.findall(SECTION.format(head), docstring, re.M)]
    heads = [head for section in sections for head in re.findall(r"^    ([\w*][\w*, ]*):", section, flags=re.MULTILINE)]
    return {name.strip().lstrip("*") for head in heads for name in head.split(",")}


@pytest.mark.parametrize("thing", PLACES)
def test_every_argument_is_named(thing: Any) -> None:
    docstring = inspect.getdoc(thing) or ""
    if inspect.isclass(thing):  # an estimator's base class names what all estimators take
        own = [inspect.getdoc(base) or "" for base in thing.__mro__[:-1] if base.__module__.startswith("fedlin")]
        docstring = "\n\n".join([*own, inspect.getdoc(vars(thing).get("__init__")) or ""])
    assert set(inspect.signature(thing).parameters) - documented(docstring) == set()


def says_what_it_returns(function: Any) -> bool:
    returns_nothing = inspect.signature(function).return_annotation in (None, "None")
    section = re.search(r"^(Returns|Yields):\n    \S", inspect.getdoc(function) or "", flags=re.MULTILINE)
    return returns_nothing or section is not None


@pytest.mark.parametrize("function", [place for place in PLACES if not inspect.isclass(place.values[0])])
def test_every_function_says_what_it_returns(function: Any) -> None:
    assert says_what_it_returns(function)


@pytest.mark.parametrize("method", METHODS_OF_CLASSES)
def test_every_argument_of_a_method_is_named(method: Any) -> None:
    """A method without arguments is what it returns, which its first line says."""
    arguments = set(inspect.signature(method).parameters) - {"self", "cls"}
    assert arguments - documented(inspect.getdoc(method) or "") == set()
    assert not arguments or says_what_it_returns(method)


def test_a_missing_argument_is_noticed() -> None:
    assert documented("Sum.\n\nArgs:\n    a: One.\n    b, c: Two\n        more: of it.\n\nReturns:\n    d: It.") == {
        "a",
        "b",
        "c",
    }
