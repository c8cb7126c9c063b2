"""Tables in Markdown, and numbers as people read them."""

from collections.abc import Sequence
from typing import Any


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, ("---",) * len(heads), *rows)]
    return "\n".join(lines)


def micro(seconds: float) -> str:
    """A time to three digits."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def size(count: float) -> str:
    """Bytes."""
    return f"{count / 2**20:.3g} MiB" if count < 1000 * 2**20 else f"{count / 2**30:.3g} GiB"


def recording(figures: list[dict[str, Any]]) -> str:
    """What `benchmarks.recording` found."""
    rows = [
        (f["figure"], micro(f["seconds a round"]), micro(f["without measures"]), f"{f['share of a round']:.0%}")
        for f in figures
    ]
    return table(("", "a round", "without", "share"), rows)


def batches(figures: list[dict[str, Any]]) -> str:
    """What `benchmarks.batches` found."""
    rows = [(f["figure"], micro(f["together"]), micro(f["apart"]), f"{f['times faster']:.1f}") for f in figures]
    return table(("", "together", "one after another", "times faster"), rows)
