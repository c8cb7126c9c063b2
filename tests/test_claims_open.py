"""The open problems' answers, checked as `fedlin reproduce --quick` checks them."""

from pathlib import Path

import pytest

from fedlin.claims import OPEN, Setting, all_claims
from fedlin.claims.bytes_methods import METHODS, REAL, STEPS, TUNED, instance, local_steps
from fedlin.claims.claim import Claim
from fedlin.claims.realdata import a9a, data_file


@pytest.mark.parametrize("claim", [c for c in all_claims() if c.section == OPEN], ids=lambda c: str(c.id))
def test_an_open_problem_is_answered(claim: Claim) -> None:
    """Every deciding row is met on every draw, and there is a picture of it."""
    verdict = claim.run(Setting(quick=True, draws=2))
    assert verdict.holds, verdict.rows
    assert verdict.draws == 2
    assert any(row.ok for row in verdict.rows)
    assert verdict.figures


def test_every_method_is_tuned_to_a_point_of_the_one_grid() -> None:
    for problem, methods in TUNED.items():
        assert set(methods) <= set(METHODS)
        assert problem == REAL or set(methods) == set(METHODS)
        for method, (tau, step) in methods.items():
            assert tau in local_steps(method, problem)
            assert step in STEPS


def test_real_data_is_optional(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where FEDLIN_DATA names a folder without the file there is no problem, and no error."""
    monkeypatch.setenv("FEDLIN_DATA", str(tmp_path))
    assert data_file("a9a.gz") is None
    a9a.cache_clear()
    assert instance(REAL, 0) is None
    a9a.cache_clear()
