"""The HTML of the report, from verdicts to one page."""

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape

from fedlin.report.figure import Figure
from fedlin.report.frame import frame, picture, settings, titled_table
from fedlin.report.verdict import Row, Verdict
from fedlin.report.wrong_method_tables import listing, matrix

LEAD = "Each statement of the paper is checked by running it. What was measured stands beside what was expected."


def stem(verdict: Verdict, figure: Figure) -> str:
    """A file name no other claim's figure can have."""
    return figure.name if figure.name.startswith(verdict.id) else f"{verdict.id}-{figure.name}"


def page(verdicts: Sequence[Verdict], title: str, command: str, pictures: bool) -> str:
    """The whole page, styles and script included; only Plotly and the downloads lie beside it."""
    names = dict.fromkeys(verdict.section for verdict in verdicts)
    sections = (
        _section(name, [verdict for verdict in verdicts if verdict.section == name], pictures) for name in names
    )
    return frame(
        title,
        LEAD,
        _counts(verdicts),
        f'<section id="summary">\n<h2>Verdicts</h2>\n{_summary(verdicts)}\n</section>',
        matrix(verdicts),
        _findings(verdicts),
        *sections,
        footer=f"Made by <code>{escape(command)}</code> in {_seconds(sum(verdict.seconds for verdict in verdicts))}. "
        'The same verdicts without pictures: <a href="verdicts.json">verdicts.json</a>.',
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
        f"<p>Skipped: {escape(verdict.skipped)}.</p>" if verdict.skipped else "",
        settings(verdict.setting),
        _rows(verdict.rows) if verdict.rows else "",
        *map(titled_table, verdict.tables),
        listing(verdict),
        *(picture(figure, stem(verdict, figure), pictures) for figure in verdict.figures),
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
