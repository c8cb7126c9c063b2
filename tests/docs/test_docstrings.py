"""Docstrings of public functions and classes name every argument, and functions say what they return."""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

# Modules whose `__all__`, or whose own names without an underscore, are public.
PUBLIC = (
    "fedlin",
    "fedlin.algorithms",
    "fedlin.data",
    "fedlin.privacy",
    "fedlin.problems",
    "fedlin.theory",
    "fedlin.theory.bounds",
    "fedlin.theory.lower_bound",
    "fedlin.theory.splitting",
    "fedlin.theory.staged",
    "fedlin.theory.surrogate",
)
SECTION = r"^{}:\n((?:[ ]+.*\n?|\n)*)"


def public_names(module_name: str) -> Iterator[tuple[str, Any]]:
    """The public functions and classes of a module, by name."""
    module = import_module(module_name)
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module_name]
    for name in getattr(module, "__all__", own):
        value = getattr(module, name)
        if not name.startswith("_") and callable(value) and not inspect.ismodule(value):
            yield name, value


PLACES = [
    pytest.param(value, id=f"{module}.{name}")
    for module in PUBLIC
    for name, value in public_names(module)
    if not (inspect.isclass(value) and issubclass(value, BaseException))
]


def documented(docstring: str) -> set[str]:
    """The names under Args and Attributes."""
    sections = [match for head in ("Args", "Attributes") for match in re.findall(SECTION.format(head), docstring, re.M)]
    heads = [head for section in sections for head in re.findall(r"^    ([\w*][\w*, ]*):", section, flags=re.MULTILINE)]
    return {name.strip().lstrip("*") for head in heads for name in head.split(",")}


@pytest.mark.parametrize("thing", PLACES)
def test_every_argument_is_named(thing: Any) -> None:
    docstring = inspect.getdoc(thing) or ""
    if inspect.isclass(thing) and "__init__" in vars(thing):
        docstring += "\n\n" + (inspect.getdoc(vars(thing)["__init__"]) or "")
    assert set(inspect.signature(thing).parameters) - documented(docstring) == set()


@pytest.mark.parametrize("function", [place for place in PLACES if not inspect.isclass(place.values[0])])
def test_every_function_says_what_it_returns(function: Any) -> None:
    if inspect.signature(function).return_annotation not in (None, "None"):
        assert re.search(r"^(Returns|Yields):\n    \S", inspect.getdoc(function) or "", flags=re.MULTILINE)


def test_a_missing_argument_is_noticed() -> None:
    assert documented("Sum.\n\nArgs:\n    a: One.\n    b, c: Two\n        more: of it.\n\nReturns:\n    d: It.") == {
        "a",
        "b",
        "c",
    }
