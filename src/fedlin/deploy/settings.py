"""What `federation.toml` says, checked: the same file at the server and at every site."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import numpy as np
from pydantic import Field, model_validator

from fedlin.aggregation import Aggregator, mean
from fedlin.checks import unknown_name
from fedlin.core import Method
from fedlin.data import Recipe
from fedlin.engines.federation import Evaluation, Policy
from fedlin.engines.federation.secure_shares import LEAST, threshold_of
from fedlin.engines.requirements import check_aggregate, check_sum_is_enough, check_uploads
from fedlin.errors import DeployError, FedLinError
from fedlin.experiments import build_method
from fedlin.experiments.check_config import checked
from fedlin.experiments.config import Count, Nonnegative, Positive, RecipeConfig, Section, Seed, TomlTable
from fedlin.experiments.own_code import is_own
from fedlin.plan import Plan

NAME = "federation.toml"
ENCODING = "utf-8-sig"  # editors on Windows begin a file with a byte order mark, which TOML does not know
S = TypeVar("S", bound=Section)
ModelFile = Annotated[
    str, Field(pattern=r"^[^/\\]+\.npy$", description="the name of a .npy file beside this one, without a folder")
]


RunName = Annotated[
    str,
    Field(pattern=r"^[a-z][a-z0-9-]{0,31}$", description="a name of at most 32 small letters, digits and hyphens"),
]


class RunConfig(Section):
    """The table [run]."""

    rounds: Count
    name: RunName | None = None
    after: RunName | None = None
    dim: Annotated[int, Field(ge=1, description="the number of entries of the model")] | None = None
    start: ModelFile | None = None
    seed: Seed = 0
    dtype: Annotated[Literal["float32", "float64"], Field(description='"float32" or "float64"')] | None = None
    stop: Positive | None = None
    secure: Annotated[bool, Field(description="true or false")] = False
    aggregate: Annotated[str, Field(description='what is made of the uploads, such as "trimmed_mean(1)"')] = "mean"

    @model_validator(mode="after")
    def _size(self) -> Self:
        if self.start is not None and self.after is not None:
            raise ValueError("start and after exclude each other: leave one out.")
        if self.after is not None and self.after == self.name:
            raise ValueError("a run cannot start from its own model: give the new run another name.")
        return self


class PolicyConfig(Section):
    """The table [policy]: see `fedlin.Policy`, which has the same names."""

    quorum: Count | None = None
    timeout: Positive = 60.0
    patience: Nonnegative = 3600.0
    forget_after: Count | None = None
    norm_bound: Positive | None = None
    rejections: Count = 3
    late_every: Count = 10
    max_share: Annotated[float, Field(gt=0, le=1, description="a number in (0, 1], the share of one site")] = 0.9
    cohort: Count | None = None


class EvaluationConfig(Section):
    """The table [evaluation]: see `fedlin.Evaluation`, which has the same names."""

    every: Count = 10
    best: Annotated[str, Field(min_length=1, description="the name of a metric")] | None = None
    largest: Annotated[bool, Field(description="true or false")] = True
    patience: Count | None = None


class SiteConfig(Section):
    """One site's line in the table [sites]."""

    tau: Count
    eta: Positive
    weight: Positive | None = None


_TABLES = ("run", "algorithm", "policy", "prepare", "evaluation", "sites")


@dataclass(frozen=True)
class FederationSettings:
    """A federation's run."""

    algorithm: Method
    plan: Plan
    sites: tuple[str, ...]  # sorted, as the plan's entries are
    rounds: int
    name: str | None = None  # of the run; None: the only one of its server
    after: str | None = None  # the run at the server whose model to start from
    dim: int | None = None  # given, or that of the model to start from
    start: str | None = None  # a file beside this one at the server, with the model to start from; None: zeros
    seed: int = 0
    dtype: str | None = None  # None: that of `start`, or double precision
    stop: float | None = None
    secure: bool = False  # whether the server learns sums of uploads alone
    policy: Policy = field(default_factory=Policy.everyone)
    weights: Mapping[str, float] = field(default_factory=dict)  # those that sites have to declare
    prepare: Recipe | None = None  # what is done with the columns of the sites' tables before the rounds
    evaluation: Evaluation | None = None
    aggregate: Aggregator = field(default_factory=mean)  # what the server makes of the uploads


def read_settings(folder: Path) -> FederationSettings:
    """The settings in a folder of the server or of a site."""
    tables = read_tables(folder / NAME, "run fedlin federation init, or copy the file here")
    try:
        return parse_settings(tables)
    except (FedLinError, TypeError) as error:
        raise DeployError(f"{folder / NAME}: {error}") from error


