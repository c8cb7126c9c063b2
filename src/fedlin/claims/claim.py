"""What a claim is, and how the claims of a package are found."""

import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from fedlin import algorithms
from fedlin.aggregation import Aggregator
from fedlin.checks import did_you_mean
from fedlin.claims.common.method_faults import ALTERATIONS, Alteration, with_fault
from fedlin.claims.common.wrong_means import WRONG_MEANS
from fedlin.claims.common.wrong_methods import EXCLUDED, MethodFactory, wrong_method
from fedlin.core import Method
from fedlin.errors import ArgumentError
from fedlin.report.figure import Figure
from fedlin.report.text_table import TextTable
from fedlin.report.verdict import Notice, Row, Verdict

T = TypeVar("T")
OPEN, EXACT = "What the paper leaves open", "Exact worst cases"
BEYOND = (OPEN, EXACT)  # the sections of what goes beyond the paper, which a quick run leaves out


@dataclass(frozen=True)
class Setting:
    """How much work to spend: random draws a claim, rounds (None: the claim's own), quick or full.

    `stand_in`, where given, is tested in place of the library's FedLin, `fault` is put into whatever is tested, and
    `wrong_mean` names what is put in place of robust means.
    """

    draws: int = 8
    rounds: int | None = None
    quick: bool = False
    stand_in: MethodFactory | None = field(default=None, repr=False)
    fault: Alteration | None = None
    wrong_mean: str | None = None

    def __post_init__(self) -> None:
        if self.draws < 1:
            raise ArgumentError(f"draws must be at least 1, not {self.draws}")
        if self.rounds is not None and self.rounds < 1:
            raise ArgumentError(f"rounds must be at least 1, not {self.rounds}")

    def pick(self, full: T, quick: T) -> T:
        """The second value on a quick run, else the first.

        >>> Setting().pick(1000, 10), Setting(quick=True).pick(1000, 10)
        (1000, 10)
        """
        return quick if self.quick else full

    def fedlin(self, **links: Any) -> Method:
        """The method that claims about FedLin test, with these links.

        >>> Setting().fedlin().name
        'fedlin'
        """
        # Looked up in every call, so that whatever the package exports as FedLin is what gets tested.
        return self.tested((self.stand_in or algorithms.fedlin)(**links))

    def tested(self, method: Method) -> Method:
        """The method that a claim is about, with the fault that the claim is to notice if there is one.

        >>> Setting().tested(algorithms.fedavg()).name
        'fedavg'
        """
        return method if self.fault is None else with_fault(method, self.fault)

    def robust(self, aggregator: Aggregator) -> Aggregator:
        """The robust mean that a claim is about, or what it is to notice in its place.

        >>> from fedlin.aggregation import krum
        >>> Setting().robust(krum(2)).name
        'krum(2)'
        """
        return aggregator if self.wrong_mean is None else WRONG_MEANS[self.wrong_mean](aggregator)

    def wrong(self, name: str) -> "Setting":
        """The same with the wrong method, or the wrong mean, of that name under test."""
        if name in WRONG_MEANS:
            return replace(self, wrong_mean=name)
        if name in ALTERATIONS:
            return replace(self, fault=ALTERATIONS[name])
        return replace(self, stand_in=wrong_method(name))


