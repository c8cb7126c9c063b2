"""The runs an experiment consists of: every combination of its grids, each checked as a file of its own."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from fedlin.checks import unknown_name
from fedlin.errors import ArgumentError
from fedlin.experiments import config
from fedlin.experiments.check_config import checked
from fedlin.experiments.config import TomlTable

Grid = dict[str, Any]
Place = tuple[str, ...]
KEPT = ("each", "keep", "drop", "words", "missing")  # lists that are values of a single run
SINGLE = ("kind", "name", "python")  # what decides which other keys there are
STEP_SIZES = {"eta", "eta_bar"}


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """One run. `grid` holds the values that came from lists, by their place in the file."""

    number: int
    problem: config.OracleConfig
    plan: config.PlanConfig
    method: str
    arguments: Grid
    label: str
    participation: float
    seed: int
    grid: Grid = field(default_factory=dict)
    aggregate: str = "mean"  # what is made of the uploads

    @property
    def name(self) -> str:
        """A file name no other run has."""
        return f"{self.number:04d}"

    @property
    def setting(self) -> Grid:
        """What every method meets alike: the grid values of problem, local steps and participation."""
        return {key: value for key, value in self.grid.items() if not _of_method(key)}

    @property
    def problem_key(self) -> str:
        """Equal for runs on one problem."""
        return self.problem.model_dump_json()

    @property
    def case(self) -> str:
        """Equal for runs that are compared with each other: problem, participation and, where it is a grid, τ."""
        return f"{self.problem_key} {self.participation:g} {self.grid.get('plan.tau', '')}"

    @property
    def cell(self) -> tuple[str, str]:
        """Equal for runs that differ in their seed only."""
        return self.case, self.label

    @property
    def title(self) -> str:
        """The method and the setting it meets."""
        return ", ".join([self.label, *(f"{key} = {value}" for key, value in self.setting.items())])

    def __str__(self) -> str:
        return f"{self.title}, seed = {self.seed}"


def _of_method(key: str) -> bool:
    return key.startswith("algorithm.") or key.removeprefix("plan.") in STEP_SIZES


def planned_runs(experiment: config.ExperimentConfig) -> list[PlannedRun]:
    """All runs in the order they are played: by setting, then by method, then by seed."""
    runs: list[PlannedRun] = []
    for problem, problem_grid in _problems(experiment.problem):
        for share, share_grid in _shares(experiment.participation):
            for variant in _variants(experiment):
                grid = {**problem_grid, **share_grid, **variant.grid}
                runs += [
                    PlannedRun(
                        len(runs) + offset,
                        problem,
                        variant.plan,
                        variant.method,
                        variant.arguments,
                        variant.label,
                        share,
                        seed,
                        grid,
                        variant.aggregate,
                    )
                    for offset, seed in enumerate(experiment.seeds)
                ]
    _refuse_namesakes(runs)
    return runs


def _problems(raw: TomlTable) -> Iterator[tuple[config.OracleConfig, Grid]]:
    for cell, grid in cells(raw, ("problem",)):
        kind = cell.get("kind", "python" if "python" in cell else None)
        if kind is None:
            raise ArgumentError(f"problem.kind is missing: give one of {', '.join(config.PROBLEMS)}.")
        if not isinstance(kind, str) or kind not in config.PROBLEMS:
            raise ArgumentError(f"problem.kind: {unknown_name('problem', str(kind), config.PROBLEMS)}")
        yield checked(config.PROBLEMS[kind], cell, ("problem",)), grid


def _shares(share: object) -> Iterator[tuple[float, Grid]]:
    for cell, grid in cells({"participation": share}, ()):
        yield checked(config.ParticipationConfig, cell).participation, grid


@dataclass(frozen=True)
class _Variant:
    plan: config.PlanConfig
    method: str
    arguments: Grid
    label: str
    grid: Grid
    aggregate: str


def _variants(experiment: config.ExperimentConfig) -> Iterator[_Variant]:
    for position, raw in enumerate(experiment.algorithm):
        table = (f"algorithm[{position}]",)
        settings = {key: value for key, value in raw.items() if key in config.AlgorithmConfig.model_fields}
        head = checked(config.AlgorithmConfig, settings, table)
        # What is made of the uploads may be a list and is part of the label, as arguments are.
        arguments = {key: value for key, value in raw.items() if key not in settings or key == "aggregate"}
        for plan, plan_grid in _plans(experiment.plan, head.plan):
            checked_plan = checked(config.PlanConfig, plan, (*table, "plan") if head.plan else ("plan",))
            for cell, cell_grid in cells(arguments, ("algorithm",)):
                grid = {**plan_grid, **cell_grid}
                label = _label(head, cell, {key: value for key, value in grid.items() if _of_method(key)})
                aggregate = cell.pop("aggregate", "mean")
                yield _Variant(checked_plan, head.method, cell, label, grid, aggregate)


def _plans(shared: TomlTable, own: TomlTable) -> Iterator[tuple[Grid, Grid]]:
    """An algorithm's plan in front of the plan of all; one way to give a step size puts the other away."""
    hidden = {*own, *(STEP_SIZES if own.keys() & STEP_SIZES else ())}
    visible = {key: value for key, value in shared.items() if key not in hidden}
    for cell, grid in cells(visible, ("plan",)):
        for own_cell, own_grid in cells(own, ("algorithm", "plan")):
            yield {**cell, **own_cell}, {**grid, **own_grid}


