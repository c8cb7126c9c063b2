"""Methods side by side: what each costs to reach a target, who is cheapest, and the page that shows it."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlin.checks import one_of, positive, real, shape_of, shown
from fedlin.columns import MEASURED, column, write
from fedlin.core import Array
from fedlin.errors import ArgumentError
from fedlin.result import Result, first

if TYPE_CHECKING:
    import pandas as pd

    from fedlin.report.comparison_page import Chapter
    from fedlin.report.figure import Curve, Figure
    from fedlin.report.text_table import TextTable

UNITS = ("rounds", "bytes", "gradients", "seconds")
MEASURES = tuple(quantity.name for quantity in MEASURED)
POINTS = 400  # of a curve in a picture; the results have them all


@dataclass(frozen=True)
class Cost:
    """The median over seeds of what one method spent until its measure came to `target`; infinite where it did not.

    `best` is the smallest measure, or the largest metric, the median over seeds.
    """

    method: str
    target: float
    spent: dict[str, float]
    best: float
    reached: int
    seeds: int

    @property
    def known(self) -> bool:
        """Whether more than half of the seeds reached the target."""
        return 2 * self.reached > self.seeds

    def as_dict(self) -> dict[str, Any]:
        """One flat row."""
        return {
            "method": self.method,
            "target": self.target,
            **{unit: value if np.isfinite(value) else None for unit, value in self.spent.items()},
            "best": self.best,
            "reached": self.reached,
            "seeds": self.seeds,
        }


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods in one setting, each with a run for every seed; what `compare` returns.

    Attributes:
        results: The runs of each method, by its name.
        targets: The values of the measure to reach, the easiest first.
        measure: The column that is compared.
        title: What stands above the table and on the page.
        costs: What each target cost each method.

    >>> import fedlin
    >>> problem = fedlin.problems.least_squares(clients=2, dim=2, samples=5)
    >>> result = fedlin.simulate(fedlin.gradient_descent(), problem, fedlin.Plan(1, 0.1), 40)
    >>> fedlin.compare({"gradient descent": result}, targets=[1.0, 1e-3])
    <Comparison of gradient descent: gap at most 1, 0.001>
    """

    results: dict[str, tuple[Result, ...]]
    targets: tuple[float, ...]
    measure: str
    title: str
    costs: tuple[Cost, ...] = field(init=False)

    def __post_init__(self) -> None:
        costs = (
            _cost(method, runs, self.measure, target, self.units)
            for target in self.targets
            for method, runs in self.results.items()
        )
        object.__setattr__(self, "costs", tuple(costs))

    @property
    def _sign(self) -> int:
        """1 where less is better, -1 where more is."""
        return 1 if column(self.measure).stop == "at most" else -1

    @property
    def units(self) -> tuple[str, ...]:
        """What is counted: bits too where every run has them."""
        counted = all("bits" in run.columns for runs in self.results.values() for run in runs)
        return (*UNITS, "bits") if counted else UNITS

    @property
    def findings(self) -> tuple[str, ...]:
        """For every target a sentence that says which method needs least of what."""
        return tuple(self._finding(target) for target in self.targets)

    def _finding(self, target: float) -> str:
        costs = [cost for cost in self.costs if cost.target == target]
        rivals = [cost for cost in costs if cost.known]
        if not rivals:
            closest = min(costs, key=lambda cost: self._sign * cost.best)
            best = write(self.measure, closest.best)
            return f"No method reaches {self.measure} {target:g}; {closest.method} comes closest, {best}."
        parts = []
        for unit in self.units:
            least = min(cost.spent[unit] for cost in rivals)
            names = " and ".join(cost.method for cost in rivals if cost.spent[unit] == least)
            parts.append(f"fewest {column(unit).label}: {names} ({write(unit, least)})")
        sentence = "; ".join(parts)
        count = f"{len(rivals)} of {len(costs)} methods reach {self.measure} {target:g}"
        return f"{count}. {sentence[0].upper()}{sentence[1:]}."

    def to_dataframe(self) -> "pd.DataFrame":
        """One row for each target and method.

        Returns:
            The columns `method`, `target`, `rounds`, `bytes`, `gradients`, `seconds` and, where the runs have them,
            `bits` (None where the target was not reached by more than half of the seeds), `best` (the smallest measure,
            or the largest metric), `reached` and `seeds`.
        """
        import pandas as pd

        return pd.DataFrame([cost.as_dict() for cost in self.costs])

    def to_csv(self) -> str:
        """The same rows as CSV text."""
        return costs_csv([self])

    def write(self, folder: str | PathLike[str], *, pictures: bool = True) -> Path:
        """Write the page that `fedlin run` writes: the costs, the findings and a curve for every method.

        Args:
            folder: Where the page goes. A report that is there already is replaced, anything else is left alone.
            pictures: Whether the figures are written as PNG and SVG too.

        Returns:
            The path of the page, which opens in a browser without a network.
        """
        from fedlin.report.comparison_page import write_comparison

        files = {"costs.csv": self.to_csv()}
        chapters = [self.chapter("comparison")]
        footer = "Made by fedlin.compare."
        return write_comparison(chapters, Path(folder), title=self.title, footer=footer, files=files, pictures=pictures)

    def chapter(
        self,
        name: str,
        setting: Mapping[str, str] | None = None,
        tables: Sequence["TextTable"] = (),
        images: Mapping[str, bytes] | None = None,
        figures: Sequence["Figure"] = (),
    ) -> "Chapter":
        """The comparison as a chapter of a page: costs and curves, then the rest; `images` are PNG by caption.

        Args:
            name: The chapter's anchor on the page.
            setting: What was held fixed, by name.
            tables: More tables, after the costs.
            images: PNG files by caption.
            figures: More figures, after the curves.

        Returns:
            The chapter, for a page of `fedlin.report`.
        """
        from fedlin.report.comparison_page import Chapter

        return Chapter(
            name,
            self.title,
            dict(setting or {}),
            (self.table(), *tables),
            self.findings,
            (self.figure(), *figures),
            dict(images or {}),
        )

    def table(self) -> "TextTable":
        """A row for every target and method, the fewest rounds first."""
        from fedlin.report.text_table import TextTable

        sign = self._sign
        ordered = sorted(self.costs, key=lambda cost: (-sign * cost.target, cost.spent["rounds"], sign * cost.best))
        several = any(cost.seeds > 1 for cost in ordered)
        goal = f"{self.measure} {column(self.measure).stop}"
        heads = ["method", goal, *(column(unit).label for unit in self.units), f"best {self.measure}"]
        rows = [
            [
                cost.method,
                f"{cost.target:g}",
                *(write(unit, cost.spent[unit]) for unit in self.units),
                write(self.measure, cost.best),
                *([f"{cost.reached} of {cost.seeds}"] if several else []),
            ]
            for cost in ordered
        ]
        heads += ["seeds that did"] if several else []
        return TextTable("Cost to reach each target", tuple(heads), tuple(map(tuple, rows)))

    def figure(self) -> "Figure":
        """The measure against what it costs, one panel for each unit."""
        from fedlin.report.figure import Figure, Panel

        panels = tuple(
            Panel(
                f"In {column(unit).label}",
                column(unit).label,
                column(self.measure).label,
                tuple(method_curve(method, runs, self.measure, unit) for method, runs in self.results.items()),
                yscale="log" if column(self.measure).positive else "linear",
            )
            for unit in self.units
        )
        several = any(len(runs) > 1 for runs in self.results.values())
        caption = "Medians over seeds; the band is their range." if several else ""
        return Figure("curves", f"{column(self.measure).label} against what it costs", panels, caption)

    def __str__(self) -> str:
        table = self.table()
        widths = [max(map(len, column)) for column in zip(table.heads, *table.rows, strict=True)]
        lines = [
            "  ".join(text.rjust(width) if place else text.ljust(width)
                      for place, (text, width) in enumerate(zip(row, widths, strict=True)))
            for row in (table.heads, *table.rows)
        ]  # fmt: skip
        return "\n".join([self.title, *lines, *self.findings])

    def __repr__(self) -> str:
        targets = ", ".join(f"{target:g}" for target in self.targets)
        return f"<Comparison of {', '.join(self.results)}: {self.measure} {column(self.measure).stop} {targets}>"


