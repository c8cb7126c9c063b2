"""What exists, one line each with its reference, read off the docstrings."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedlin import problems
from fedlin.experiments import build_method

YEAR = re.compile(r"\b(19|20)\d\d\b")


@dataclass(frozen=True)
class CatalogueEntry:
    """A method, problem, compressor or link that can be named in a file."""

    name: str
    call: str
    summary: str
    reference: str


def methods() -> list[CatalogueEntry]:
    """The methods; what each is and its paper stand in the docstring of its module.

    >>> [entry.reference[:12] for entry in methods() if entry.name == "fedavg"]
    ['B. McMahan e']
    """
    return [_entry(name, function, inspect.getmodule(function)) for name, function in build_method.METHODS.items()]


def problem_kinds() -> list[CatalogueEntry]:
    """The problems a file or a program can name."""
    known = {name: value for name in problems.__all__ if inspect.isfunction(value := getattr(problems, name))}
    return _entries(known)


def compressors() -> list[CatalogueEntry]:
    """The compressors of vectors and of symmetric matrices, then the links that remember around them."""
    known = (build_method.COMPRESSORS, build_method.MATRIX_COMPRESSORS, build_method.LINKS)
    return [entry for makers in known for entry in _entries(makers)]


def _entries(known: Mapping[str, Callable[..., Any]]) -> list[CatalogueEntry]:
    return [_entry(name, function, function) for name, function in known.items()]


def _entry(name: str, function: Callable[..., Any], described: object) -> CatalogueEntry:
    text = inspect.getdoc(described) or ""
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n") if not part.lstrip().startswith(">>>")]
    cited = next((part for part in paragraphs[1:] if YEAR.search(part)), "")
    return CatalogueEntry(name, f"{name}({', '.join(inspect.signature(function).parameters)})", paragraphs[0], cited)
