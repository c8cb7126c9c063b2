"""Which function a user gave, told the same way in every process."""

from collections.abc import Callable
from typing import Any


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
