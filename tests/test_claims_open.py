"""The open problems' answers, checked as `fedlin reproduce --quick` checks them."""

import pytest

from fedlin.claims import OPEN, Setting, all_claims
from fedlin.claims.claim import Claim


@pytest.mark.parametrize("claim", [c for c in all_claims() if c.section == OPEN], ids=lambda c: str(c.id))
def test_an_open_problem_is_answered(claim: Claim) -> None:
    """Every deciding row is met on every draw, and there is a picture of it."""
    verdict = claim.run(Setting(quick=True, draws=2))
    assert verdict.holds, verdict.rows
    assert verdict.draws == 2
    assert any(row.ok for row in verdict.rows)
    assert verdict.figures
