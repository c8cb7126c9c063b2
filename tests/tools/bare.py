"""A Python that can import fedlin's own dependencies and nothing else: `python tests/tools/bare.py FILE`.

What pyproject.toml lists without an extra, and all that this needs in turn, is let through, so a new extra is shut out
without being named here.
"""

import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import distribution, packages_distributions
from types import ModuleType

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lowest import PROJECT


def closure(requirements: Sequence[str]) -> set[str]:
    """The distributions that installing these brings."""
    names: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        current = waiting.pop()
        own = {requirement for extra in current.extras or {""} for requirement in _needs(current.name, extra)}
        waiting += [need for need in own if canonicalize_name(need.name) not in names]
        names.add(canonicalize_name(current.name))
    return names


def _needs(name: str, extra: str) -> list[Requirement]:
    needs = [Requirement(text) for text in distribution(name).requires or []]
    return [need for need in needs if need.marker is None or need.marker.evaluate({"extra": extra})]


def modules(distributions: set[str]) -> set[str]:
    """The names these are imported by."""
    owners = packages_distributions()
    return {name for name, own in owners.items() if distributions & {canonicalize_name(owner) for owner in own}}


def hide_the_rest() -> None:
    """Of what is installed leave fedlin, its dependencies, and what runs already, such as a measure of coverage."""
    running = {name.partition(".")[0] for name in sys.modules}
    hidden = set(packages_distributions()) - modules(closure(PROJECT["dependencies"])) - {"fedlin"} - running

    class Without(PathFinder):
        @classmethod
        def find_spec(
            cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
        ) -> ModuleSpec | None:
            return None if fullname.partition(".")[0] in hidden else super().find_spec(fullname, path, target)

    sys.meta_path = [Without if finder is PathFinder else finder for finder in sys.meta_path]


if __name__ == "__main__":
    hide_the_rest()
    runpy.run_path(sys.argv[1], run_name="__main__")
