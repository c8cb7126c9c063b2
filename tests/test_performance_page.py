"""The page on performance and its picture say what the benchmarks' files say."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def benchmarks_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.delitem(sys.modules, "benchmarks", raising=False)


def test_the_page_is_written_from_the_measured_figures() -> None:
    from benchmarks.page import PAGE, read, write

    assert PAGE.read_text() == write(*read())
