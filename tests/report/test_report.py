"""Verdicts, pictures, and the report's files; the page itself is opened in test_report_browser."""

import csv
import dataclasses
import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib import rcParams

from fedlin.errors import ArgumentError
from fedlin.report.figure import Curve, Figure, Panel
from fedlin.report.matplotlib_figures import draw, save
from fedlin.report.page import write_report
from fedlin.report.plotly_figures import plots
from fedlin.report.report_folder import MARKER, check_folder, staged
from fedlin.report.style import band, styles
from fedlin.report.verdict import Notice, Row, Verdict
from fedlin.report.wrong_method_tables import LEAD, in_one_line, listing, matrix
from report_samples import one_panel, three_panels, two_panels, verdicts

FIGURES = [one_panel(), two_panels(), three_panels()]


def verdict(*oks: bool | None, held: int = 1, draws: int = 1, should_hold: bool = True, error: str = "") -> Verdict:
    rows = tuple(Row(f"row {i}", str(i), "0", ok) for i, ok in enumerate(oks))
    return Verdict("v", "V", "It is so.", {}, rows, held, draws, should_hold, error=error)


@pytest.mark.parametrize(
    ("given", "judgement", "grade", "failed"),
    [
        (verdict(True, None), "holds", "good", False),
        (verdict(True, False), "does not hold", "bad", True),
        (verdict(held=3, draws=4), "holds on 3 of 4 draws", "bad", True),
        (verdict(held=0, draws=4), "does not hold", "bad", True),
        (verdict(held=0, should_hold=False), "does not hold, as expected", "noted", False),
        (verdict(held=3, draws=4, should_hold=False), "holds on 3 of 4 draws, as expected", "noted", False),
        (verdict(error="oh"), "error", "bad", True),
        (verdict(error="oh", should_hold=False), "error", "bad", True),
    ],
)
def test_a_verdict_is_judged(given: Verdict, judgement: str, grade: str, failed: bool) -> None:
    assert (given.judgement, given.grade, given.failed) == (judgement, grade, failed)


def test_a_false_from_numpy_is_a_missed_check() -> None:
    assert not verdict(np.bool_(False)).holds  # type: ignore[arg-type]


def test_the_key_line_is_the_most_telling_one() -> None:
    assert verdict(None, True, False).key == "row 2: 2 (expected 0)"
    assert verdict(None, True).key == "row 1: 1 (expected 0)"
    assert verdict(None).key == "row 0: 0 (expected 0)"
    assert verdict().key == ""
    assert verdict(error="oh").key == "oh"


def test_verdicts_go_into_json_without_their_pictures() -> None:
    data = json.loads(json.dumps([given.as_dict() for given in verdicts()]))
    assert [item["id"] for item in data] == ["prop1", "fig4", "thm6", "eq9", "broken"]
    assert data[0]["figures"] == ["rates"]
    assert data[2]["outcome"] == "holds on 6 of 8 draws"
    assert data[0]["rows"][1] == {
        "what": "distance from the minimiser",
        "measured": "0.083",
        "expected": "",
        "ok": None,
        "premise": False,
    }


