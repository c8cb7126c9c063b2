"""A table of text, as reports and terminals show it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TextTable:
    """Text in rows and columns; the first column names the row. A `folded` one is shown when it is asked for."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    folded: bool = False
