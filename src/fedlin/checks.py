"""Checks of arguments, shared by everything a user calls: each names the argument, the value and the remedy."""

import difflib
import sys
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedlin.core import Array
from fedlin.errors import ArgumentError, DataError, FedLinError

T = TypeVar("T")
_PIECE = 2**22  # entries looked at together
MOST = 2**31 - 1  # what an int32 can count
LONGEST_NAME = 240  # bytes of a file's name on most systems, with room for an ending while it is written
LONGEST = 80  # letters of a value in a message


def shown(value: object) -> str:
    """A value as a message shows it: its own form, cut short where it is long.

    >>> shown("a"), shown(list(range(100)))
    ("'a'", '[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 2...')
    """
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a value that cannot be shown, such as a number of too many digits
        return f"a {type(value).__name__}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def positive_integer(name: str, value: object, least: int = 1) -> int:
    """`value` as an int, if it is a whole number from 1, or from `least`, to 2³¹ - 1."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ArgumentError(f"{name} = {shown(value)} is not allowed: give a whole number of at least {least}.")
    if int(value) > MOST:
        raise ArgumentError(f"{name} = {shown(value)} is not allowed: at most {MOST} can be counted.")
    return int(value)


def random_seed(value: object, name: str = "seed") -> int:
    """`value` as an int, if it is a whole number of at least zero."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
        raise ArgumentError(f"{name} = {shown(value)} is not allowed: give a whole number of at least 0.")
    return int(value)


def real(name: str, value: object, allowed: Callable[[float], bool], meaning: str) -> float:
    """`value` as a float, if it is finite and `allowed`; `meaning` says in words what that is."""
    try:
        number = np.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:
        number = np.inf
    if not np.isfinite(number) or not allowed(number):
        raise ArgumentError(f"{name} = {shown(value)} is not allowed: give {meaning}.")
    return float(number)


def fraction(name: str, value: object) -> float:
    """`value` as a float in (0, 1], such as a probability."""
    return real(name, value, lambda number: 0 < number <= 1, "a number in (0, 1]")


def nonnegative(name: str, value: object) -> float:
    """`value` as a finite float of at least zero."""
    return real(name, value, lambda v: v >= 0, "a finite number of at least 0")


def positive(name: str, value: object) -> float:
    """`value` as a finite float above zero."""
    return real(name, value, lambda v: v > 0, "a finite number above 0")


def one_of(name: str, value: T, allowed: tuple[T, ...]) -> T:
    """`value`, if it is among the allowed ones."""
    if not any(isinstance(value, type(choice)) and value == choice for choice in allowed):
        raise ArgumentError(f"{name} = {shown(value)} is not allowed: choose one of {', '.join(map(repr, allowed))}.")
    return value


def true_or_false(name: str, value: object) -> bool:
    """`value`, if it is a truth value."""
    if not isinstance(value, bool | np.bool_):
        raise ArgumentError(f"{name} = {shown(value)} is not allowed: give True or False.")
    return bool(value)


def instance_of(name: str, value: object, kind: type[T], meaning: str) -> T:
    """`value`, if it is of the kind; `meaning` says in words what that is."""
    if not isinstance(value, kind):
        raise ArgumentError(f"{name} = {shown(value)} is not allowed: give {meaning}.")
    return value


def shape_of(name: str, value: Any, error: type[FedLinError] = ArgumentError) -> tuple[int, ...]:
    """The shape of what is or could be an array."""
    try:
        return np.shape(value)
    except ValueError as cause:
        raise error(f"{name} = {shown(value)} is not allowed: its parts differ in length.") from cause


def file_name(name: str, path: object, error: type[FedLinError]) -> None:
    """Refuse a path that no file can have, which the system would refuse in its own words."""
    text = str(path)
    if "\0" in text or any(len(part.encode(errors="replace")) > LONGEST_NAME for part in text.split("/")):
        raise error(f"{name} = {shown(path)} is no name a file can have: name another.")


