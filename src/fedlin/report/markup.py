"""The HTML of the report, from verdicts to one page."""

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from importlib.metadata import version
from importlib.resources import files
from string import Template

from fedlin.report.figure import Figure
from fedlin.report.interactive import plots
from fedlin.report.verdict import Row, Verdict

LEAD = "Each statement of the paper is checked by running it. What was measured stands beside what was expected."


def stem(verdict: Verdict, figure: Figure) -> str:
    """A file name no other claim's figure can have."""
    return figure.name if figure.name.startswith(verdict.id) else f"{verdict.id}-{figure.name}"


def page(verdicts: Sequence[Verdict], title: str, command: str, pictures: bool) -> str:
    """The whole page, styles and script included; only Plotly and the downloads lie beside it."""
    package = files("fedlin.report")
    sections = dict.fromkeys(verdict.section for verdict in verdicts)
    return Template(package.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        css=package.joinpath("page.css").read_text(encoding="utf-8"),
        js=package.joinpath("page.js").read_text(encoding="utf-8"),
        version=version("fedlin"),
        lead=LEAD,
        counts=_counts(verdicts),
        summary=_summary(verdicts),
        findings=_findings(verdicts),
        sections="\n".join(
            _section(name, [verdict for verdict in verdicts if verdict.section == name], pictures) for name in sections
        ),
        command=escape(command),
        seconds=_seconds(sum(verdict.seconds for verdict in verdicts)),
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds / 60:.0f} min"


def _counts(verdicts: Sequence[Verdict]) -> str:
    labels = {"good": "holding", "noted": "not holding, as expected", "bad": "failing or not checked"}
    count = Counter[str](verdict.grade for verdict in verdicts)
    return "".join(
        f'<div><dt>{label}</dt><dd class="{grade}">{count[grade]}</dd></div>'
        for grade, label in labels.items()
        if count[grade] or grade == "good"
    )


def _summary(verdicts: Sequence[Verdict]) -> str:
    rows = "\n".join(
        f'<tr><td class="claim"><code>{verdict.id}</code> <a href="#{verdict.id}">{escape(verdict.title)}</a></td>'
        f'<td class="outcome {verdict.grade}">{escape(verdict.judgement)}</td>'
        f'<td class="key">{escape(verdict.key)}</td><td class="num">{verdict.seconds:.1f} s</td></tr>'
        for verdict in verdicts
    )
    return (
        '<div class="scroll"><table class="summary"><thead><tr><th>Claim</th><th>Outcome</th>'
        '<th>Measured against expected</th><th class="num">Time</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _findings(verdicts: Sequence[Verdict]) -> str:
    items = "\n".join(
        f'<li>{escape(finding)} <a class="from" href="#{verdict.id}">{escape(verdict.title)}</a></li>'
        for verdict in verdicts
        for finding in verdict.findings
    )
    if not items:
        return ""
    heading = "<h2>What the paper does not say</h2>"
    return f'<section id="findings">{heading}<ul class="findings">{items}</ul></section>'


def _section(name: str, verdicts: Iterable[Verdict], pictures: bool) -> str:
    articles = "\n".join(_article(verdict, pictures) for verdict in verdicts)
    return f"<section><h2>{escape(name or 'Claims')}</h2>\n{articles}\n</section>"


def _article(verdict: Verdict, pictures: bool) -> str:
    setting = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in verdict.setting.items()
    )
    rerun = (
        f"$ fedlin reproduce {verdict.id} --out reports/{verdict.id}\n\n"
        ">>> from fedlin.claims import Setting, find\n"
        f'>>> find("{verdict.id}").run(Setting())'
    )
    parts = [
        f'<div class="head"><h3>{escape(verdict.title)} <code>{verdict.id}</code></h3>'
        f'<span class="badge {verdict.grade}">{escape(verdict.judgement)}</span></div>',
        f'<p class="statement">{escape(verdict.statement)}</p>',
        f'<p class="error">{escape(verdict.error)}</p>' if verdict.error else "",
        f'<dl class="setting">{setting}</dl>' if setting else "",
        _rows(verdict.rows) if verdict.rows else "",
        *(_figure(figure, stem(verdict, figure), pictures) for figure in verdict.figures),
        f"<pre>{escape(rerun)}</pre>",
    ]
    return f'<article id="{verdict.id}">\n' + "\n".join(filter(None, parts)) + "\n</article>"


def _rows(rows: Iterable[Row]) -> str:
    marks = {True: '<span class="good">yes</span>', False: '<span class="bad">no</span>', None: ""}
    body = "\n".join(
        f'<tr><td>{escape(row.what)}</td><td class="value">{escape(row.measured)}</td>'
        f'<td class="value">{escape(row.expected)}</td><td>{marks[row.ok]}</td></tr>'
        for row in rows
    )
    return (
        '<div class="scroll"><table><thead><tr><th>Quantity</th><th>Measured</th><th>Expected</th>'
        f"<th>Met</th></tr></thead><tbody>{body}</tbody></table></div>"
    )


def _figure(figure: Figure, name: str, pictures: bool) -> str:
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
