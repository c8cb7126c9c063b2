"""Every Python snippet of the README and of the page on data runs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
SNIPPETS = [
    pytest.param(snippet, id=f"{page} {number}")
    for page in ("README.md", "docs/data.md")
    for number, snippet in enumerate(
        re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    )
]


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_snippet_runs(snippet: str) -> None:
    """The snippet runs as it stands, on its own."""
    exec(compile(snippet, "snippet", "exec"), {"__name__": "snippet"})


def test_commands_are_targets() -> None:
    """Every make command the README names is a target of the Makefile."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"make ([a-z-]+)", TEXT)) - {"and"}
    assert {"reproduce", "test"} <= named
    for target in named:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
