"""Preparation as a federation does it: the same as on pooled rows, whatever the split, from files of every kind."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from fedlin import data
from fedlin.data import Recipe
from fedlin.data.column_summary import ColumnSummary, from_bytes, merge_summaries, summarise, to_bytes
from fedlin.data.fit_preparation import fit_preparation
from fedlin.data.number_text import numbers
from fedlin.data.preparation import Preparation
from fedlin.data.prepare_table import plain_labels, summarise_columns, summarise_table, with_labels
from fedlin.data.raw_table import RawTable
from fedlin.errors import DataError, FedLinError
from hospital_table import NUMBERS, SIZES, TEXTS, hospital_rows, write_hospitals

ROWS = hospital_rows()[:800]
COLUMNS = {name: np.array([row[name] for row in ROWS], object) for name in ROWS[0]}
LABELS, SITES = COLUMNS.pop("outcome"), COLUMNS.pop("hospital").astype(str)
TABLE = RawTable(COLUMNS, LABELS, SITES)
ABSENT = ("", "NA", "?")


def known(name: str) -> Any:
    """A column of numbers, NaN where it is missing."""
    return np.array([np.nan if value in ABSENT else float(value) for value in COLUMNS[name]])


# The same as on pooled rows.


def test_clients_prepare_what_scikit_learn_prepares_from_pooled_rows() -> None:
    prepared = data.prepare(TABLE)
    X = np.concatenate(prepared.train.X)
    order = np.concatenate([np.flatnonzero(name == SITES) for name in prepared.train.clients])
    features = dict(zip(prepared.preparation.names, X.T, strict=True))
    raw = np.column_stack([known(name) for name in NUMBERS])[order]
    theirs = StandardScaler().fit(raw).transform(SimpleImputer().fit_transform(raw))
    np.testing.assert_allclose(np.column_stack([features[name] for name in NUMBERS]), theirs, atol=1e-9)
    for name in ("ward", "diagnosis"):
        hot = OneHotEncoder(sparse_output=False).fit(COLUMNS[name][:, None])
        mine = np.column_stack([features[f"{name}={level}"] for level in hot.categories_[0]])
        np.testing.assert_array_equal(mine, hot.transform(COLUMNS[name][order][:, None]))
    np.testing.assert_array_equal(features["sex=male"], COLUMNS["sex"][order] == "male")
    np.testing.assert_array_equal(features["smoker=(missing)"], np.isin(COLUMNS["smoker"][order], ABSENT))
    np.testing.assert_array_equal(features["intercept"], 1)
    assert set(features) >= {f"smoker={word}" for word in TEXTS["smoker"]}
    assert not any(name.startswith(("patient", "country")) for name in features)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 40), st.integers(0, 10**6))
def test_any_split_prepares_alike(clients: int, seed: int) -> None:
    """Merging summaries is exact, so that who holds which row changes nothing beyond rounding."""
    whole = summarise_columns(COLUMNS, Recipe())
    split = data.iid(len(LABELS), clients, seed=seed)
    parts = merge_summaries([summarise_columns(TABLE.take(rows).columns, Recipe()) for rows in split.indices])
    one, other = fit_preparation(Recipe(), whole), fit_preparation(Recipe(), parts)
    assert one.names == other.names
    np.testing.assert_allclose(one.transform(COLUMNS), other.transform(COLUMNS), rtol=1e-9, atol=1e-9)


def test_a_mean_far_from_zero_keeps_the_deviation() -> None:
    """Sums of squares would lose it: 10⁹ squared is 10¹⁸, of which doubles keep sixteen figures."""
    values = 1e9 + np.random.default_rng(0).standard_normal(1000)
    parts = [summarise(values[rows]) for rows in data.iid(1000, 7).indices]
    merged = merge_summaries([{"x": part} for part in parts])["x"].moments
    assert merged.deviation == pytest.approx(values.std(), rel=1e-6)
    assert (merged.low, merged.high, merged.count) == (values.min(), values.max(), 1000)


def test_quantiles_are_within_the_sketchs_promise() -> None:
    values = np.random.default_rng(1).lognormal(size=20_000)
    parts = [{"x": summarise(values[rows], sketch=True)} for rows in data.quantity(20_000, 9, 0.5).indices]
    merged = merge_summaries(parts)["x"]
    for share in (0.05, 0.25, 0.5, 0.75, 0.95):
        rank = np.mean(values <= merged.quantile(share))
        assert abs(rank - share) <= 1 / 200


def test_robust_scaling_puts_the_median_at_zero_and_the_quartiles_one_apart() -> None:
    recipe = Recipe(keep=("glucose",), scale="robust", fill="median", intercept=False)
    present = RawTable({"glucose": known("glucose")}, LABELS, SITES).take(np.isfinite(known("glucose")))
    low, middle, high = np.quantile(np.concatenate(data.prepare(present, recipe).train.X)[:, 0], [0.25, 0.5, 0.75])
    assert abs(middle) < 0.02
    assert high - low == pytest.approx(1.0, abs=0.02)
    ranged = np.concatenate(data.prepare(TABLE, Recipe(keep=("glucose",), scale="range")).train.X)[:, 0]
    assert (ranged.min(), ranged.max()) == (0.0, 1.0)


# What travels.


def test_messages_are_what_they_were_after_the_journey_and_are_counted() -> None:
    recipe = Recipe(scale="robust")
    messages = []
    for rows in data.by_column(SITES).indices:
        summaries = summarise_table(TABLE.take(rows), recipe)
        messages.append(to_bytes(summaries))
        assert from_bytes(messages[-1]) == summaries
    preparation = fit_preparation(recipe, merge_summaries([from_bytes(message) for message in messages]))
    assert Preparation.from_bytes(preparation.to_bytes()) == preparation
    prepared = data.prepare(TABLE, recipe)
    assert prepared.preparation == preparation
    assert prepared.bytes_up == sum(map(len, messages))
    assert prepared.bytes_down == len(preparation.to_bytes()) * len(messages)


def test_numbers_leave_a_client_as_sums_and_dropped_columns_not_at_all() -> None:
    told = json.loads(to_bytes(summarise_columns(COLUMNS, Recipe(drop=("patient",)))))
    assert "patient" not in told
    assert told["age"]["words"] == {}
    assert told["age"]["sketch"] == []
    assert not any(value in json.dumps(told["age"]) for value in COLUMNS["age"][:50] if len(value) > 4)


@pytest.mark.parametrize("message", [b"", b"[]", b"{}x", b'{"a": {"rows": 1}}', b'{"a": 3}', b"\xff"])
def test_a_message_of_another_form_is_refused(message: bytes) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        from_bytes(message)
    with pytest.raises(DataError, match="cannot be read"):
        Preparation.from_bytes(message)


# Files as people write them.

CLEAN = """name,age,cost,visit,ok,site,label
"Ann, B.",30,1200.5,2020-03-01,yes,01,ill
Bob,41.5,980,2020-12-24,no,1,well
Çem,,15,2021-01-31,yes,01,ill
Dan,55,2000.25,2019-07-15,no,1,well
"""
VARIANTS: dict[str, bytes] = {
    "clean": CLEAN.encode(),
    "BOM and Windows line ends": b"\xef\xbb\xbf" + CLEAN.replace("\n", "\r\n").encode(),
    "UTF-16": CLEAN.encode("utf-16"),
    "Western": CLEAN.encode("cp1252"),
    "blank lines and spaces": ("\n" + CLEAN.replace(",", ", ").replace('"Ann,  B."', '"Ann, B."') + "\n\n").encode(),
    "tabs": CLEAN.replace('"Ann, B."', "Ann@ B.").replace(",", "\t").replace("@", ",").encode(),
    "bars": CLEAN.replace('"Ann, B."', "Ann@ B.").replace(",", "|").replace("@", ",").encode(),
    "semicolons and decimal commas": CLEAN.replace('"Ann, B."', "Ann@ B.").replace(",", ";").replace("@", ",")
    .replace("41.5", "41,5").replace("1200.5", "1.200,5").replace("2000.25", "2.000,25").encode(),
    "thousands": CLEAN.replace("1200.5", '"1,200.5"').replace("2000.25", '"$2,000.25"').encode(),
    "missing codes": CLEAN.replace("Çem,,", "Çem,n/a,").encode(),
    "a separator at the end of every line": CLEAN.replace("\n", ",\n").encode(),
    "a separator at the end of every row": CLEAN.replace("\n", ",\n").replace("label,", "label").encode(),
    "remarks before the names": ("# exported in May\n\nBy ward 3,,\n" + CLEAN).encode(),
    "a spreadsheet's line": ("sep=,\n" + CLEAN).encode(),
    "UTF-16 without a mark": CLEAN.encode("utf-16-le"),
    "old line ends": CLEAN.replace("\n", "\r").encode(),
    "units": CLEAN.replace("30,", "30 y,").replace("41.5", "41.5 y").replace("55,", "55y,").encode(),
    "apostrophes": CLEAN.replace("1200.5", "1'200.5").replace("2000.25", "2’000.25").encode(),
    "narrow spaces": CLEAN.replace("1200.5", "1\u202f200.5").replace("2000.25", "2\u00a0000.25").encode(),
    "single quotes": CLEAN.replace("1200.5", "'1200.5'").replace("980", "'980'").encode(),
    "names in single quotes": CLEAN.replace("age", "'age'").replace("site", "'site'").encode(),
    "spaces": CLEAN.replace('"Ann, B."', '"Ann@ B."').replace("Çem,,", "Çem,NA,").replace(",", "  ")
    .replace("@", ",").replace("Bob", "  Bob").replace("ill\n", "ill \n").encode(),
    "limits": CLEAN.replace(",15,", ",<15,").encode(),
    "a currency's name": CLEAN.replace("1200.5", "EUR 1200.5").replace("980", "EUR 980").encode(),
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_a_table_is_the_same_however_it_is_written(name: str, tmp_path: Path) -> None:
    reference, file = tmp_path / "clean.csv", tmp_path / "table.csv"
    reference.write_bytes(VARIANTS["clean"])
    file.write_bytes(VARIANTS[name])
    one, other = (data.read_table(path, client="site") for path in (reference, file))
    assert list(other.columns) == list(one.columns)
    assert other.clients is not None
    assert other.clients.tolist() == ["01", "1", "01", "1"]
    assert other.y.tolist() == one.y.tolist()
    assert other.columns["name"].tolist() == one.columns["name"].tolist()
    for column in ("age", "cost"):
        np.testing.assert_array_equal(numbers(other.columns[column]), numbers(one.columns[column]))
    assert one.notes == ()
    first, second = (data.prepare(table).preparation for table in (one, other))
    assert first.columns == second.columns


def test_a_compressed_table_and_a_parquet_of_it_are_the_table(tmp_path: Path) -> None:
    import pandas as pd

    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(VARIANTS["clean"]))
    frame = pd.read_csv(tmp_path / "a.csv.gz", dtype={"site": str})
    frame["visit"] = pd.to_datetime(frame["visit"]).dt.date
    frame.to_parquet(tmp_path / "a.parquet")
    packed, parquet = (data.read_table(tmp_path / name, client="site") for name in ("a.csv.gz", "a.parquet"))
    assert packed.columns["cost"].tolist() == ["1200.5", "980", "15", "2000.25"]
    assert parquet.clients is not None
    assert parquet.clients.tolist() == ["01", "1", "01", "1"]
    np.testing.assert_allclose(
        np.concatenate(data.prepare(packed).train.X), np.concatenate(data.prepare(parquet).train.X), atol=1e-12
    )


def test_a_first_line_of_numbers_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2,0\n3,4,1\n")
    table = data.read_table(tmp_path / "a.csv")
    assert (table.rows, list(table.columns)) == (2, ["column 1", "column 2"])
    assert "counts as a row and not as names" in table.notes[0]


def test_two_columns_of_one_name_get_two(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,a,,label\n1,2,3,x\n4,5,6,y\n")
    table = data.read_table(tmp_path / "a.csv")
    assert list(table.columns) == ["a", "a (2)", "unnamed column 3"]
    assert table.notes == ("a second column is called 'a', and was named 'a (2)'",)


def test_two_columns_of_labels_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,ill,ill\n1,2,x\n4,5,y\n")
    with pytest.raises(DataError, match="two columns called 'ill', that of the labels"):
        data.read_table(tmp_path / "a.csv", label="ill")


def test_names_of_rows_as_r_writes_them_are_no_feature(tmp_path: Path) -> None:
    rows = "".join(f'"{i + 1}",{i * i % 31}.5,s{i % 2},{i % 3}\n' for i in range(30))
    (tmp_path / "a.csv").write_text(f"age,site,label\n{rows}")
    prepared = data.prepare(data.read_table(tmp_path / "a.csv", client="site"))
    assert prepared.preparation.names == ("age", "intercept")


def test_names_of_rows_are_no_feature_where_spaces_separate(tmp_path: Path) -> None:
    rows = "".join(f'"{i + 1}" {i * i % 31}.5 "ward {i % 2}" {i % 3}\n' for i in range(30))
    (tmp_path / "a.txt").write_text(f'"age" "site" "label"\n{rows}')
    table = data.read_table(tmp_path / "a.txt", client="site")
    assert data.prepare(table).preparation.names == ("age", "intercept")
    assert table.clients is not None
    assert set(table.clients.tolist()) == {"ward 0", "ward 1"}
    assert "fields are separated by spaces" in table.notes


def test_codes_for_missing_entries_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("age,ward,label\n30,a,x\n-999,Unknown,y\n40,b,\n")
    plain = data.read_table(tmp_path / "a.csv")
    table = data.read_table(tmp_path / "a.csv", missing=["-999", "unknown"])
    assert numbers(plain.columns["age"]).tolist() == [30, -999, 40]
    np.testing.assert_array_equal(numbers(table.columns["age"]), [30, np.nan, 40])
    assert table.columns["ward"].tolist() == ["a", None, "b"]
    assert with_labels(table).rows == 2
    assert with_labels(table).notes == ("1 rows without a label left out",)


# What is noticed.


def noticed(name: str, entries: list[str], **recipe: Any) -> tuple[Preparation | None, str]:
    """What becomes of a column beside one of plain numbers, and what is said of it."""
    n = len(entries)
    columns = {"plain": np.arange(n, dtype=np.float64) ** 2, name: np.array(entries, object)}
    preparation = fit_preparation(Recipe(**recipe), {key: summarise(column) for key, column in columns.items()})
    return preparation, " ".join(note for note in preparation.notes if note.startswith(f"{name}:"))


@pytest.mark.parametrize(
    ("name", "entries", "words", "kept"),
    [
        ("who", [f"P{i}" for i in range(50)], "an entry of its own (an id?)", False),
        ("id", [str(7 * i + 3) for i in range(50)], "a number of its own (an id?)", False),
        ("row", [str(i) for i in range(1, 51)], "a number of its own (an id?)", False),
        ("age", [str(7 * i + 3) for i in range(50)], "", True),  # distinct too, and yet no id
        (
            "who",
            [str(i * 17 % 50) for i in range(50)],
            "a number of its own (an id?)",
            False,
        ),  # given one after another
        ("area", [f"{i % 7:03d}" for i in range(50)], "", True),
        (
            "dose",
            [str(i / 8) for i in range(40)] + ["unknown"] * 10,
            "10 entries such as 'unknown' are no numbers",
            True,
        ),
        ("sex", ["m", "f", "M", "f", "m"] * 10, "'m', 'M' differ in capital letters alone", True),
        ("seen", [f"2020-01-{i % 28 + 1:02d}" for i in range(49)] + ["soon"], "1 entries that do not fit", True),
        ("land", ["X"] * 50, "is 'X' in every row", False),
        ("dose", ["5"] * 50, "is 5 in every row", False),
        ("dose", ["5"] * 49 + [""], "", True),  # missing or not says something
        ("empty", ["NA"] * 50, "it is empty", False),
        ("age", [str(i % 9) for i in range(49)] + ["old"], "1 entries such as 'old' are no numbers", True),
        ("age", [str(i % 9) for i in range(45)] + ["-999"] * 5, "-999 in 5 rows lies far from all others", True),
        ("age", [str(i % 9) for i in range(49)] + ["14"], "", True),
        ("age", [str(i % 9) for i in range(49)] + ["-999"], "-999 in 1 rows lies far from all others", True),
        ("seen", [f"2020-01-{i % 28 + 1:02d}" for i in range(50)], "dates of the form %Y-%m-%d, used as days", True),
        ("seen", [f"{i % 12 + 1:02d}/{i % 12 + 1:02d}/2020" for i in range(50)], "though %m/%d/%Y fits as well", True),
        ("seen", [f"{i % 28 + 1:02d}.03.2020" for i in range(50)], "dates of the form %d.%m.%Y", True),
        ("town", [f"t{i % 60}" for i in range(600)], "of 60 words the 50 most frequent have a feature", True),
    ],
)
def test_columns_that_look_odd_are_pointed_out(name: str, entries: list[str], words: str, kept: bool) -> None:
    preparation, said = noticed(name, entries)
    assert words in said
    assert (said == "") == (words == "")
    assert preparation is not None
    assert (name in [column.name for column in preparation.columns]) == kept


def test_a_column_asked_for_by_name_stays() -> None:
    preparation, _ = noticed("id", [str(7 * i + 3) for i in range(50)], keep=("plain", "id"))
    assert preparation is not None
    assert [column.name for column in preparation.columns] == ["plain", "id"]


def test_numbers_can_be_words_and_rare_words_share_a_feature() -> None:
    codes = np.array([str(i % 4 + 1) for i in range(40)] + ["9", "8"], object)
    summary = {"ward": summarise(codes, as_words=True)}
    preparation = fit_preparation(Recipe(words=("ward",), most_words=4, intercept=False), summary)
    assert preparation.names == ("ward=1", "ward=2", "ward=3", "ward=4", "ward=(other)")
    X = preparation.transform({"ward": np.array(["2", "9", "77", ""], object)})
    np.testing.assert_array_equal(X, [[0, 1, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 1], [0, 0, 0, 0, 1]])


def test_truth_values_are_one_word_however_they_are_spelled() -> None:
    """At every client, and of rows that come later in a spelling nobody has told of."""
    north, south = (summarise(np.array(words, object)) for words in (["Yes", "no", "Yes"], ["yes", "NO", "Norway"]))
    preparation = fit_preparation(Recipe(intercept=False), {"x": north.merge(south)})
    assert preparation.names == ("x=NO", "x=Norway", "x=Yes")
    X = preparation.transform({"x": np.array(["YES", "No", "norway"], object)})
    np.testing.assert_array_equal(X, [[0, 0, 1], [1, 0, 0], [0, 0, 0]])
    two = fit_preparation(Recipe(intercept=False), {"x": north})
    np.testing.assert_array_equal(two.transform({"x": np.array(["yes", "NO", "no"], object)}), [[0], [1], [1]])


def test_words_of_thousands_are_told_no_further_than_the_limit() -> None:
    many = np.array([f"w{i % 3000}" for i in range(6000)], object)
    summary = summarise(many)
    assert len(summary.words) == 1000
    assert summary.cut
    assert summary.distinct == 3000
    preparation = fit_preparation(Recipe(most_words=10, intercept=False), {"x": summary})
    assert len(preparation.names) == 11


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ({"keep": "age"}, "keep = 'age' is not allowed: give a list"),
        ({"drop": ["ago"]}, "drop names 'ago', which is no column of features: choose among"),
        ({"scale": "log"}, "scale = 'log'"),
        ({"fill": "mode"}, "fill = 'mode'"),
        ({"most_words": 0}, "most_words = 0"),
        ({"intercept": 1}, "intercept = 1"),
        ({"keep": ["country"]}, "no column is left to learn from: country: left out"),
    ],
)
def test_a_recipe_that_cannot_be_followed_is_refused(recipe: dict[str, Any], words: str) -> None:
    columns = {"age": COLUMNS["age"], "country": COLUMNS["country"]}
    with pytest.raises(FedLinError, match=words):
        data.prepare(RawTable(columns, LABELS, SITES), Recipe(**recipe))


# What is held out.


@pytest.mark.parametrize("by", ["row", "client"])
@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_held_out_rows_are_the_others_and_no_client_learns_from_nothing(by: str, share: float) -> None:
    part = data.by_column(SITES)
    held = data.hold_out(part, share, by, seed=3)
    train, test = np.concatenate(held.train), np.concatenate(held.test)
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(len(SITES)))
    assert min(map(len, held.train)) >= 1
    if by == "row":
        assert held.train_names == part.names
        for name, rows in zip(held.test_names, held.test, strict=True):
            total = int(np.sum(name == SITES))
            assert len(rows) == min(round(share * total), total - 1)
    else:
        assert set(held.train_names) | set(held.test_names) == set(part.names)
        assert len(held.test_names) == round(share * part.clients)
    again = data.hold_out(part, share, by, seed=3)
    assert all(np.array_equal(a, b) for a, b in zip(held.test, again.test, strict=True))


def test_what_is_held_out_is_not_prepared_from() -> None:
    prepared = data.prepare(TABLE, test=0.25)
    X = np.concatenate(prepared.train.X)
    place = prepared.preparation.names.index("age")
    missing = np.mean(np.isnan(known("age")))
    assert abs(X[:, place].mean()) < 1e-9, "the mean of what is learnt from, and not of all"
    assert 0.9 < X[:, place].std() < 1.0 or missing == 0
    assert abs(np.concatenate(prepared.test.X)[:, place].mean()) > 1e-6


@pytest.mark.parametrize(
    ("share", "by"), [(1.0, "row"), (-0.1, "row"), (0.5, "column"), (0.99, "client"), ("x", "row")]
)
def test_a_split_that_leaves_one_side_empty_is_refused(share: Any, by: str) -> None:
    with pytest.raises(FedLinError):
        data.hold_out(data.by_column(SITES), share, by)


def test_labels_are_numbers_where_all_are() -> None:
    assert plain_labels(np.array(["1", "2.5"], object)).tolist() == [1.0, 2.5]
    assert plain_labels(np.array(["1", "b"], object)).tolist() == ["1", "b"]


def test_the_hospitals_table_is_what_it_says(tmp_path: Path) -> None:
    write_hospitals(tmp_path / "hospitals.csv")
    table = data.read_table(tmp_path / "hospitals.csv", label="outcome", client="hospital")
    sizes = {name: len(rows) for name, rows in zip(*_parts(table), strict=True)}
    assert sizes == {f"{place + 1:02d}": size for place, size in enumerate(SIZES)}
    assert len(data.prepare(table).preparation.names) == 32


def _parts(table: RawTable) -> tuple[Any, Any]:
    part = data.by_column(table.clients)
    return part.names, part.indices


def test_a_merged_summary_of_one_client_is_its_own() -> None:
    summary = summarise(COLUMNS["ward"])
    assert summary.merge(ColumnSummary()) == summary
