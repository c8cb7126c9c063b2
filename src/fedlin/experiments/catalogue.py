"""What exists, one line each with its reference, read off the docstrings."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedlin import problems
from fedlin.experiments import build

YEAR = re.compile(r"\b(19|20)\d\d\b")


@dataclass(frozen=True)
class Item:
    """A thing that can be named in a file."""

    name: str
    call: str
    summary: str
    reference: str


def methods() -> list[Item]:
    """The methods; what each is and its paper stand in the docstring of its module.

    >>> [item.reference[:12] for item in methods() if item.name == "fedavg"]
    ['B. McMahan e']
    """
    return [_item(name, function, inspect.getmodule(function)) for name, function in build.METHODS.items()]


def problem_kinds() -> list[Item]:
    """The problems a file or a program can name."""
    known = {name: thing for name in problems.__all__ if inspect.isfunction(thing := getattr(problems, name))}
    return _items(known)


def compressors() -> list[Item]:
    """The compressors, then the links that remember around them."""
    return [*_items(build.COMPRESSORS), *_items(build.LINKS)]


def _items(known: Mapping[str, Callable[..., Any]]) -> list[Item]:
    return [_item(name, function, function) for name, function in known.items()]


def _item(name: str, function: Callable[..., Any], described: Any) -> Item:
    text = inspect.getdoc(described) or ""
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n") if not part.lstrip().startswith(">>>")]
    cited = next((part for part in paragraphs[1:] if YEAR.search(part)), "")
    return Item(name, f"{name}({', '.join(inspect.signature(function).parameters)})", paragraphs[0], cited)
