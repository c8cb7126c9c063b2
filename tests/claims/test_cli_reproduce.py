"""The registry of claims and the command that runs them, on made-up claims."""

import importlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console
from typer.testing import CliRunner

from fedlin.claims import Claim, Outcome, Setting, all_claims, find, select, verdicts
from fedlin.claims.claim import claim
from fedlin.cli import app
from fedlin.errors import ArgumentError
from fedlin.report.report_folder import MARKER
from fedlin.report.terminal import show
from fedlin.report.verdict import Row
from report_samples import one_panel

MODULE = """
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.report.verdict import Row

@claim("{id}", order={order}, title="Title of {id}", section="S", statement="It is so.")
def check(setting: Setting) -> Outcome:
    return Outcome(rows=(Row("draws", str(setting.draws), "", ok=True),))
"""

Package = Callable[[dict[str, str]], ModuleType]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """Makes an importable package of claim files."""

    def make(sources: dict[str, str]) -> ModuleType:
        home = tmp_path / "fakeclaims"
        home.mkdir()
        for name, source in {"__init__": "", **sources}.items():
            (home / f"{name}.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
        for name in [name for name in sys.modules if name.partition(".")[0] == "fakeclaims"]:
            monkeypatch.delitem(sys.modules, name)
        return importlib.import_module("fakeclaims")

    return make


def test_adding_a_claim_is_adding_a_file(package: Package) -> None:
    made = package(
        {
            "zeta": MODULE.format(id="zeta", order=1),
            "beta": MODULE.format(id="beta", order=2),
            "alpha": MODULE.format(id="alpha", order=2),
            "helper": "from fakeclaims.zeta import check",
        }
    )
    assert [found.id for found in all_claims(made)] == ["zeta", "alpha", "beta"]
    assert [found.id for found in select(["beta", "zeta", "beta"], made)] == ["zeta", "beta"]
    assert find("alpha", made).run(Setting(draws=3)).rows[0].measured == "3"


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ({"one": MODULE.format(id="other", order=1)}, "the id must be the file's name"),
        ({"one": MODULE.format(id="one", order=1) + "\nsecond = claim('two', order=1, title='', "
          "section='', statement='')(lambda setting: None)"}, "a claim is a file of its own"),
    ],
)  # fmt: skip
def test_a_wrong_claim_file_is_named(package: Package, sources: dict[str, str], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        all_claims(package(sources))


def test_an_unknown_id_suggests_the_nearest(package: Package) -> None:
    made = package({name: MODULE.format(id=name, order=1) for name in ("prop1", "thm2a")})
    with pytest.raises(ArgumentError, match="did you mean 'thm2a'"):
        find("thm2", made)


def test_the_claims_of_the_package_can_be_listed() -> None:
    claims = all_claims()
    assert [(found.order, found.id) for found in claims] == sorted((found.order, found.id) for found in claims)


def test_importing_the_package_loads_no_claims_and_no_plotting() -> None:
    heavy = ("fedlin.cli", "fedlin.claims", "fedlin.report", "matplotlib", "plotly", "rich")
    code = f"import fedlin, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("given", [{"draws": 0}, {"draws": -3}, {"rounds": 0}])
def test_a_setting_without_work_is_refused(given: dict[str, int]) -> None:
    with pytest.raises(ArgumentError, match="at least 1"):
        Setting(**given)  # type: ignore[arg-type]


def test_an_outcome_that_cannot_be_is_refused() -> None:
    with pytest.raises(ArgumentError, match="5 of 4"):
        Outcome(rows=(), held=5, draws=4)
    with pytest.raises(ArgumentError, match="different names"):
        Outcome(rows=(), figures=(one_panel(), one_panel()))


def fake(id: str, outcome: Outcome | BaseException, should_hold: bool = True) -> Claim:
    @claim(id, order=1, title=f"Title of {id} [bold]", section="S", statement="So.", should_hold=should_hold)
    def check(setting: Setting) -> Outcome:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return check


HOLDS = fake("holds", Outcome(rows=(Row("gap", "1e-16", "< 1e-12", ok=True),), figures=(one_panel(),)))
PARTLY = fake("partly", Outcome(rows=(), held=3, draws=4))
EXPECTED = fake("expected", Outcome(rows=(Row("gap", "1", "0", ok=False),)), should_hold=False)
SKIPPED = fake("skipped", Outcome(rows=(), skipped="no data"))
RAISES = fake("raises", RuntimeError("no\nluck"))
STOPPED = fake("stopped", KeyboardInterrupt())


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Replaces the paper's claims, and moves to an empty folder."""
    monkeypatch.chdir(tmp_path)

    def use(*given: Claim) -> None:
        monkeypatch.setattr("fedlin.claims.claim.all_claims", lambda package=None: given)

    return use


def run(*arguments: str) -> tuple[int, str, str]:
    # One process: the made-up claims exist in this one only.
    jobs = ["--jobs", "1"] if arguments[0] == "reproduce" else []
    result = CliRunner().invoke(app, [*arguments, *jobs])
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ((HOLDS,), 0),
        ((HOLDS, EXPECTED, SKIPPED), 0),
        ((HOLDS, PARTLY), 1),
        ((RAISES, HOLDS), 1),
    ],
)
def test_the_exit_code_tells_whether_claims_fail(
    claims: Callable[..., None], given: tuple[Claim, ...], code: int
) -> None:
    claims(*given)
    exit_code, out, err = run("reproduce", "--out", "r")
    assert (exit_code, err) == (code, "")
    lines = out.splitlines()
    assert [line.split()[0] for line in lines] == [*(each.id for each in given), "Report:"]
    assert Path(lines[-1].removeprefix("Report: ")).is_file()