def compare(
    results: Mapping[str, Result | Sequence[Result]],
    targets: Sequence[float] | float = (1e-6,),
    *,
    measure: str = "gap",
    title: str = "Comparison",
) -> Comparison:
    """Set methods side by side: what each costs to reach each target, and which is cheapest.

    Args:
        results: For each method, by the name to show, its `Result`, or a list with one `Result` for each seed. Results
            to which `BitCounts.on` has added bits are compared by these too.
        targets: The values of the measure whose cost is compared.
        measure: What is compared: "gap", "distance" (squared), "grad_norm", "loss", or a metric that all results have,
            whose targets are reached from below.
        title: The heading of the table and the page.

    Returns:
        A `Comparison`: `print` shows it, `to_dataframe()` gives its numbers, `findings` says in words who needs least
        of what, and `write(folder)` writes the page that `fedlin run` writes.

    >>> import fedlin
    >>> problem = fedlin.problems.least_squares(clients=4, dim=5, samples=20)
    >>> plan = fedlin.theory.strongly_convex(problem, tau=3)
    >>> methods = {"FedLin": fedlin.fedlin(), "FedAvg": fedlin.fedavg()}
    >>> results = {name: fedlin.simulate(method, problem, plan, 300) for name, method in methods.items()}
    >>> fedlin.compare(results, targets=[1e-1, 1e-8]).to_dataframe()["reached"].tolist()
    [1, 1, 1, 0]
    """
    if not isinstance(results, Mapping) or not results:
        raise ArgumentError(
            f'results = {shown(results)} is not allowed: give {{"FedLin": result, ...}} with one or more.'
        )
    runs = {str(method): _runs(method, own_results) for method, own_results in results.items()}
    every = [run for method_runs in runs.values() for run in method_runs]
    metrics = sorted(set.intersection(*({name for name in run.columns if column(name).stop} for run in every)))
    one_of("measure", measure, tuple(dict.fromkeys([*MEASURES, *metrics])))
    for run in every:
        getattr(run, measure)  # raises where it is not known, and says what to use instead
    goals = list(targets) if isinstance(targets, Sequence | np.ndarray) and shape_of("targets", targets) else [targets]
    if not goals:
        raise ArgumentError("targets is empty: give one or more numbers above 0.")
    limit = positive if column(measure).positive else _finite
    ordered = sorted({limit("targets", goal) for goal in goals}, reverse=column(measure).stop == "at most")
    return Comparison(runs, tuple(ordered), measure, title)


