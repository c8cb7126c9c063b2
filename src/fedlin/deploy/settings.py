"""What `federation.toml` says, checked: the same file at the server and at every site."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedlin.core import Algorithm
from fedlin.engines.federation import Policy
from fedlin.errors import DeployError, FedLinError
from fedlin.experiments import build_method
from fedlin.plan import Plan

NAME = "federation.toml"
_TABLES = {
    "run": {"rounds", "seed", "dim", "start", "dtype", "stop"},
    "policy": {"quorum", "timeout", "patience", "forget_after"},
    "sites": None,
    "algorithm": None,
}


@dataclass(frozen=True)
class FederationSettings:
    """A federation's run."""

    algorithm: Algorithm[Any, Any]
    plan: Plan
    sites: tuple[str, ...]  # sorted, as the plan's entries are
    rounds: int
    dim: int | None = None  # given, or that of `start`
    start: str | None = None  # a file beside this one at the server, with the model to start from; None: zeros
    seed: int = 0
    dtype: str | None = None  # None: that of `start`, or double precision
    stop: float | None = None
    policy: Policy = field(default_factory=Policy.everyone)


def read_settings(folder: Path) -> FederationSettings:
    """The settings in a folder of the server or of a site."""
    path = folder / NAME
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DeployError(f"{path} is not there: run fedlin federation init, or copy the file here.") from error
    except tomllib.TOMLDecodeError as error:
        raise DeployError(f"{path} cannot be read: {error}.") from error
    try:
        return parse_settings(tables)
    except (FedLinError, TypeError) as error:
        raise DeployError(f"{path}: {error}") from error


def parse_settings(tables: Mapping[str, Any]) -> FederationSettings:
    """The settings in a file's tables.

    >>> site = {"tau": 4, "eta": 0.1}
    >>> tables = {"run": {"rounds": 9, "dim": 3}, "algorithm": {"name": "fedlin", "uplink": "top_k(2)"}}
    >>> parse_settings({**tables, "sites": {"b": site, "a": site}}).sites
    ('a', 'b')
    """
    for table, content in tables.items():
        allowed = _TABLES.get(table, set())
        if table not in _TABLES or not isinstance(content, dict):
            raise DeployError(f"[{table}] is not known: use {', '.join(f'[{name}]' for name in _TABLES)}.")
        unknown = sorted(content.keys() - allowed) if allowed is not None else []
        if unknown:
            raise DeployError(f"{table}.{unknown[0]} is not known: use {', '.join(sorted(allowed or ()))}.")
    for table, key in (("run", "rounds"), ("algorithm", "name")):
        if key not in tables.get(table, {}):
            raise DeployError(f"{table}.{key} is missing: give it.")
    _check_run(tables["run"])
    sites = tables.get("sites", {})
    if not sites:
        raise DeployError("[sites] is empty: give every site its tau and eta.")
    for name, numbers in sites.items():
        if not isinstance(numbers, dict) or set(numbers) != {"tau", "eta"}:
            raise DeployError(f"sites.{name} = {numbers!r} is not allowed: give {{ tau = 10, eta = 0.01 }}.")
    names = tuple(sorted(sites))
    plan = Plan([sites[name]["tau"] for name in names], [sites[name]["eta"] for name in names])
    algorithm, policy = _algorithm(**tables["algorithm"]), Policy(**tables.get("policy", {}))
    policy.check(algorithm)
    return FederationSettings(algorithm, plan, names, **tables["run"], policy=policy)


def _check_run(run: Mapping[str, Any]) -> None:
    start = run.get("start")
    if start is None and "dim" not in run:
        raise DeployError("run.dim is missing: give it, or run.start, a file with the model to start from.")
    if start is not None and (not isinstance(start, str) or Path(start).name != start or not start.endswith(".npy")):
        raise DeployError(f"run.start = {start!r} is not allowed: name a .npy file beside {NAME}, without a folder.")
    if run.get("dtype", "float64") not in ("float32", "float64"):
        raise DeployError(f"run.dtype = {run['dtype']!r} is not allowed: choose float32 or float64.")


def _algorithm(name: Any, **arguments: Any) -> Algorithm[Any, Any]:
    if not isinstance(name, str):
        raise DeployError(f"algorithm.name = {name!r} is not allowed: give the name of a method as text.")
    try:
        return build_method.algorithm(name, arguments, besides=("name",))
    except FedLinError as error:
        raise DeployError(f"[algorithm]: {error}") from error
