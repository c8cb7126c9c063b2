"""Functions of the user's own that a file names as "model.py:function": loaded, called, and known by their content."""

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from fedlin.checks import first_line, unknown_name
from fedlin.errors import ArgumentError, FedLinError

T = TypeVar("T")
PREFIX = "fedlin_own_"  # of the names of modules


def is_own(name: str) -> bool:
    """Whether a name is that of a function in a file.

    >>> is_own("model.py:problem"), is_own("fedavg")
    (True, False)
    """
    return ".py:" in name


def place_of(text: str) -> tuple[str, str]:
    """The file and the function of "file.py:function"."""
    path, _, name = text.rpartition(":")
    if not path.endswith(".py") or not name.isidentifier():
        raise ArgumentError(f'{text!r} is not allowed: write a file and a function in it, such as "model.py:problem".')
    return path, name


def own_function(text: str) -> Callable[..., Any]:
    """The function that "file.py:function" names."""
    path, name = place_of(text)
    module = _module(str(Path(path).resolve()))
    functions = {key: value for key, value in vars(module).items() if callable(value) and not key.startswith("_")}
    if name not in functions:
        raise ArgumentError(f"{path}: {unknown_name('function', name, functions)}")
    function: Callable[..., Any] = functions[name]
    return function


_BESIDE: dict[str, set[Path]] = {}  # the files that lie beside a file and that it has imported


@contextmanager
def _importing(file: Path) -> Iterator[None]:
    """What lies beside the file can be imported, by it alone: another study may have files of the same names."""
    before = set(sys.modules)
    sys.path.insert(0, str(file.parent))
    try:
        yield
    finally:
        sys.path.remove(str(file.parent))
        for name in set(sys.modules) - before:
            source = getattr(sys.modules[name], "__file__", None)
            if source and Path(source).resolve().parent == file.parent:
                _BESIDE.setdefault(str(file), set()).add(Path(source).resolve())
                if not name.startswith(PREFIX):
                    del sys.modules[name]


@cache
def _module(path: str) -> ModuleType:
    """A file's module, run once."""
    file = Path(path)
    if not file.is_file():
        raise ArgumentError(f"{path} is no file: give the path of a Python file.")
    name = f"{PREFIX}{hashlib.sha256(path.encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # for pickle and dataclasses
    try:
        with _importing(file):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ArgumentError(f"{path} cannot be run: {type(error).__name__}: {first_line(error)}.") from error
    return module


def call_own(text: str, arguments: Mapping[str, object], kind: type[T], what: str) -> T:
    """What the function makes of the arguments, which has to be a `kind`."""
    function = own_function(text)
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        parameters = ", ".join(inspect.signature(function).parameters)
        raise ArgumentError(f"{text}: {error}; it takes ({parameters}).") from error
    try:
        with _importing(Path(place_of(text)[0]).resolve()):
            result = function(**arguments)
    except FedLinError:
        raise
    except Exception as error:
        raise ArgumentError(f"{text} failed: {type(error).__name__}: {first_line(error)}.") from error
    if not isinstance(result, kind):
        raise ArgumentError(f"{text} returned {type(result).__name__}: let it return {what}.")
    return result


def code_fingerprints(names: Iterable[str]) -> dict[str, str]:
    """The content of every file that these functions are of, and of what lies beside them and was imported by them."""
    files = {Path(place_of(name)[0]).resolve() for name in names}
    beside = set().union(*(_BESIDE.get(str(file), set()) for file in files))
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(files | beside)}