def _finite(name: str, value: object) -> float:
    return real(name, value, lambda number: True, "finite numbers")


def _runs(method: str, results: Result | Sequence[Result]) -> tuple[Result, ...]:
    listed = (results,) if isinstance(results, Result) else results
    if not isinstance(listed, Sequence) or not len(listed) or not all(isinstance(run, Result) for run in listed):
        raise ArgumentError(
            f"results[{method!r}] = {shown(results)} is not allowed: give a Result, or a list with one for each seed."
        )
    return tuple(listed)


def _cost(method: str, results: Sequence[Result], measure: str, target: float, units: Sequence[str]) -> Cost:
    curves = [getattr(result, measure) for result in results]
    places = [first(curve, target, measure) for curve in curves]
    spent = {
        unit: float(np.median([_spent(result, unit, place) for result, place in zip(results, places, strict=True)]))
        for unit in units
    }
    extreme = np.nanmin if column(measure).stop == "at most" else np.nanmax
    best = float(np.median([extreme(curve) for curve in curves]))
    return Cost(method, target, spent, best, sum(place is not None for place in places), len(results))


def _spent(result: Result, unit: str, place: int | None) -> float:
    if place is None:
        return float("inf")
    return float(place if unit == "rounds" else getattr(result, unit)[place])


def method_curve(method: str, runs: Sequence[Result], measure: str, unit: str) -> "Curve":
    """A measure against what it costs: the median over seeds, and their range."""
    from fedlin.report.figure import Curve

    longest = max(run.rounds for run in runs) + 1
    # A picture needs the rounds that every run has measured.
    looked = [np.flatnonzero(~np.isnan(getattr(run, measure))) for run in runs]
    rests = [range(run.rounds + 1, longest) for run in runs]
    measured = set.intersection(*({*rows.tolist(), *rest} for rows, rest in zip(looked, rests, strict=True)))
    rounds = np.array(sorted(measured))
    thinned = rounds[np.unique(np.linspace(0, len(rounds) - 1, POINTS).astype(int))]
    y = np.array([_padded(getattr(run, measure), longest, run.status == "diverged") for run in runs])[:, thinned]
    if unit == "rounds":
        x = thinned.astype(np.float64)
    else:
        x = np.median([_padded(getattr(run, unit), longest, False) for run in runs], axis=0)[thinned]
    band = (y.min(axis=0), y.max(axis=0)) if len(runs) > 1 else (None, None)
    return Curve(method, x, np.median(y, axis=0), *band)


def _padded(values: Array, length: int, lost: bool) -> Array:
    """A curve as long as the longest: a run that arrived stays where it is, one that diverged is gone."""
    rest = np.full(length - len(values), np.inf if lost else values[-1])
    return np.concatenate([np.asarray(values, np.float64), rest])


def costs_csv(comparisons: Sequence[Comparison]) -> str:
    """The costs of all settings as CSV text."""
    text = io.StringIO()
    rows = [{"setting": comparison.title, **cost.as_dict()} for comparison in comparisons for cost in comparison.costs]
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