class TestNotices:
    BY, PREMISE = Notice("ascends", "gap: 2", "not it", ""), Notice("stale", "", "a round: 0.1", "A delay is nothing.")
    PASSES, SLIPS = Notice("third", "", "", "Smaller steps converge."), Notice("still", "", "", "")

    def test_a_claim_fails_where_a_wrong_method_slips_through(self) -> None:
        good = dataclasses.replace(verdict(True), notices=(self.BY, self.PREMISE, self.PASSES))
        assert good.holds
        assert not good.failed
        assert dataclasses.replace(good, notices=(self.BY, self.SLIPS)).failed

    def test_a_broken_premise_fails_a_claim_that_was_expected_to(self) -> None:
        broken = Row("round maps", "2 apart", "1e-10", ok=False, premise=True)
        given = Verdict("v", "V", "So.", {}, (broken,), held=0, should_hold=False)
        assert given.failed

    def test_the_page_shows_what_each_claim_notices(self) -> None:
        given = [dataclasses.replace(verdict(True), notices=(self.BY, self.PREMISE, self.PASSES)), verdict(True)]
        shown = matrix(given)
        assert [shown.count(mark) - LEAD.count(mark) for mark in "●○–"] == [1, 1, 1]
        assert "3 wrong methods tried on 1 claims" in shown
        assert "0 slip through" in in_one_line(given)
        details = listing(given[0])
        assert "gap: 2" in details
        assert "A delay is nothing. Noticed by: a round: 0.1." in details
        assert listing(given[1]) == ""
        assert matrix(given[1:]) == in_one_line(given[1:]) == ""

    def test_a_skipped_claim_neither_holds_nor_fails(self) -> None:
        given = Verdict("v", "V", "So.", {}, (), skipped="no data")
        assert (given.holds, given.failed, given.judgement, given.grade) == (False, False, "skipped", "noted")
        assert given.key == "no data"


def test_nine_curves_have_nine_colours() -> None:
    x = np.array([0.0, 1.0])
    curves = tuple(Curve(f"method {number}", x, x + 1) for number in range(9))
    look = styles(Figure("nine", "Nine", (Panel("", "round", "error", curves),)))
    assert len({style.colour for style in look.values()}) == 9


def test_a_label_looks_the_same_in_every_panel_and_like_no_other() -> None:
    look = styles(three_panels())
    assert set(look) == {"τ = 1", "τ = 2", "τ = 5", "τ = 10", "τ = 20", "τ = 50", "bound"}
    assert len(set(look.values())) == len(look)
    # Without colour the marks still tell the measured curves apart.
    assert len({style.mark for style in look.values()}) == len(look)


def test_a_band_keeps_off_zero_on_a_logarithmic_axis() -> None:
    x, y = np.arange(3.0), np.array([1.0, 0.1, 0.01])
    curve = Curve("c", x, y, low=np.array([0.5, -1.0, 0.0]), high=np.array([2.0, np.nan, 0.02]))
    edges = band(curve, Panel("", "", "", (curve,), yscale="log"))
    assert edges is not None
    assert edges[0].tolist() == [0.0, 2.0]
    assert (edges[1] > 0).all()
    nothing = Curve("c", x, y, low=np.zeros(3), high=np.zeros(3))
    assert band(nothing, Panel("", "", "", (nothing,))) is None
    assert band(nothing, Panel("", "", "", (nothing,), yscale="linear")) is not None
    assert band(Curve("c", x, y), Panel("", "", "", ())) is None


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_paper_legends_cover_nothing_and_text_is_large_enough(figure: Figure) -> None:
    canvas = draw(figure)
    canvas.draw_without_rendering()
    page = canvas.bbox.padded(1)
    legends = [*canvas.legends, *(legend for axes in canvas.axes if (legend := axes.get_legend()))]
    boxes = sorted((legend.get_window_extent() for legend in legends), key=lambda box: box.x0)
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
    for axes in canvas.axes:
        label = axes.xaxis.label.get_window_extent()
        assert not any(box.overlaps(label) or box.overlaps(axes.bbox) for box in boxes)
        # What the frame holds, the page holds.
        frame = axes.get_tightbbox()
        assert frame is not None
        assert page.x0 <= frame.x0 < frame.x1 <= page.x1
        assert page.y0 <= frame.y0 < frame.y1 <= page.y1
        texts = [
            axes.title,
            axes.xaxis.label,
            axes.yaxis.label,
            *axes.get_xticklabels(),
            *axes.get_yticklabels(),
        ]
        assert min(float(text.get_fontsize()) for text in texts) >= 7
    assert min(float(text.get_fontsize()) for legend in legends for text in legend.get_texts()) >= 7


