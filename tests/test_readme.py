"""Every Python snippet of the README runs."""

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippet_runs(number: int) -> None:
    """The snippet runs as it stands, on its own."""
    exec(compile(SNIPPETS[number], f"README snippet {number}", "exec"), {"__name__": "snippet"})


def test_commands_are_targets() -> None:
    """Every make command the README names is a target of the Makefile."""
    makefile = (Path(__file__).parent.parent / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"make ([a-z-]+)", TEXT)) - {"and"}
    assert {"reproduce", "test"} <= named
    for target in named:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
