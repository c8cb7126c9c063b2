"""The documentation is whole and true: links, names, claims, pictures and formulas."""

import importlib.util
import inspect
import json
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fedlin
from fedlin.claims import all_claims
from fedlin.report.verdict import Verdict
from pages import PAGES, ROOT, name, prose

DOCS = ROOT / "docs"
GENERATED = {DOCS / "results.md"}
MODULES = (fedlin, fedlin.problems, fedlin.theory, fedlin.data)


def load(file: str) -> ModuleType:
    """A script of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(f"docs_{file}", DOCS / f"{file}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def anchors(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    heads = re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", head.lower()).strip()) for head in heads}


def broken(page: Path) -> list[str]:
    """The links of a page that lead to no file or no heading; addresses on the web are not followed."""
    found = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if file in GENERATED:
            continue
        if not file.exists() or (anchor and anchor not in anchors(file)):
            found.append(target)
    return found


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_the_link_checker_sees_what_is_broken(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# One heading, two words\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md) [b](other.md#one-heading-two-words) [c](gone.md) [d](other.md#gone) [e](https://x.org) [f](#g)\n"
        "```\n[in](code.md)\n```\n"
    )
    assert broken(page) == ["gone.md", "other.md#gone", "#g"]


def test_every_page_is_in_the_navigation() -> None:
    named = set(re.findall(r"([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert named == {page.name for page in [*DOCS.glob("*.md"), *GENERATED]}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_public_name_is_in_the_reference(module: ModuleType) -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in DOCS.glob("api*.md"))
    listed = set(re.findall(r"^::: (\S+)$", text, flags=re.MULTILINE))
    for public in module.__all__:
        thing = getattr(module, public)
        if inspect.ismodule(thing):
            assert any(entry.startswith(thing.__name__) for entry in listed), public
        else:
            places = {f"{module.__name__}.{public}", f"{thing.__module__}.{public}", thing.__module__}
            assert places & listed, f"{public}: add ::: {thing.__module__}.{public} to docs/api.md"


def test_the_readme_names_all_that_is_in_the_package() -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("## What is in the package")[1].split("##")[0]
    named = set(re.findall(r"`(\w+)`", section))
    lower = {public for public in fedlin.__all__ if callable(getattr(fedlin, public)) and public.islower()}
    helpers = {"draw_steps", "draw_rates", "epochs", "message_sizes"}
    assert lower - named == helpers
    assert {public for public in fedlin.problems.__all__ if public.islower()} <= named


def functions(module: ModuleType) -> list[Any]:
    """The public functions of a module, and those of the modules it exports."""
    found = []
    for thing in (getattr(module, public) for public in module.__all__):
        if inspect.isfunction(thing):
            found.append(thing)
        if inspect.ismodule(thing) and not hasattr(thing, "__all__"):
            found += [
                value
                for key, value in vars(thing).items()
                if inspect.isfunction(value) and value.__module__ == thing.__name__ and not key.startswith("_")
            ]
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_public_function_is_shown_at_work(module: ModuleType) -> None:
    assert [thing.__name__ for thing in functions(module) if ">>>" not in (thing.__doc__ or "")] == []


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_public_class_is_shown_at_work(module: ModuleType) -> None:
    """By a doctest of its own, or by that of its file, which shows several together."""
    classes = [thing for public in module.__all__ if inspect.isclass(thing := getattr(module, public))]
    files = {thing: inspect.getmodule(thing) for thing in classes}
    assert [thing for thing in classes if ">>>" not in f"{thing.__doc__}{files[thing].__doc__}"] == []


@pytest.mark.parametrize(("page", "head"), [("which-method", "checked by"), ("how-it-works", "claim")])
def test_claims_named_as_checks_exist(page: str, head: str) -> None:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    _, table = text.split(f"| {head} |\n", 1)
    cells = [row.rstrip("|").rsplit("|", 1)[1] for row in table.split("\n\n")[0].splitlines()]
    named = {claim for cell in cells for claim in re.findall(r"`([^`]+)`", cell)}
    assert len(named) >= 10
    assert named <= {claim.id for claim in all_claims()}


def test_functions_named_in_the_table_of_theorems_exist() -> None:
    named = set(re.findall(r"`theory\.(\w+)`", (DOCS / "how-it-works.md").read_text(encoding="utf-8")))
    assert len(named) >= 10
    assert named <= set(fedlin.theory.__all__)


@pytest.mark.parametrize("page", [DOCS / "contributors.md", ROOT / "CONTRIBUTING.md", ROOT / "README.md"], ids=name)
def test_files_that_are_named_are_there(page: Path) -> None:
    """From the root of the repository, or from the folder that the text is about."""
    source = ROOT / "src" / "fedlin"
    inner = (
        "engines",
        "engines/federation",
        "engines/simulation",
        "experiments",
        "deploy",
        "deploy/flare",
        "theory/exact",
    )
    folders = (ROOT, DOCS, source, *(source / folder for folder in inner))
    made = {"client.py", "reports/reproduce/index.html"}  # by a user's own commands
    named = set(re.findall(r"`([\w./-]+\.(?:py|md|toml|txt|cff|html))`", prose(page))) - made
    assert named
    assert [file for file in named if not any((folder / file).exists() for folder in folders)] == []


def test_the_index_of_questions_names_what_is_there() -> None:
    """Every file exists and defines the name beside it, and nothing is asked twice."""
    rows = re.findall(
        r"^\| (.+\?) \| `(.+)` \| `(.+)` \|$", (DOCS / "contributors.md").read_text("utf-8"), re.MULTILINE
    )
    assert len({question for question, _, _ in rows}) == len(rows) >= 20
    for _, file, defined in rows:
        text = (ROOT / "src" / "fedlin" / file).read_text(encoding="utf-8")
        assert re.search(rf"^(?:def {defined}\(|class {defined}\b|{defined}(?:: .+)? = )", text, re.MULTILINE), file


def test_the_citation_is_of_this_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"version: {project['version']}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"license: {project['license']}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_changelog_has_the_form_it_names() -> None:
    heads = re.findall(r"^(##+) (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert heads[0] == ("##", "[Unreleased]")
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert {title for level, title in heads if level == "###"} <= kinds


RACE = json.loads((DOCS / "pictures" / "race.json").read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("method", RACE)
def test_the_picture_is_of_what_the_package_does(method: str) -> None:
    """The curve that is drawn is the one that a run gives now, from its stored step size."""
    pictures = load("pictures")
    assert set(RACE) == {*pictures.METHODS, *pictures.PROVED}
    stored, rounds = RACE[method], 60
    if method in pictures.PROVED:
        _, run = pictures.proved(method, rounds)
    else:
        plan = pictures.plan(method, stored["eta_bar"])
        run = fedlin.simulate(pictures.METHODS[method], pictures.problem(), plan, rounds)
    np.testing.assert_allclose(run.gap / run.gap[0], stored["gap"][: rounds + 1], rtol=1e-3)
    assert run.bytes.tolist() == stored["bytes"][: rounds + 1]


def test_pictures_are_drawn_from_what_was_measured_and_are_light(tmp_path: Path) -> None:
    from fedlin.report.matplotlib_figures import save

    _, drawn = save(load("pictures").figure(RACE), tmp_path)
    labels = re.compile(r"<!-- (.*?) -->")  # Matplotlib leaves every text it draws as a comment
    committed = DOCS / "pictures" / "race.svg"
    assert labels.findall(drawn.read_text("utf-8")) == labels.findall(committed.read_text("utf-8"))
    assert all(picture.stat().st_size < 100_000 for picture in (DOCS / "pictures").iterdir())


def test_results_are_what_the_report_says(tmp_path: Path) -> None:
    hooks = load("hooks")
    verdict = Verdict("thm1", "T", "S", {}, (), held=0, draws=2, should_hold=False)
    report = tmp_path / "verdicts.json"
    assert "make reproduce" in hooks.results(report)
    report.write_text(json.dumps([verdict.as_dict()]))
    page = hooks.results(report)
    assert "| `thm1` | T | does not hold, as expected | 0 of 2 |" in page
    for method, run in RACE.items():
        reached = [t for t, gap in enumerate(run["gap"]) if gap <= 1e-10]
        assert f"| {method} | {run['eta_bar']:.2g} | {reached[0] if reached else 'never'}" in page


def test_formulas_become_mathml() -> None:
    hooks = load("hooks")
    shown = hooks.on_page_content('<p><span class="arithmatex">\\(a &lt; \\frac1b\\)</span></p>')
    assert "<math" in shown
    assert "<mfrac><mn>1</mn><mi>b</mi></mfrac>" in shown
    assert "\\frac" not in shown