@pytest.mark.parametrize("last", [0.2, 0.55, 3.0, 40.0])
def test_numbers_along_a_logarithmic_axis_do_not_meet(last: float) -> None:
    """From a part of a decade to several, in a row of three panels as the narrowest are drawn."""
    x = np.geomspace(0.03, last, 9)
    panel = Panel("Bytes", "megabytes", "gap", (Curve("c", x, x[::-1]),), xscale="log")
    canvas = draw(Figure("axis", "", (panel,) * 3))
    canvas.draw_without_rendering()
    for axes in canvas.axes:
        labels = [*axes.get_xticklabels(), *axes.get_xticklabels(minor=True)]
        shown = [label.get_window_extent() for label in labels if label.get_text()]
        inside = sorted(
            (box for box in shown if axes.bbox.x0 <= (box.x0 + box.x1) / 2 <= axes.bbox.x1), key=lambda b: b.x0
        )
        assert inside
        assert all(left.x1 < right.x0 for left, right in pairwise(inside))


def test_paper_panels_share_one_legend_where_their_labels_agree() -> None:
    shared, own = draw(three_panels()), draw(two_panels())
    assert len(shared.legends) == 1
    assert not any(axes.get_legend() for axes in shared.axes)
    assert not own.legends
    assert all(axes.get_legend() for axes in own.axes)


def test_saving_a_picture_twice_gives_the_same_bytes_and_leaves_matplotlib_alone(tmp_path: Path) -> None:
    before = dict(rcParams)
    first = [path.read_bytes() for path in save(two_panels(), tmp_path)]
    second = [path.read_bytes() for path in save(two_panels(), tmp_path)]
    assert first == second
    assert dict(rcParams) == before
    assert {path.name for path in tmp_path.iterdir()} == {"rates.png", "rates.svg"}


def test_curves_hard_to_draw_are_drawn(tmp_path: Path) -> None:
    x = np.arange(0.0, 30.0)  # zero has no place on a logarithmic axis
    panel = Panel(
        "Zeros, gaps and nothing",
        "x",
        "y",
        (
            Curve("all zero", x, np.zeros_like(x), low=np.zeros_like(x), high=np.zeros_like(x)),
            Curve("a gap", x, np.where(x == 5, np.nan, x), low=x / 2, high=np.where(x == 7, np.inf, x)),
            Curve("one point", np.array([3.0]), np.array([2.0])),
        ),
        xscale="log",
    )
    figure = Figure("hard", "Hard", (panel, Panel("No curve", "x", "y", ())))
    save(figure, tmp_path)
    assert len(plots(figure)) == 2


def test_a_plot_groups_each_curve_with_its_band() -> None:
    (plot,) = plots(one_panel())
    groups = [trace.legendgroup for trace in plot.data]
    assert groups.count("FedProx, β = 1") == 2
    assert groups.count("predicted floor") == 1
    assert [trace.showlegend for trace in plot.data if trace.fill == "toself"] == [False] * 3


def test_text_from_a_claim_is_never_markup(tmp_path: Path) -> None:
    curve = Curve("</script><b>", np.arange(2.0), np.ones(2))
    figure = Figure("f", "<i>", (Panel("<u>", "<x>", "<y>", (curve,)),), "<s>")
    sly = Verdict("sly", "<h1>", "<p>", {"<k>": "<v>"}, (Row("<a>", "<b>", "<c>"),), figures=(figure,), error="<e>")
    text = write_report([sly], tmp_path / "out", title="<t>", command="<cmd>").read_text(encoding="utf-8")
    for tag in ("<b>", "<i>", "<u>", "<x>", "<s>", "<k>", "<v>", "<c>", "<e>", "<t>", "<cmd>"):
        assert tag not in text


