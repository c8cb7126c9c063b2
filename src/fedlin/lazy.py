"""Modules of a package that are imported when they are first asked for, since what they need is slow to import."""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType


def lazy_modules(package: str, *names: str) -> Callable[[str], ModuleType]:
    """A `__getattr__` for a package: `package.name` imports the module and returns it.

    >>> lazy_modules("fedlin", "trackers")("trackers").__name__
    'fedlin.trackers'
    """

    def get(name: str) -> ModuleType:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(f"{package}.{name}")

    return get