def test_a_claim_that_raises_is_reported_with_its_message(claims: Callable[..., None]) -> None:
    claims(RAISES, HOLDS)
    _, out, _ = run("reproduce")
    assert "raises           error" in out
    assert "RuntimeError: no luck" in out
    assert "Title of holds [bold]  [gap: 1e-16 (expected < 1e-12)]" in out
    with pytest.raises(RuntimeError, match="luck"):
        RAISES.run()


def test_json_is_all_that_stdout_carries(claims: Callable[..., None]) -> None:
    claims(HOLDS, PARTLY)
    code, out, _ = run("reproduce", "holds", "--json", "--quick", "--rounds", "9")
    document = json.loads(out)
    assert code == 0
    assert document["setting"] == {"draws": 2, "rounds": 9, "quick": True}
    assert [each["id"] for each in document["verdicts"]] == ["holds"]
    assert Path(document["report"]).is_file()
    assert "fedlin reproduce holds --draws 2 --rounds 9 --quick" in Path(document["report"]).read_text(encoding="utf-8")


def test_listing_names_claims_and_runs_none(claims: Callable[..., None], tmp_path: Path) -> None:
    claims(HOLDS, RAISES)
    assert run("reproduce", "--list") == (
        0,
        "holds            Title of holds [bold]\nraises           Title of raises [bold]\n",
        "",
    )
    assert list(tmp_path.iterdir()) == []


def test_version() -> None:
    code, out, _ = run("--version")
    assert code == 0
    assert out.startswith("fedlin ")
    module = [sys.executable, "-m", "fedlin", "--version"]
    assert subprocess.run(module, capture_output=True, text=True, check=True).stdout == out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--draws", "0"], "draws must be at least 1, not 0"),
        (["--rounds", "-1"], "rounds must be at least 1, not -1"),
        (["hold"], "no claim is called 'hold' (did you mean 'holds'?)"),
        (["--list", "hold"], "no claim is called 'hold' (did you mean 'holds'?)"),
        (["--out", "theirs"], "theirs holds files that are not a report; name a new or an empty folder"),
        (["--out", "theirs/file"], "theirs/file is a file or a link; name another folder"),
        (
            ["--out", "theirs/file/out"],
            "cannot write to theirs/file/out: Not a directory; name another folder",
        ),
        (["--out", "."], ". cannot be replaced as a whole; name a folder inside it"),
    ],
)
def test_bad_input_is_one_line_and_touches_nothing(
    claims: Callable[..., None], tmp_path: Path, arguments: list[str], message: str
) -> None:
    claims(HOLDS, STOPPED)  # were any claim to start, the run would end otherwise
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "file").write_text("mine")
    assert run("reproduce", *arguments) == (2, "", f"fedlin: {message}\n")
    assert [path.name for path in tmp_path.rglob("*")] == ["theirs", "file"]
    assert (tmp_path / "theirs" / "file").read_text() == "mine"


def test_a_second_report_replaces_the_first(claims: Callable[..., None], tmp_path: Path) -> None:
    claims(HOLDS)
    run("reproduce", "--out", "r")
    assert (tmp_path / "r" / "figures" / "holds-fig4.png").is_file()
    claims(EXPECTED)
    assert run("reproduce", "--out", "r")[0] == 0
    assert not list((tmp_path / "r" / "figures").iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r"]


def test_an_interrupted_run_leaves_the_old_report(claims: Callable[..., None], tmp_path: Path) -> None:
    claims(HOLDS)
    run("reproduce", "--out", "r")
    before = (tmp_path / "r" / "index.html").read_bytes()
    claims(EXPECTED, STOPPED)
    assert run("reproduce", "--out", "r")[0] == 130
    assert (tmp_path / "r" / "index.html").read_bytes() == before
    assert (tmp_path / "r" / MARKER).is_file()
    assert os.listdir(tmp_path) == ["r"]


def test_a_terminal_gets_a_live_table() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=140, height=40)
    seen = show(verdicts([HOLDS, EXPECTED, RAISES], Setting()), 3, console)
    assert [each.id for each in seen] == ["holds", "expected", "raises"]
    shown = screen.getvalue()
    assert "checking" in shown
    assert "Title of holds [bold]" in shown
    assert "gap: 1e-16 (expected < 1e-12)" in shown
    assert "RuntimeError: no luck" in shown


def test_two_processes_find_what_one_does() -> None:
    """The numbers do not depend on how the claims were shared out."""
    claims = select(["eq-prox", "thm2a"])
    setting = Setting(quick=True, draws=1)
    one = {each.id: each.rows for each in verdicts(claims, setting)}
    two = {each.id: each.rows for each in verdicts(claims, setting, jobs=2)}
    assert one == two
