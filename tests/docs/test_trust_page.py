"""The page on trust says what was measured, and the tests that it names are there."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FEDERATION = ROOT / "tests" / "engines" / "federation"


@pytest.fixture(autouse=True)
def benchmarks_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cryptography", reason="needs cryptography: pip install 'fedlin[secure]'")
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.delitem(sys.modules, "benchmarks", raising=False)


def test_the_page_is_written_from_the_measured_figures() -> None:
    from benchmarks.trust_page import PAGE, read, write

    assert PAGE.read_text() == write(*read())


def test_a_masked_round_takes_at_most_twice_a_plain_one() -> None:
    """At ten sites and 10⁵ entries, where sites have work of their own, by what was measured last."""
    from benchmarks.trust_page import read

    ratio = {(one["sites"], one["dim"], one["rows"]): one["cpu_ratio"] for one in read()[1]}
    assert ratio[10, 100_000, 100] <= 2
    assert {sites for sites, dim, _ in ratio if dim == 100_000} >= {10, 20}


def test_the_tests_that_the_page_names_are_there() -> None:
    text = (ROOT / "docs" / "trust.md").read_text()
    named = re.findall(r"`(test_\w+\.py)`: ((?:`\w+`(?:, )?)+)", text)
    assert len(named) >= 10
    for file, parts in named:
        functions = re.findall(r"^def (test_\w+)", (FEDERATION / file).read_text(), re.MULTILINE)
        for part in re.findall(r"`(\w+)`", parts):
            assert any(part in function for function in functions), (file, part)


def test_the_refusals_on_the_page_are_those_of_the_package() -> None:
    """By trying every pair again."""
    from benchmarks.trust import together
    from benchmarks.trust_page import read

    assert together() == read()[0]["together"]


def test_thresholds_on_the_page_are_those_of_the_package() -> None:
    from benchmarks.trust import thresholds
    from benchmarks.trust_page import read

    assert thresholds() == read()[0]["thresholds"]