@dataclass(frozen=True)
class Outcome:
    """What a check measured: `held` of `draws` instances met it, the rows say by how much.

    `skipped` says why nothing was checked, where that is so.
    """

    rows: tuple[Row, ...]
    setting: dict[str, str] = field(default_factory=dict)
    held: int = 1
    draws: int = 1
    figures: tuple[Figure, ...] = ()
    findings: tuple[str, ...] = ()
    skipped: str = ""
    tables: tuple[TextTable, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.held <= self.draws or self.draws < 1:
            raise ArgumentError(f"held must be between 0 and draws: got {self.held} of {self.draws}")
        names = [figure.name for figure in self.figures]
        if len(set(names)) < len(names):
            raise ArgumentError(f"figures of one claim need different names: got {', '.join(names)}")
        for name in names:
            if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
                raise ArgumentError(f"a figure's name becomes a file name: {name!r} has other than A-Z a-z 0-9 _ -")


Check = Callable[[Setting], Outcome]


@dataclass(frozen=True)
class Claim:
    """One statement and the function that checks it."""

    id: str
    title: str
    statement: str
    section: str
    order: int
    should_hold: bool
    check: Check
    wrong: Mapping[str, str] = field(default_factory=dict)  # methods it must notice; why not, where it need not
    by_name: bool = False  # left out of a run of all claims, since it takes long

    def run(self, setting: Setting | None = None) -> Verdict:
        """Check the claim and time it."""
        start = time.perf_counter()
        with np.errstate(all="ignore"):  # a run that diverges is a result like any other
            outcome = self.check(setting or Setting())
        return self._verdict(outcome, time.perf_counter() - start)

    def notices(self, methods: Sequence[str] | None = None) -> tuple[Notice, ...]:
        """What the claim says when wrong methods stand in for the one it is about, on a quick run of a single draw.

        Args:
            methods: The names of the wrong methods, all that the claim lists unless given.

        Returns:
            A notice for each.
        """
        setting = Setting(draws=1, quick=True)
        # Where the statement fails with the right method too, that is no news.
        known = set() if self.should_hold else {row.what for row in self.run(setting).rows if row.ok is False}
        return tuple(self._notice(method, setting, known) for method in (self.wrong if methods is None else methods))

    def _notice(self, method: str, setting: Setting, known: set[str]) -> Notice:
        tried = self.run(setting.wrong(method))
        missed = [row for row in tried.rows if row.ok is False and row.what not in known]
        by, premise = (
            "; ".join(f"{row.what}: {row.measured}" for row in missed if row.premise is kind) for kind in (False, True)
        )
        return Notice(method, by, premise, "" if self.wrong[method] == EXCLUDED else self.wrong[method])

    def attempt(self, setting: Setting | None = None, notices: bool = False) -> Verdict:
        """As `run`, but an exception becomes a verdict that carries its message.

        With `notices` every wrong method the claim lists is tried as well, on a quick run.
        """
        start = time.perf_counter()
        try:
            verdict = self.run(setting)
            if not notices:
                return verdict
            return replace(verdict, notices=self.notices(), seconds=time.perf_counter() - start)
        except Exception as error:
            broken = Outcome(rows=(), held=0)
            return self._verdict(broken, time.perf_counter() - start, f"{type(error).__name__}: {error}")

    def _verdict(self, outcome: Outcome, seconds: float, error: str = "") -> Verdict:
        return Verdict(
            id=self.id,
            title=self.title,
            statement=self.statement,
            section=self.section,
            setting=outcome.setting,
            rows=outcome.rows,
            held=int(outcome.held),  # a count made by NumPy does not go into JSON
            draws=int(outcome.draws),
            should_hold=self.should_hold,
            skipped=outcome.skipped,
            figures=outcome.figures,
            tables=outcome.tables,
            findings=outcome.findings,
            seconds=seconds,
            error=error,
        )


def claim(
    id: str,
    *,
    order: int,
    title: str,
    section: str,
    statement: str,
    should_hold: bool = True,
    wrong: Mapping[str, str] | None = None,
    by_name: bool = False,
) -> Callable[[Check], Claim]:
    """Turn a check into the claim of its module.

    Args:
        id: The claim's name, which is also its module's.
        order: Its place among all claims, as in the paper.
        title: A few words.
        section: The part of the report it stands in.
        statement: What is claimed.
        should_hold: Whether we believe it.
        wrong: The wrong methods that the claim must notice in place of the one it is about, each with EXCLUDED or
            with the reason why the statement lets it pass.
        by_name: Whether only a run that names the claim checks it, since it takes long.

    Returns:
        What turns the check into a claim.

    >>> @claim("one", order=1, title="One", section="Numbers", statement="One is one.")
    ... def check(setting: Setting) -> Outcome:
    ...     return Outcome(rows=(Row("1 - 1", "0", "0", ok=True),))
    >>> check.run().outcome
    'holds'
    """

    def decorate(check: Check) -> Claim:
        return Claim(id, title, statement, section, order, should_hold, check, wrong or {}, by_name)

    return decorate


def all_claims(package: ModuleType | None = None) -> tuple[Claim, ...]:
    """Every claim of the package (this one unless another is given), in the paper's order."""
    package_module = package or importlib.import_module(__package__)
    modules = [
        importlib.import_module(f"{package_module.__name__}.{info.name}")
        for info in pkgutil.iter_modules(package_module.__path__)
    ]
    claims = [claim for module in modules if (claim := _claim_in(module))]
    return tuple(sorted(claims, key=lambda claim: (claim.order, claim.id)))


def _claim_in(module: ModuleType) -> Claim | None:
    """The claim a module defines; one it merely imports belongs elsewhere."""
    claims = [
        value
        for value in vars(module).values()
        if isinstance(value, Claim) and value.check.__module__ == module.__name__
    ]
    if not claims:
        return None
    if len(claims) > 1:
        raise ArgumentError(f"{module.__name__} defines {len(claims)} claims; a claim is a file of its own")
    name = module.__name__.rpartition(".")[2]
    if claims[0].id.replace("-", "_") != name:
        raise ArgumentError(
            f"{module.__name__} defines claim {claims[0].id!r}; the id must be the file's name, with - for _"
        )
    return claims[0]


def find(id: str, package: ModuleType | None = None) -> Claim:
    """The claim of that id; where there is none, the error suggests the nearest."""
    claims = {claim.id: claim for claim in all_claims(package)}
    if id in claims:
        return claims[id]
    meant = did_you_mean(id, claims) or "; `fedlin reproduce --list` names them all"
    raise ArgumentError(f"no claim is called {id!r}{meant}")


def select(ids: Sequence[str], package: ModuleType | None = None) -> tuple[Claim, ...]:
    """The claims of those ids in the paper's order, or all where none is named."""
    wanted = {find(id, package).id for id in ids}
    return tuple(claim for claim in all_claims(package) if not ids or claim.id in wanted)
