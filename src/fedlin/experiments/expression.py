"""Small expressions in a file, such as innovation(top_k(10)): names that are known, called with plain values."""

import ast
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from fedlin.checks import unknown
from fedlin.errors import ArgumentError

Known = Mapping[str, Callable[..., Any]]


def evaluate(text: str, known: Known, what: str, **given: Any) -> Any:
    """The value of `text`; a bare name is called without arguments, and a call may name known functions only.

    `given` fills parameters of the outermost function that the text leaves open, where it has them.

    >>> from fedlin.compressors import top_k
    >>> from fedlin.links import innovation
    >>> evaluate("innovation(top_k(10))", {"innovation": innovation, "top_k": top_k}, "link")
    innovation(top_k(10))
    """
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise _unreadable(text, what) from error
    if not isinstance(node, ast.Name | ast.Call):
        raise _unreadable(text, what)
    return _call(node, known, what, text, given)


def _call(node: ast.expr, known: Known, what: str, text: str, given: Mapping[str, Any]) -> Any:
    function, called = (node.func, node) if isinstance(node, ast.Call) else (node, None)
    if not isinstance(function, ast.Name):
        raise _unreadable(text, what)
    if function.id not in known:
        raise ArgumentError(unknown(what, function.id, known))
    if called is not None and any(keyword.arg is None for keyword in called.keywords):
        raise _unreadable(text, what)
    positional = [_value(one, known, what, text) for one in called.args] if called else []
    named = {str(one.arg): _value(one.value, known, what, text) for one in called.keywords} if called else {}
    signature = inspect.signature(known[function.id])
    open_ones = {name: value for name, value in given.items() if name in signature.parameters and name not in named}
    try:
        signature.bind(*positional, **named, **open_ones)
    except TypeError as error:
        told = ", ".join(name for name in signature.parameters if name not in given)
        raise ArgumentError(f"{text}: {error}; {function.id} takes ({told}).") from error
    return known[function.id](*positional, **named, **open_ones)


def _value(node: ast.expr, known: Known, what: str, text: str) -> Any:
    if isinstance(node, ast.Name | ast.Call):
        return _call(node, known, what, text, {})
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise _unreadable(text, what) from error


def _unreadable(text: str, what: str) -> ArgumentError:
    return ArgumentError(f"{text!r} is not a {what}: write a name, or a name with arguments such as top_k(10).")
