"""Prints the lowest versions that pyproject.toml allows, as constraints: `python tests/tools/lowest.py`."""

import re
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BOUND = re.compile(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)")


def lowest(requirements: list[str]) -> dict[str, str]:
    """Each package with the version at its lower bound."""
    return dict(bound.groups() for bound in map(BOUND.match, requirements) if bound)  # type: ignore[misc]


if __name__ == "__main__":
    for package, version in lowest(PROJECT["dependencies"]).items():
        print(f"{package}=={version}")
