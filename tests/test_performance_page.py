"""The page on performance says what the benchmarks' file says."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_the_page_is_written_from_the_measured_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.delitem(sys.modules, "benchmarks", raising=False)
    from benchmarks.page import PAGE, read, write

    assert PAGE.read_text() == write(read())
