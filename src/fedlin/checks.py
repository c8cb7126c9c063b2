"""Checks of arguments, shared by everything a user calls: each names the argument, the value and the remedy."""

import difflib
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from fedlin.errors import ArgumentError, DataError, FedLinError

_PIECE = 2**22  # entries looked at together


def positive_integer(name: str, value: Any) -> int:
    """`value` as an int, if it is a whole number of at least one."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ArgumentError(f"{name} = {value!r} is not allowed: give a whole number of at least 1.")
    return int(value)


def real(name: str, value: Any, allowed: Callable[[float], bool], meaning: str) -> float:
    """`value` as a float, if it is finite and `allowed`; `meaning` says in words what that is."""
    if isinstance(value, bool) or not isinstance(value, Real) or not _within(float(value), allowed):
        raise ArgumentError(f"{name} = {value!r} is not allowed: give {meaning}.")
    return float(value)


def _within(value: float, allowed: Callable[[float], bool]) -> bool:
    return bool(np.isfinite(value)) and allowed(value)


def nonnegative(name: str, value: Any) -> float:
    """`value` as a finite float of at least zero."""
    return real(name, value, lambda v: v >= 0, "a finite number of at least 0")


def positive(name: str, value: Any) -> float:
    """`value` as a finite float above zero."""
    return real(name, value, lambda v: v > 0, "a finite number above 0")


def one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    """`value`, if it is among the allowed ones."""
    if value not in allowed:
        raise ArgumentError(f"{name} = {value!r} is not allowed: choose one of {', '.join(map(repr, allowed))}.")
    return value


def did_you_mean(given: str, known: Iterable[str], before: str = " (", after: str = ")") -> str:
    """The nearest known name as a question between `before` and `after`; nothing where none is near.

    >>> did_you_mean("alpa", ["alpha", "seed"])
    " (did you mean 'alpha'?)"
    """
    near = difflib.get_close_matches(given, list(known), n=1)
    return f"{before}did you mean {near[0]!r}?{after}" if near else ""


def unknown_name(what: str, given: str, known: Iterable[str]) -> str:
    """A sentence that names what was given, the nearest known name and all that are known.

    >>> unknown_name("key", "alpa", ["alpha", "seed"])
    "no key is called 'alpa': did you mean 'alpha'? Known: alpha, seed."
    """
    names = sorted(known)
    return f"no {what} is called {given!r}{did_you_mean(given, names, ': ', '') or '.'} Known: {', '.join(names)}."


def is_sparse(value: Any) -> bool:
    """Whether this is one of SciPy's sparse arrays or matrices."""
    return bool(sparse.issparse(value))


def all_finite(array: NDArray[Any]) -> bool:
    """Whether no entry is NaN or infinite, looked at in pieces so that a memory-mapped array stays on disk."""
    step = max(1, _PIECE * len(array) // max(1, array.size)) if array.ndim else 1
    pieces = (array[first : first + step] for first in range(0, len(array), step)) if array.ndim else (array,)
    return all(bool(np.all(np.isfinite(piece))) for piece in pieces)


def finite(name: str, value: ArrayLike, error: type[FedLinError] = DataError) -> NDArray[Any]:
    """`value` as an array of finite numbers: float32 stays as it is, all else becomes float64."""
    try:
        array = np.asarray(value)
        if array.dtype not in (np.float32, np.float64):
            array = array.astype(np.float64)
    except (TypeError, ValueError) as cause:
        raise error(f"{name} is not an array of numbers: {cause}.") from cause
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        where = tuple(int(i) for i in bad[0])
        raise error(
            f"{name} has {len(bad)} entries that are NaN or infinite (the first at index {where}): "
            "clean or impute the data first."
        )
    return array