def test_the_report_holds_every_file_and_every_number(tmp_path: Path) -> None:
    page = write_report(verdicts(), tmp_path / "deep" / "out")
    folder = page.parent
    assert {path.name for path in folder.iterdir()} == {
        MARKER,
        "index.html",
        "plotly.min.js",
        "verdicts.json",
        "figures",
        "data",
    }
    stems = {"prop1-rates", "fig4", "thm6"}
    assert {path.name for path in (folder / "data").iterdir()} == {f"{stem}.csv" for stem in stems}
    assert {path.stem for path in (folder / "figures").iterdir()} == stems
    assert json.loads((folder / "verdicts.json").read_text(encoding="utf-8"))[0]["id"] == "prop1"
    with (folder / "data" / "prop1-rates.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    curve = two_panels().panels[1].curves[0]
    assert curve.low is not None
    mine = [row for row in rows if row["curve"] == "FedProx"]
    assert [float(row["y"]) for row in mine] == curve.y.tolist()
    assert [float(row["low"]) for row in mine] == curve.low.tolist()
    assert {row["low"] for row in rows if row["kind"] == "theory"} == {""}


def test_the_report_is_the_same_every_time(tmp_path: Path) -> None:
    def contents() -> dict[str, bytes]:
        folder = write_report(verdicts(), tmp_path / "out").parent
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    assert contents() == contents()


def test_the_page_says_what_was_found(tmp_path: Path) -> None:
    text = write_report(verdicts(), tmp_path / "out").read_text(encoding="utf-8")
    assert "What the paper does not say" in text
    assert "LinAlgError: singular &lt;matrix&gt;" in text
    assert "fedlin reproduce thm6 --out reports/thm6" in text
    assert "http://" not in text
    assert "https://" not in text
    sections = [text.index(name) for name in ("<h2>Why the others", "<h2>Linear", "<h2>Compression")]
    assert sections == sorted(sections)
    quiet = write_report([verdict(True)], tmp_path / "quiet").read_text(encoding="utf-8")
    assert "What the paper does not say" not in quiet


def test_a_broken_write_leaves_the_old_report_and_no_litter(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    write_report([verdict(True)], folder)
    before = (folder / "index.html").read_bytes()

    def stop_halfway() -> None:
        with staged(folder) as fresh:
            (fresh / "index.html").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop_halfway()
    assert (folder / "index.html").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_failed_swap_puts_the_old_report_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "out"
    write_report([verdict(True)], folder)
    rename = Path.rename

    def full(path: Path, target: Path) -> Path:
        if path.name.endswith(".new"):
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(ArgumentError, match="No space left"):
        write_report([verdict(False)], folder)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert "does not hold" not in (folder / "index.html").read_text(encoding="utf-8")


def test_folders_that_are_not_ours_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    check_folder(theirs)  # empty: nothing to lose
    (theirs / "thesis.tex").write_text("years of work")
    with pytest.raises(ArgumentError, match="not a report"):
        check_folder(theirs)
    with pytest.raises(ArgumentError, match="a file or a link"):
        check_folder(theirs / "thesis.tex")
    with pytest.raises(ArgumentError, match="cannot write"):
        check_folder(theirs / "thesis.tex" / "out")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "empty")
    with pytest.raises(ArgumentError, match="a file or a link"):
        check_folder(link)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError, match="a folder inside it"):
        check_folder(Path("."))
    assert (theirs / "thesis.tex").read_text() == "years of work"


def test_a_folder_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(**kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryDirectory", forbidden)
    with pytest.raises(ArgumentError, match=r"cannot write to .*out: Permission denied; name another folder"):
        check_folder(tmp_path / "out")


def test_a_report_without_pictures_links_to_none(tmp_path: Path) -> None:
    page = write_report(verdicts(), tmp_path / "out", pictures=False)
    text = page.read_text(encoding="utf-8")
    assert ".png" not in text
    assert ".svg" not in text
    assert not (page.parent / "figures").exists()
    for link in re.findall(r'<a download href="([^"]+)"', text):
        assert (page.parent / link).is_file()
