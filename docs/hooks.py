"""What MkDocs does here besides its plugins: formulas as MathML, examples as code, and the page of results.

Formulas become MathML when the site is built, by latex2mathml, which is pure Python. Browsers draw MathML themselves,
so a page needs no script, no font and no network to show it.
"""

import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
REPORT = ROOT / "reports" / "reproduce" / "verdicts.json"
RACE = Path(__file__).parent / "pictures" / "race.json"
# As pymdownx.arithmatex leaves them: \(inline\) in a span, \[display\] in a div.
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', flags=re.DOTALL)


class _Fences(Preprocessor):
    """A run of lines from `>>>` to the next empty one becomes a block of code."""

    def run(self, lines: list[str]) -> list[str]:
        found: list[str] = []
        inside = fenced = False
        for line in [*lines, ""]:
            fenced ^= line.lstrip().startswith("```")
            if line.startswith(">>>") and not inside and not fenced:
                found.append("```pycon")
                inside = True
            elif inside and not line.strip():
                found.append("```")
                inside = False
            found.append(line)
        return found


class Doctests(Extension):
    """Docstrings show what they do by doctests, which Markdown would take for quotations of quotations."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - Markdown's name for it
        md.preprocessors.register(_Fences(md), "doctests", 40)  # before fenced code is looked for


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the extension, which has no name to put into mkdocs.yml."""
    extensions: list[Any] = config.markdown_extensions  # said to hold names, and takes extensions as Markdown does
    extensions.append(Doctests())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page of results, written from what was measured."""
    files.append(File.generated(config, "results.md", content=results()))
    return files


def on_page_content(content: str, **_: Any) -> str:
    """Turn formulas into MathML."""
    return FORMULA.sub(_formula, content)


def _formula(found: re.Match[str]) -> str:
    kind, source = found[1], html.unescape(found[2]).strip()
    return f'<{kind} class="formula">{convert(source, display="block" if kind == "div" else "inline")}</{kind}>'


def results(report: Path = REPORT, race: Path = RACE) -> str:
    """The page: every claim of the last report, and the costs of the picture on the README."""
    return "\n".join(["# Results", "", *_claims(report), "", *_costs(json.loads(race.read_text(encoding="utf-8"))), ""])


def _claims(report: Path) -> list[str]:
    if not report.is_file():
        return [
            "## Claims",
            "",
            "No report was there when this page was built. `make reproduce` checks every claim and writes one, and the "
            "next `make docs` puts its verdicts here.",
        ]
    verdicts = json.loads(report.read_text(encoding="utf-8"))
    rows = [
        # A report of an earlier version has no judgement.
        (
            f"`{one['id']}`",
            one["title"],
            one.get("judgement", one["outcome"]),
            f"{one['held']} of {one['draws']}",
            *_noticed(one.get("notices", [])),
        )
        for one in verdicts
    ]
    return [
        "## Claims",
        "",
        f"{sum(one['holds'] for one in verdicts)} of {len(verdicts)} claims hold on every draw. The report itself, "
        "with every number and curve, is `reports/reproduce/index.html`.",
        "",
        "Each was checked again with wrong methods in place of the right one. The last columns say how many of them "
        "fail the statement itself, how many it lets pass but a replay of Algorithm 1 does not, and how many pass for "
        "a reason that the report gives.",
        "",
        *table(("id", "claim", "outcome", "draws it held on", "fail", "fail the replay", "pass"), rows),
    ]


def _noticed(notices: list[dict[str, str]]) -> tuple[str, str, str]:
    """How many wrong methods fail the statement, how many a premise alone, and how many neither."""
    if not notices:
        return "", "", ""
    fail = sum(bool(one["by"]) for one in notices)
    replay = sum(bool(one["premise"]) and not one["by"] for one in notices)
    return f"{fail}", f"{replay}", f"{len(notices) - fail - replay}"


def _costs(race: dict[str, Any]) -> list[str]:
    goal = 1e-10
    rows = []
    for name, run in race.items():
        reached = next((t for t, gap in enumerate(run["gap"]) if gap <= goal), None)
        ended = f"never: {run['gap'][-1]:.1e} after {len(run['gap']) - 1} rounds"
        cost = (ended, "–") if reached is None else (f"{reached}", f"{run['bytes'][reached] / 1e6:.1f} MB")
        rows.append((name, f"{run['eta_bar']:.2g}", *cost))
    return [
        "## Rounds and bytes",
        "",
        "![The gap of five methods against rounds and against bytes](pictures/race.svg)",
        "",
        f"The cost to bring the gap down to {goal:g} of its start, on regression over 20 clients that want different "
        "models (`docs/pictures.py`), each method at its best of a grid of step sizes:",
        "",
        *table(("method", "η̄", "rounds", "bytes, up and down"), rows),
    ]


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """The lines of a table in Markdown."""
    return ["| " + " | ".join(cells) + " |" for cells in (heads, ("---",) * len(heads), *rows)]
