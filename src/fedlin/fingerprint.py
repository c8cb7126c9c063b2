"""Which function a user gave, named the same way in every process."""

import functools
import hashlib
from collections.abc import Callable, Mapping
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import jax
import numpy as np

_PUBLISHED = ("jax", "numpy", "optax")  # whose functions are known by name, whatever Python compiled them to


def fingerprint(function: Callable[..., Any]) -> str:
    """The name and, where there is any, the code of a function.

    >>> fingerprint(lambda x: x + 1) == fingerprint(lambda x: x + 2)
    False
    """
    name = getattr(function, "__qualname__", type(function).__name__)
    code = getattr(function, "__code__", None)  # a callable object has none
    if code is None:
        return str(name)
    # Plain constants only: the others look different in every process.
    plain = [value for value in code.co_consts if isinstance(value, int | float | str | bytes | None)]
    return f"{name} {code.co_code!r} {code.co_names} {plain}"


def describe(value: object) -> str:
    """A value, or a function with all that it holds, as text: equal texts mean equal behaviour.

    What cannot be described is named by its place in memory, so that it equals nothing but itself.

    >>> def scale(by):
    ...     return lambda x: by * x
    >>> describe(scale(2)) == describe(scale(2)), describe(scale(2)) == describe(scale(3))
    (True, False)
    """
    return _describe(value, ())


def _describe(value: object, within: tuple[int, ...]) -> str:
    if id(value) in within:  # a function that holds itself
        return f"<{len(within) - within.index(id(value))} up>"

    def inner(part: object) -> str:
        return _describe(part, (*within, id(value)))

    if value is None or isinstance(value, bool | int | float | complex | str | bytes | np.generic):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, np.ndarray | jax.Array):
        array = np.asarray(value)
        return f"array {array.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
    if isinstance(value, tuple | list):
        return f"{type(value).__qualname__} [{', '.join(map(inner, value))}]"
    if isinstance(value, Mapping):
        return f"{type(value).__qualname__} {{{', '.join(f'{inner(k)}: {inner(v)}' for k, v in value.items())}}}"
    if isinstance(value, functools.partial):
        return f"partial {inner((value.func, value.args, value.keywords))}"
    if isinstance(value, type | ModuleType):
        return f"{getattr(value, '__module__', '')} {value.__name__}"
    if isinstance(value, CodeType):
        return f"{value.co_name} {value.co_code!r} {value.co_names} {inner(value.co_consts)}"
    if isinstance(value, FunctionType):
        parts: list[object] = [*map(_held, value.__closure__ or ()), value.__defaults__, value.__kwdefaults__]
        if value.__module__.partition(".")[0] not in _PUBLISHED:
            used = {name: value.__globals__.get(name) for name in value.__code__.co_names}
            plain = {name: part for name, part in used.items() if isinstance(part, bool | int | float | complex | str)}
            parts += [value.__code__, plain]
        return f"{value.__module__} {value.__qualname__} {inner(parts)}"
    return f"<{type(value).__qualname__} at {id(value):#x}>"


def _held(cell: CellType) -> object:
    """What a variable of a function's closure holds."""
    try:
        return cell.cell_contents
    except ValueError:  # a variable that was never set
        return ()
