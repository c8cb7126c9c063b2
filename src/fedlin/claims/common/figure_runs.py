"""The runs behind the paper's figures: FedLin at several levels of sparsification, one run a draw."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedlin.claims.claim import Setting
from fedlin.claims.common.algorithm1 import TopK, departure
from fedlin.claims.common.bound_check import Departure, sparse_fedlin
from fedlin.claims.common.curves import stack, sweep
from fedlin.core import Array
from fedlin.plan import Plan
from fedlin.problems.problem import Problem

LOGISTIC = {"clients": "10", "d": "100", "rows": "500 a client, summed"}
PLAYED = 60  # rounds whose local steps are taken again: up to a hundred a client


@dataclass(frozen=True)
class FigureRuns:
    """‖x̄ - x*‖² of every draw by (family, level), and how far draw 0 of the first family is from Algorithm 1."""

    curves: dict[tuple[str, str], Array]
    departures: list[Departure]

    def of(self, family: str) -> dict[str, Array]:
        """The curves of one family, by level."""
        return {level: curves for (name, level), curves in self.curves.items() if name == family}


def run_levels(
    setting: Setting,
    levels: Mapping[str, TopK | None],
    families: Mapping[str, Sequence[Problem]],
    plans: Sequence[Plan],
    rounds: int,
    *,
    at_clients: bool,
    together: bool = True,
) -> FigureRuns:
    """Every level of sparsification on every family; on a quick run the first and the last level, for its speed."""
    ends = [*levels][:: len(levels) - 1] if setting.quick else [*levels]
    sides = {level: (levels[level], None) if at_clients else (None, levels[level]) for level in ends}
    methods = {level: sparse_fedlin(setting, *side) for level, side in sides.items()}
    runs = sweep(methods, families, plans, rounds, together=together)
    family = next(iter(families))
    departures = []
    for level, (up, down) in sides.items():
        models = runs[family, level][0].iterates
        departures.append(Departure(*departure(families[family][0], plans[0], models, up, down, played=PLAYED), 0))
    return FigureRuns({key: stack(results, "distance", rounds) for key, results in runs.items()}, departures)


def settings_in_words(
    instance: Mapping[str, str], eta_bar: float, most_steps: int, rounds: int, draws: int
) -> dict[str, str]:
    """What a figure was made with: the instance as the paper gives it, the plan, and what we chose."""
    plan = {"η̄": f"{eta_bar:g}", "τ": f"uniform on {{2, ..., {most_steps}}}"}
    return {**instance, **plan, **open_choices(start="0", rounds=str(rounds)), "draws": str(draws)}


def open_choices(**choices: str) -> dict[str, str]:
    """What the paper does not say and we chose, marked as such."""
    return {f"{name} (our choice)": value for name, value in choices.items()}