def read_tables(path: Path, remedy: str) -> dict[str, Any]:
    """The tables of a TOML file; `remedy` is what to do where it is missing."""
    try:
        return tomllib.loads(path.read_text(encoding=ENCODING))
    except FileNotFoundError as error:
        raise DeployError(f"{path} is not there: {remedy}.") from error
    except UnicodeDecodeError as error:
        raise DeployError(f"{path} cannot be read: {error}. Save it as UTF-8.") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise DeployError(f"{path} cannot be read: {error}.") from error


def parse_settings(tables: TomlTable) -> FederationSettings:
    """The settings in a file's tables.

    >>> site = {"tau": 4, "eta": 0.1}
    >>> tables = {"run": {"rounds": 9, "dim": 3}, "algorithm": {"name": "fedlin", "uplink": "top_k(2)"}}
    >>> parse_settings({**tables, "sites": {"b": site, "a": site}}).sites
    ('a', 'b')
    """
    for table in tables:
        if table not in _TABLES:
            raise DeployError(unknown_name("table", table, _TABLES))
    run = table_of(tables, "run", RunConfig)
    prepare = Recipe(**table_of(tables, "prepare", RecipeConfig).model_dump()) if "prepare" in tables else None
    if run.dim is None and run.start is None and run.after is None and prepare is None:
        raise DeployError(
            "run: give dim, the number of entries of the model, start, a file with the model to start from, after, the "
            "run whose model to start from, or a table [prepare], from which it follows."
        )
    policy = Policy(**table_of(tables, "policy", PolicyConfig).model_dump())
    sites = tables.get("sites", {})
    if not isinstance(sites, dict) or not sites:
        raise DeployError("[sites] is empty: give every site its tau and eta.")
    numbers = {name: table_of(sites, name, SiteConfig, "sites") for name in sorted(sites)}
    for name in ("quorum", "cohort"):  # the run would find out once all sites are there
        count = getattr(policy, name)
        if count is not None and count > len(numbers):
            raise DeployError(f"policy.{name} = {count} is more than the {len(numbers)} sites: give at most that many.")
    plan = Plan([site.tau for site in numbers.values()], [site.eta for site in numbers.values()])
    algorithm = _algorithm(tables.get("algorithm", {}))
    policy.check(algorithm)
    if run.secure:
        _check_secure(policy, len(numbers))
    weights = {name: site.weight for name, site in numbers.items() if site.weight is not None}
    evaluation = None
    if "evaluation" in tables:
        evaluation = Evaluation(**table_of(tables, "evaluation", EvaluationConfig).model_dump())
    tables_read: dict[str, Any] = {"policy": policy, "weights": weights, "prepare": prepare, "evaluation": evaluation}
    aggregate = check_aggregate(algorithm, build_method.aggregator(run.aggregate), np.ones(1))
    check_uploads(aggregate, policy.needed(len(numbers)))
    check_sum_is_enough(aggregate, run.secure)
    return FederationSettings(
        algorithm, plan, tuple(numbers), **run.model_dump(exclude={"aggregate"}), **tables_read, aggregate=aggregate
    )


def _check_secure(policy: Policy, sites: int) -> None:
    if policy.cohort is not None:
        raise DeployError(
            f"run.secure = true and policy.cohort = {policy.cohort} exclude each other, since a sum over few sites "
            "hides little: leave policy.cohort out."
        )
    least = threshold_of(max(LEAST, sites))
    if policy.needed(sites) < least:
        raise DeployError(
            f"run.secure = true needs rounds with at least {least} sites, and there are {sites} of which a round goes "
            f"on with {policy.needed(sites)}: add sites, or raise policy.quorum."
        )
    if policy.norm_bound is None:
        raise DeployError(
            "run.secure = true needs policy.norm_bound, the largest norm of an upload: the scale of the sums follows "
            "from it."
        )


def table_of(tables: TomlTable, name: str, model: type[S], *parents: str) -> S:
    """A table checked against its model; one that is not there is empty."""
    content = tables.get(name, {})
    place = (*parents, name)
    if not isinstance(content, dict):
        raise DeployError(f"{'.'.join(place)} = {content!r} is not allowed: give a table.")
    return checked(model, content, place)


def _algorithm(table: TomlTable) -> Method:
    name, arguments = table.get("name"), {key: value for key, value in table.items() if key != "name"}
    if not isinstance(name, str):
        raise DeployError(f"algorithm.name = {name!r} is not allowed: give the name of a method as text.")
    if is_own(name):  # whoever sends a job would run code at the sites
        raise DeployError(
            f"algorithm.name = {name!r} is not allowed: the settings of a federation name no code, and its methods are "
            "fedlin's own."
        )
    try:
        return build_method.algorithm(name, arguments, besides=("name",))
    except FedLinError as error:
        raise DeployError(f"[algorithm]: {error}") from error
