"""The page that compares runs: a chapter for every setting, each with its tables, pictures and who wins."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from rich.table import Table as RichTable
from rich.text import Text

from fedlin.report.figure import Figure
from fedlin.report.frame import frame, picture, settings, table, titled_table
from fedlin.report.page import write_page
from fedlin.report.text_table import TextTable

LEAD = "What each method costs to reach each target, counted in rounds, bytes, gradient calls and seconds."


@dataclass(frozen=True)
class Chapter:
    """One setting in which methods were compared: `findings` say who wins, the first table is that of costs."""

    id: str
    title: str
    setting: dict[str, str]
    tables: tuple[TextTable, ...]
    findings: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    images: dict[str, bytes] = field(default_factory=dict)  # PNG by caption


def write_comparison(
    chapters: Sequence[Chapter], folder: Path, *, title: str, footer: str, files: dict[str, str], pictures: bool
) -> Path:
    """Write the page into `folder`, with further files of text, and return its path; `pictures` adds PNG and SVG."""
    downloads = " ".join(f'<a download href="{escape(name)}">{escape(name)}</a>' for name in files)
    html = frame(
        title,
        LEAD,
        "",
        *(_chapter(chapter, pictures, chapter.title != title) for chapter in chapters),
        footer=f"{escape(footer)} {downloads}",
    )
    figures = {f"{chapter.id}-{figure.name}": figure for chapter in chapters for figure in chapter.figures}
    return write_page(folder, html, figures, files, pictures)


def _chapter(chapter: Chapter, pictures: bool, headed: bool) -> str:
    won = "".join(f"<li>{escape(finding)}</li>" for finding in chapter.findings)
    costs, *others = chapter.tables
    parts = [
        settings(chapter.setting),
        f'<ul class="findings">{won}</ul>' if won else "",
        f"<h3>{escape(costs.title)}</h3>{table(costs.heads, costs.rows)}",
        *(picture(figure, f"{chapter.id}-{figure.name}", pictures) for figure in chapter.figures),
        *(_image(caption, png) for caption, png in chapter.images.items()),
        *(titled_table(other) for other in others),
    ]
    content = "\n".join(filter(None, parts))
    heading = f"<h2>{escape(chapter.title)}</h2>\n" if headed else ""
    return f'<section>{heading}<article id="{chapter.id}">\n{content}\n</article></section>'


def _image(caption: str, png: bytes) -> str:
    source = f"data:image/png;base64,{b64encode(png).decode()}"
    return (
        f"<figure><figcaption><strong>{escape(caption)}</strong></figcaption>"
        f'<img src="{source}" alt="{escape(caption)}"></figure>'
    )


def rich_table(content: TextTable) -> RichTable:
    """The same table for a terminal.

    >>> rich_table(TextTable("costs", ("method", "rounds"), (("fedlin", "12"),))).row_count
    1
    """
    rich_table = RichTable(title=Text(content.title), title_justify="left", header_style="dim", box=None)
    for place, head in enumerate(content.heads):
        rich_table.add_column(Text(head), justify="right" if place else "left")
    for row in content.rows:
        rich_table.add_row(*map(Text, row))
    return rich_table
