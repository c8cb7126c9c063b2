"""The commands of `fedlin theory`: what they print, what they refuse, and that a table goes on from finished rows."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedlin.cli import app
from fedlin.theory import certified_steps
from fedlin.theory.exact import build_table

pytest.importorskip("clarabel")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["theory", *arguments])


def short_row(**changes: Any) -> dict[str, Any]:
    """The row of κ = 10, with what it says of few local steps alone."""
    row = next(row for row in certified_steps.stored_rows() if row["kappa"] == ["10", "12.5"])
    return row | {"surplus": [*row["surplus"][:5], *[None] * (len(row["surplus"]) - 5)]} | changes


def test_a_factor_is_printed_as_proved_and_as_measured() -> None:
    done = run("factor", "--kappa", "10", "--tau", "3", "--eta-bar", "5.5")
    assert done.exit_code == 0, done.output
    proved, measured = (float(line.split()[0]) for line in done.output.splitlines()[1:3])
    assert proved == pytest.approx(0.716211, abs=2e-6)
    assert proved * (1 - 1e-4) <= measured <= proved + 1e-6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("factor", "--kappa", "0.9"), "κ above 1"),
        (("factor", "--eta-bar", "0"), "eta_bar"),
        (("factor", "--tau", "0"), "tau"),
        (("factor", "--tau", "two"), "tau"),
        (("factor", "--tau", "60"), "at most"),
        (("check", "--kappa", "1.2"), "from 1.5 to 1e+06"),
        (("check", "--kappa", "nan"), "from 1.5 to 1e+06"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_status_2(arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2, done.output
    assert words in done.output


def test_check_proves_rows_again_and_leaves_with_1_where_one_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    right = short_row()
    monkeypatch.setattr(certified_steps, "stored_rows", lambda: [right])
    done = run("check", "--kappa", "11")
    assert done.exit_code == 0, done.output
    assert "6 bounds proved" in done.output
    assert run("check", "--kappa", "1.2", "--all").output == done.output
    wrong = short_row(loss=build_table.decimal(Fraction(right["loss"]) / 5))
    monkeypatch.setattr(certified_steps, "stored_rows", lambda: [wrong])
    assert run("check", "--kappa", "11").exit_code == 1


def test_a_table_goes_on_from_the_rows_that_are_finished(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first, second = short_row(), short_row(kappa=["12.5", "16"])
    made = []

    def certify(kappa: tuple[str, str], eta_bar: Fraction, served: int) -> dict[str, Any]:
        made.append(kappa)
        return second

    step = first["eta_bar"]
    monkeypatch.setattr(build_table, "SERIES", (build_table.Series(4, ("10", "12.5", "16"), (step, step)),))
    monkeypatch.setattr(build_table, "certify_step", certify)
    finished, out = tmp_path / "rows", tmp_path / "table.json"
    finished.write_text(json.dumps(first) + "\n")
    for _ in range(2):  # the second time nothing is left to do
        done = run("table", "--finished", str(finished), "--out", str(out))
        assert done.exit_code == 0, done.output
        assert made == [("12.5", "16")]
        assert json.loads(out.read_text()) == {"steps": [first, second]}
