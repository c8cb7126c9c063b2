"""What each claim says when a wrong method stands in for FedLin, as tables of the report and as a line."""

from collections.abc import Sequence
from html import escape

from fedlin.report.verdict import Notice, Verdict

LEAD = (
    "Each claim was checked again with wrong methods in place of the right one, each with a single fault. ● the "
    "statement itself fails; ○ the statement lets the method pass, for the reason given, and it is noticed because its "
    "rounds are not those of Algorithm 1; – it passes, for the reason given; a gap: not tried, mostly as the fault is "
    "none there."
)
MARKS = {"statement": "●", "premise": "○", "passes": "–", "slips": "!"}


def kind(notice: Notice) -> str:
    """How a wrong method fares: noticed by the statement or by a premise, let pass with a reason, or slipping through.

    >>> kind(Notice("ascends", "gap: 2", "", "")), kind(Notice("ascends", "", "", ""))
    ('statement', 'slips')
    """
    if not notice.explained:
        return "slips"
    if notice.by:
        return "statement"
    return "premise" if notice.premise else "passes"


def in_one_line(verdicts: Sequence[Verdict]) -> str:
    """How many wrong methods were tried and noticed, or nothing where none was."""
    kinds = [kind(notice) for verdict in verdicts for notice in verdict.notices]
    if not kinds:
        return ""
    claims = sum(bool(verdict.notices) for verdict in verdicts)
    return (
        f"{len(kinds)} wrong methods tried on {claims} claims: {kinds.count('statement')} fail the statement, "
        f"{kinds.count('premise')} satisfy it for a stated reason and are noticed by replaying Algorithm 1, "
        f"{kinds.count('passes')} pass for a stated reason, {kinds.count('slips')} slip through."
    )


def matrix(verdicts: Sequence[Verdict]) -> str:
    """All claims against all wrong methods, a mark each; nothing where none was tried."""
    tried = [verdict for verdict in verdicts if verdict.notices]
    if not tried:
        return ""
    methods = list(dict.fromkeys(notice.method for verdict in tried for notice in verdict.notices))
    heads = "".join(f"<th><span>{escape(method)}</span></th>" for method in methods)
    rows = []
    for verdict in tried:
        marks = {notice.method: kind(notice) for notice in verdict.notices}
        cells = "".join(_cell(marks.get(method)) for method in methods)
        rows.append(f'<tr><td><a href="#{verdict.id}-notices"><code>{verdict.id}</code></a></td>{cells}</tr>')
    body = "\n".join(rows)
    return (
        f'<section id="notices"><h2>What each claim notices</h2><p class="lead">{escape(LEAD)}</p>'
        f"<p>{escape(in_one_line(verdicts))}</p>"
        f'<div class="scroll"><table class="marks"><thead><tr><th></th>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div></section>"
    )


def _cell(mark: str | None) -> str:
    if mark is None:
        return "<td></td>"
    words = {"statement": "fails the statement", "premise": "not Algorithm 1", "passes": "passes", "slips": "slips"}
    colour = "bad" if mark == "slips" else "good" if mark == "statement" else "noted"
    return f'<td class="{colour}" title="{words[mark]}">{MARKS[mark]}</td>'


def listing(verdict: Verdict) -> str:
    """One claim's wrong methods, each with what gave it away or why it passes."""
    if not verdict.notices:
        return ""
    rows = "\n".join(
        f"<tr><td>{escape(notice.method)}</td>{_cell(kind(notice))}<td class='value'>{escape(_words(notice))}</td></tr>"
        for notice in verdict.notices
    )
    return (
        f'<details id="{verdict.id}-notices"><summary>Wrong methods in place of the right one</summary>'
        '<div class="scroll"><table><thead><tr><th>Method</th><th></th>'
        f"<th>What gave it away, or why it passes</th></tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def _words(notice: Notice) -> str:
    if notice.by:
        return notice.by
    return " ".join(filter(None, (notice.reason, f"Noticed by: {notice.premise}." if notice.premise else "")))
