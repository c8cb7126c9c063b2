"""What `federation.toml` says, checked: the same file at the server and at every site."""

import ast
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlin import algorithms, compressors, links
from fedlin.core import Algorithm
from fedlin.errors import DeployError, FedLinError
from fedlin.plan import Plan

NAME = "federation.toml"
_TABLES = {
    "run": {"rounds", "seed", "dim", "dtype", "stop"},
    "policy": {"quorum", "timeout", "patience"},
    "sites": None,
    "algorithm": None,
}
_MESSAGES = {
    **{name: getattr(compressors, name) for name in ("identity", "quantize", "rand_k", "sign", "top_k")},
    **{name: getattr(links, name) for name in ("error_feedback", "innovation", "plain", "shifted")},
}


@dataclass(frozen=True)
class Settings:
    """A federation's run."""

    algorithm: Algorithm[Any, Any]
    plan: Plan
    sites: tuple[str, ...]  # sorted, as the plan's entries are
    rounds: int
    dim: int
    seed: int = 0
    dtype: str = "float64"
    stop: float | None = None
    quorum: int | None = None
    timeout: float = 60.0
    patience: float = 3600.0


def read_settings(folder: Path) -> Settings:
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


def parse_settings(tables: Mapping[str, Any]) -> Settings:
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
    for table, key in (("run", "rounds"), ("run", "dim"), ("algorithm", "name")):
        if key not in tables.get(table, {}):
            raise DeployError(f"{table}.{key} is missing: give it.")
    sites = tables.get("sites", {})
    if not sites:
        raise DeployError("[sites] is empty: give every site its tau and eta.")
    for name, numbers in sites.items():
        if not isinstance(numbers, dict) or set(numbers) != {"tau", "eta"}:
            raise DeployError(f"sites.{name} = {numbers!r} is not allowed: give {{ tau = 10, eta = 0.01 }}.")
    names = tuple(sorted(sites))
    plan = Plan([sites[name]["tau"] for name in names], [sites[name]["eta"] for name in names])
    return Settings(build_algorithm(tables["algorithm"]), plan, names, **tables["run"], **tables.get("policy", {}))


def build_algorithm(table: Mapping[str, Any]) -> Algorithm[Any, Any]:
    """The method of a table; links and compressors are written as text.

    >>> build_algorithm({"name": "fedlin", "uplink": "innovation(top_k(10))"}).name
    'fedlin(uplink=innovation(top_k(10)))'
    """
    name = table["name"]
    if name not in algorithms.__all__:
        raise DeployError(f"algorithm.name = {name!r} is not known: use one of {', '.join(algorithms.__all__)}.")
    arguments = {key: value for key, value in table.items() if key != "name"}
    for key in [key for key in arguments if key.endswith(("link", "compressor"))]:
        arguments[key] = _message(arguments[key])
    made: Algorithm[Any, Any] = getattr(algorithms, name)(**arguments)
    return made


def _message(text: str) -> Any:
    """A link or compressor from text such as innovation(top_k(10)): known names, called with numbers."""
    try:
        return _value(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError) as error:
        raise DeployError(
            f"{text!r} is not allowed: write a compressor such as top_k(10), or a link such as "
            f"innovation(top_k(10)); known are {', '.join(_MESSAGES)}."
        ) from error


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _MESSAGES:
        named = {str(part.arg): _value(part.value) for part in node.keywords}
        return _MESSAGES[node.func.id](*map(_value, node.args), **named)
    return ast.literal_eval(node)
