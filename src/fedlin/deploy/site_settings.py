"""What `site.toml` says: a site's own limits, which its owner sets and which never travel."""

from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import Field

from fedlin.checks import unknown_name
from fedlin.deploy.settings import read_tables, table_of
from fedlin.engines.federation.limits import Limits
from fedlin.errors import DeployError, FedLinError
from fedlin.experiments.config import Count, Positive, Section

SITE = "site.toml"
_found: set[Path] = set()  # what was there while this process ran
Names = Annotated[list[str], Field(description='a list of names, such as ["fedlin"]')]


class LimitsConfig(Section):
    """The table [limits]: see `fedlin.Limits`, which has the same names."""

    tau: Count | None = 10_000
    eta: Positive | None = None
    rounds: Count | None = 100_000
    requests: Count | None = 1000
    methods: Names | None = None
    runs: Names | None = None
    epsilon: Positive | None = None
    secure: Annotated[bool, Field(description="true or false")] = False
    delta: Annotated[float, Field(gt=0, lt=1, description="a number between 0 and 1")] = 1e-6


def read_limits(kit: Path) -> Limits:
    """The limits in a site's folder as they are now; those of fedlin where it never had a file."""
    path = kit / SITE
    try:
        stat = path.stat()
    except FileNotFoundError as error:
        if path in _found:  # a file that is moved away must not lift what its owner has set
            raise DeployError(f"{path} is gone, and with it this site's limits: put it back.") from error
        return _read_limits(path, None)
    _found.add(path)
    return _read_limits(path, (stat.st_mtime_ns, stat.st_size, stat.st_ino))


@lru_cache(maxsize=8)  # a site asks with every message
def _read_limits(path: Path, version: tuple[int, ...] | None) -> Limits:
    tables = {} if version is None else read_tables(path, "")
    try:
        for table in tables:
            if table != "limits":
                raise DeployError(unknown_name("table", table, ["limits"]))
        return Limits(**table_of(tables, "limits", LimitsConfig).model_dump())
    except FedLinError as error:
        raise DeployError(f"{path}: {error}") from error
