"""What every page of a report shares: the frame with its styles and script, settings, tables and figures."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.metadata import version
from importlib.resources import files
from string import Template

from fedlin.report.figure import Figure
from fedlin.report.plotly_figures import plots
from fedlin.report.text_table import TextTable

LONG = 24  # rows from which a table is folded away


def frame(title: str, lead: str, counts: str, *body: str, footer: str) -> str:
    """The whole page around its sections; `counts`, `body` and `footer` are HTML, the rest is text."""
    package = files("fedlin.report")
    return Template(package.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        css=package.joinpath("page.css").read_text(encoding="utf-8"),
        js=package.joinpath("page.js").read_text(encoding="utf-8"),
        version=version("fedlin"),
        lead=escape(lead),
        counts=counts,
        body="\n".join(filter(None, body)),
        footer=footer,
    )


def settings(values: Mapping[str, str]) -> str:
    """Names and values in a row, or nothing."""
    pairs = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in values.items())
    return f'<dl class="setting">{pairs}</dl>' if pairs else ""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A plain table of text; all but the first column hold numbers.

    >>> table(["method", "rounds"], [["fedlin", "12"]]).count("<td")
    2
    """
    head = "".join(f"<th{_aligned(i)}>{escape(cell)}</th>" for i, cell in enumerate(heads))
    body = "\n".join(
        "<tr>" + "".join(f"<td{_aligned(i)}>{escape(cell)}</td>" for i, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def titled_table(content: TextTable) -> str:
    """A table under its title; a long one is folded away.

    >>> titled_table(TextTable("costs", ("method", "rounds"), (("fedlin", "12"),)))[:14]
    '<h3>costs</h3>'
    """
    body = table(content.heads, content.rows)
    if content.folded or len(content.rows) > LONG:
        return f"<details><summary>{escape(content.title)}</summary>{body}</details>"
    return f"<h3>{escape(content.title)}</h3>{body}"


def _aligned(column: int) -> str:
    return ' class="num"' if column else ""


def picture(figure: Figure, name: str, pictures: bool) -> str:
    """A figure drawn in the browser, with links to its files."""
    # The height stands on the element itself: Plotly asks it whenever the window changes width.
    panels = "\n".join(
        f'<div class="panel"><h4>{escape(panel.title)}</h4>'
        f'<div class="plot" style="height: {plot.layout.height}px">'
        f'<script type="application/json">{_inert(plot.to_json())}</script></div></div>'
        for panel, plot in zip(figure.panels, plots(figure), strict=True)
    )
    title = escape(figure.title)
    files = {"PNG": f"figures/{name}.png", "SVG": f"figures/{name}.svg"} if pictures else {}
    links = " ".join(
        f'<a download href="{file}">{kind}</a>' for kind, file in {**files, "CSV": f"data/{name}.csv"}.items()
    )
    still = f'<noscript><img src="{files["PNG"]}" alt="{title}"></noscript>' if pictures else ""
    return (
        f'<figure id="figure-{name}"><figcaption><strong>{title}</strong> {escape(figure.caption)}</figcaption>'
        f'{still}<div class="panels">{panels}</div><p class="downloads">{links}</p></figure>'
    )


def _inert(data: str) -> str:
    """JSON without a "<" of its own, so that nothing in it can end the script element."""
    return data.replace("<", "\\u003c")