def fits_memory(what: str, count: int) -> None:
    """Refuse so many numbers of eight bytes if the machine has no room for them; `what` names them."""
    room = _available()
    if 8 * count > room:
        raise DataError(
            f"{what} would take {8 * count / 2**30:,.1f} GiB and {room / 2**30:,.1f} GiB are free: ask for fewer."
        )


def _available() -> float:
    """Bytes of memory that are free, or infinity where the system does not tell."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return float("inf")


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


def first_line(error: BaseException) -> str:
    """What an exception of somebody else's says, without the lines that explain it and its last full stop.

    >>> first_line(ValueError("no such shape.\\nSee the manual."))
    'no such shape'
    """
    return str(error).strip().split("\n")[0].rstrip(".")


def printable(text: str, longest: int) -> str:
    """What somebody else wrote, as one line that any screen and any file can show; cut short where it is long.

    Characters that move a cursor, turn the direction of writing or end a line are written out: others than their author
    read them, among lines that are not the author's.

    >>> printable("all is well\\x1b[2J\\nnorth: done", 30)
    'all is well\\\\x1b[2J\\\\nnorth: don...'
    """
    cut = text if len(text) <= longest else f"{text[:longest]}..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)


def refuse_missing(column: object, what: str, instead: str) -> None:
    """Refuse a column of rows some of which have no `what`; `instead` says how to fill them in.

    >>> refuse_missing(["a", None], "label", "fill them in")
    Traceback (most recent call last):
        ...
    fedlin.errors.DataError: row 1 has no label, as have 1 rows in all ...
    """
    absent = missing(column)
    if absent.any():
        raise DataError(
            f"row {int(np.argmax(absent))} has no {what}, as have {int(absent.sum())} rows in all (rows are counted "
            f"from 0): {instead}, or leave these rows out."
        )


def missing(values: object) -> NDArray[np.bool_]:
    """Where entries are missing: None, NaN, or what pandas has in their place.

    >>> missing(["a", None, float("nan")]).tolist()
    [False, True, True]
    """
    array = values if isinstance(values, np.ndarray) else np.asarray(values, dtype=object)
    if array.dtype.kind in "fc":
        return np.asarray(np.isnan(array))
    if array.dtype.kind != "O":
        return np.zeros(array.shape, bool)
    return np.array([_is_missing(value) for value in array.ravel()], bool).reshape(array.shape)


def _is_missing(value: object) -> bool:
    # pandas' NA is neither equal to itself nor unequal; a list compares entry by entry.
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, Real) and value != value)
    )


def is_sparse(value: object) -> bool:
    """Whether this is one of SciPy's sparse arrays or matrices."""
    sparse = sys.modules.get("scipy.sparse")  # SciPy takes long to import, and is there where there are such arrays
    return sparse is not None and bool(sparse.issparse(value))


def all_finite(array: Array) -> bool:
    """Whether no entry is NaN or infinite, looked at in pieces so that a memory-mapped array stays on disk."""
    step = max(1, _PIECE * len(array) // max(1, array.size)) if array.ndim else 1
    pieces = (array[first : first + step] for first in range(0, len(array), step)) if array.ndim else (array,)
    return all(bool(np.all(np.isfinite(piece))) for piece in pieces)


def finite(name: str, value: ArrayLike, error: type[FedLinError] = DataError) -> Array:
    """`value` as an array of finite numbers: float32 stays as it is, all else becomes float64."""
    try:
        array = np.asarray(value)
        if array.dtype not in (np.float32, np.float64):
            array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as cause:
        raise error(f"{name} = {shown(value)} is not an array of numbers: {cause}.") from cause
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        where = tuple(int(i) for i in bad[0])
        raise error(
            f"{name} has {len(bad)} entries that are NaN or infinite (the first at index {where}): "
            "clean or impute the data first."
        )
    return array