def _label(head: config.AlgorithmConfig, arguments: TomlTable, grid: Grid) -> str:
    """The label, or the method with its arguments; then what came from lists and is not in it yet."""
    listed = ", ".join(f"{key}={value}" for key, value in arguments.items())
    name = head.name or head.python.rpartition(":")[2]
    first = head.label or (f"{name}({listed})" if listed else name)
    rest = (key for key in grid if head.label or key.removeprefix("algorithm.") not in arguments)
    return ", ".join([first, *(f"{key.split('.')[-1]} = {grid[key]}" for key in rest)])


def _refuse_namesakes(runs: Sequence[PlannedRun]) -> None:
    names: set[tuple[str, str, int]] = set()
    for run in runs:
        name = (run.label, repr(run.setting), run.seed)
        if name in names:
            raise ArgumentError(f"two runs would be called {run}: give each algorithm a label of its own.")
        names.add(name)


def _lists(raw: TomlTable, path: Place = ()) -> Iterator[tuple[Place, list[Any]]]:
    """The lists of a table and of the tables in it, with their places.

    >>> list(_lists({"l2": [0.1, 0.2], "partition": {"alpha": [1.0]}}, ("problem",)))
    [(('problem', 'l2'), [0.1, 0.2]), (('problem', 'partition', 'alpha'), [1.0])]
    """
    for key, value in raw.items():
        here = (*path, key)
        if isinstance(value, dict):
            yield from _lists(value, here)
        elif isinstance(value, list) and key not in KEPT:
            if not value or key in SINGLE:
                fault = "is an empty list: give at least one value" if not value else "is a list: give one name"
                raise ArgumentError(f"{'.'.join(here)} {fault}.")
            yield here, value


def cells(raw: TomlTable, path: Place) -> Iterator[tuple[Grid, Grid]]:
    """Every combination: the table with single values, and those that came from a list by their place.

    >>> [grid for _, grid in cells({"l2": [0.1, 0.2], "seed": 3}, ("problem",))]
    [{'problem.l2': 0.1}, {'problem.l2': 0.2}]
    """
    choices = list(_lists(raw, path))
    for values in product(*(values for _, values in choices)):
        cell: Grid = dict(raw)
        for (place, _), value in zip(choices, values, strict=True):
            cell = _replaced(cell, place[len(path) :], value)
        yield cell, {".".join(place): value for (place, _), value in zip(choices, values, strict=True)}


def _replaced(raw: TomlTable, place: Place, value: object) -> Grid:
    key, *rest = place
    return {**raw, key: _replaced(raw[key], tuple(rest), value) if rest else value}
