"""Methods side by side: costs are read off where a target is first met, and the page is that of `fedlin run`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlin
from fedlin.errors import ArgumentError, UnknownError
from fedlin.result import Result


def made(gaps: Sequence[float], size: int) -> Result:
    """A run with these gaps that spends `size` of everything in each round, and a tenth of it in seconds."""
    n = len(gaps)
    many = np.arange(n) * size
    return Result(
        "m", "done", np.zeros(1), np.ones(n), np.ones(n), many, many, many, many / 10, _gap=np.array(gaps)
    )  # fmt: skip


def test_costs_are_read_off_where_the_target_is_first_met() -> None:
    (cost,) = fedlin.compare({"m": made([1.0, 0.1, 0.3, 0.01], 5)}, 0.1).costs
    assert cost.spent == {"rounds": 1, "bytes": 10, "gradients": 5, "seconds": 0.5}
    assert cost.best == 0.01
    (missed,) = fedlin.compare({"m": [made([1.0, 0.1], 5), made([1.0, 0.5], 5), made([1.0, 0.6], 5)]}, [0.1]).costs
    assert not missed.known
    assert missed.as_dict()["rounds"] is None
    assert (missed.reached, missed.seeds, missed.best) == (1, 3, 0.5)


def test_the_winner_is_named_for_every_unit_and_ties_are_too() -> None:
    quick, thin = made([1.0, 0.01], 100), made([1.0, 0.5, 0.01], 5)
    compared = fedlin.compare({"quick": quick, "thin": thin}, [1e-9, 0.1])
    first, second = compared.findings
    assert "2 of 2 methods reach gap 0.1. Fewest rounds: quick (1); fewest bytes sent: thin (20 B)" in first
    assert second == "No method reaches gap 1e-09; quick comes closest, 1.00e-02."
    assert "Fewest rounds: one and two (1)" in fedlin.compare({"one": quick, "two": quick}, [0.1]).findings[0]
    assert [line.split()[:2] for line in str(compared).split("\n")[2:4]] == [["quick", "0.1"], ["thin", "0.1"]]


def test_rounds_that_were_not_measured_are_left_out_of_the_curve() -> None:
    gaps = np.array([1.0, np.nan, 0.1, np.nan, 0.01])
    run = made(gaps.tolist(), 1)
    seldom = Result(**{**vars(run), "loss": np.where(np.isnan(gaps), np.nan, 1.0)})
    (panel, *_) = fedlin.compare({"m": seldom}, 0.1).figure().panels
    np.testing.assert_array_equal(panel.curves[0].x, [0, 2, 4])
    np.testing.assert_array_equal(panel.curves[0].y, [1.0, 0.1, 0.01])


def test_the_page_holds_the_table_and_the_rows_behind_it(tmp_path: Path) -> None:
    problem = fedlin.problems.least_squares(clients=3, dim=4, samples=10)
    plan = fedlin.theory.strongly_convex(problem, tau=2)
    runs = fedlin.simulate_many(fedlin.fedlin(), problem, plan, 60, seeds=[0, 1])
    compared = fedlin.compare({"FedLin": runs}, [1e-1, 1e-2], title="Two seeds")
    page = compared.write(tmp_path / "page", pictures=False)
    text = page.read_text(encoding="utf-8")
    assert "Two seeds" in text
    for cost in compared.costs:
        assert f"{cost.spent['rounds']:,.0f}" in text
    rows = compared.to_dataframe()
    assert (tmp_path / "page" / "costs.csv").read_text() == compared.to_csv()
    assert rows["rounds"].tolist() == [fedlin.result.first(runs[0].gap, target) for target in (1e-1, 1e-2)]


@pytest.mark.parametrize(
    ("results", "options", "error", "words"),
    [
        ({}, {}, ArgumentError, "give .* with one or more"),
        ([made([1.0], 1)], {}, ArgumentError, "results = "),
        ({"m": []}, {}, ArgumentError, "give a Result, or a list"),
        ({"m": "fast"}, {}, ArgumentError, "give a Result, or a list"),
        ({"m": [made([1.0], 1), 3]}, {}, ArgumentError, "give a Result, or a list"),
        ({"m": made([1.0], 1)}, {"targets": []}, ArgumentError, "targets is empty"),
        ({"m": made([1.0], 1)}, {"targets": [0.0]}, ArgumentError, "targets = 0.0"),
        ({"m": made([1.0], 1)}, {"targets": "small"}, ArgumentError, "targets = 'small'"),
        ({"m": made([1.0], 1)}, {"measure": "speed"}, ArgumentError, "measure = 'speed'"),
        ({"m": made([1.0], 1)}, {"measure": "distance"}, UnknownError, "has no distance"),
    ],
)
def test_what_cannot_be_compared_is_refused(results: Any, options: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        fedlin.compare(results, **options)
