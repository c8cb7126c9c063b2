"""What checking a claim came to: the statement, the numbers, and whether it held."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from fedlin.report.figure import Figure
from fedlin.report.text_table import TextTable


@dataclass(frozen=True)
class Row:
    """One line of measured against expected: `ok` is None where the number only informs.

    A `premise` is what must be so for the check to mean anything, such as that the method that ran is the one the
    statement is about. It is no part of the statement.
    """

    what: str
    measured: str
    expected: str = ""
    ok: bool | None = None
    premise: bool = False

    def __post_init__(self) -> None:
        # A NumPy False is not the False that `holds` looks for.
        object.__setattr__(self, "ok", None if self.ok is None else bool(self.ok))


@dataclass(frozen=True)
class Notice:
    """What a claim says when a wrong method stands in for the one it is about.

    `by` is the check of the statement that the method fails, `premise` the premise that it breaks, each with its
    number; empty where there is none. `reason` says why the statement lets the method pass, where it does.
    """

    method: str
    by: str
    premise: str
    reason: str

    @property
    def noticed(self) -> bool:
        """Whether the claim fails with this method."""
        return bool(self.by or self.premise)

    @property
    def explained(self) -> bool:
        """Whether the statement excludes the method, or it is said why not."""
        return bool(self.by or self.reason)


@dataclass(frozen=True)
class Verdict:
    """The outcome of one claim; `held` of `draws` random instances satisfied every check.

    >>> verdict = Verdict("demo", "A demo", "One is one.", {}, (Row("1 - 1", "0", "0", ok=True),))
    >>> verdict.outcome, verdict.failed
    ('holds', False)
    """

    id: str
    title: str
    statement: str
    setting: dict[str, str]
    rows: tuple[Row, ...]
    held: int = 1
    draws: int = 1
    should_hold: bool = True
    figures: tuple[Figure, ...] = ()
    findings: tuple[str, ...] = ()
    seconds: float = 0.0
    section: str = ""
    error: str = ""
    skipped: str = ""  # why nothing was checked
    notices: tuple[Notice, ...] = ()  # empty where no wrong methods were tried
    tables: tuple[TextTable, ...] = ()

    @property
    def holds(self) -> bool:
        """Every check that decides was met, on every draw."""
        return (
            not (self.error or self.skipped)
            and self.held == self.draws
            and all(row.ok is not False for row in self.rows)
        )

    @property
    def failed(self) -> bool:
        """The check broke, a premise does not hold, a claim does not that should, or a wrong method slips through."""
        if self.skipped:
            return False
        broken = bool(self.error) or any(row.premise and row.ok is False for row in self.rows)
        return broken or (self.should_hold and not self.holds) or not all(notice.explained for notice in self.notices)

    @property
    def outcome(self) -> str:
        """holds, holds on n of k draws, does not hold, error, or skipped."""
        if self.error or self.skipped:
            return "error" if self.error else "skipped"
        if self.holds:
            return "holds"
        if 0 < self.held < self.draws:
            return f"holds on {self.held} of {self.draws} draws"
        return "does not hold"

    @property
    def judgement(self) -> str:
        """The outcome, and whether a claim that fails was expected to."""
        return self.outcome if self.failed or self.holds or self.skipped else f"{self.outcome}, as expected"

    @property
    def grade(self) -> Literal["good", "noted", "bad"]:
        """good where it holds, bad where it fails, noted where it was expected not to hold."""
        if self.failed:
            return "bad"
        return "good" if self.holds else "noted"

    @property
    def key(self) -> str:
        """The one line to show: the error, else a missed check, else a met one, else any number."""
        if self.error or self.skipped or not self.rows:
            return self.error or self.skipped
        row = min(self.rows, key=lambda row: (False, True, None).index(row.ok))
        return f"{row.what}: {row.measured}" + (f" (expected {row.expected})" if row.expected else "")

    def as_dict(self) -> dict[str, Any]:
        """Everything but the pictures, ready for JSON; a picture is present by its name alone."""
        data = {
            name: value for name, value in vars(self).items() if name not in ("rows", "figures", "tables", "notices")
        }
        return data | {
            "notices": [asdict(notice) for notice in self.notices],
            "rows": [asdict(row) for row in self.rows],
            "figures": [figure.name for figure in self.figures],
            "tables": [asdict(table) for table in self.tables],
            "holds": self.holds,
            "outcome": self.outcome,
            "judgement": self.judgement,
        }
