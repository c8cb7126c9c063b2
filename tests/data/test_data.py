"""Reading, fetching and dealing data: nothing is lost, nothing is made up, and mistakes are told by file and row."""

import gzip
import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from fedlin import data, problems, theory
from fedlin.cache import VARIABLE
from fedlin.data import download
from fedlin.errors import ArgumentError, DataError
from realdata import data_file

LABELS = np.repeat(np.arange(4), [40, 30, 20, 10])
DEALERS: dict[str, Callable[[int, int], data.Partition]] = {
    "iid": lambda m, seed: data.iid(LABELS, m, seed=seed),
    "dirichlet": lambda m, seed: data.dirichlet(LABELS, m, 0.01, seed=seed),
    "shards": lambda m, seed: data.shards(LABELS, m, 1, seed=seed),
    "quantity": lambda m, seed: data.quantity(len(LABELS), m, 0.01, seed=seed),
    "column": lambda m, seed: data.by_column(np.random.default_rng(seed).permutation(np.arange(len(LABELS)) % m)),
}


# Dealing rows


@pytest.mark.parametrize("name", DEALERS)
@settings(max_examples=25, deadline=None)
@given(clients=st.integers(1, 100), seed=st.integers(0, 2**32))
def test_every_row_goes_to_one_client_and_no_client_goes_without(name: str, clients: int, seed: int) -> None:
    part = DEALERS[name](clients, seed)
    assert part.clients == len(part.names) == clients
    assert min(map(len, part.indices)) >= 1
    assert np.array_equal(np.sort(np.concatenate(part.indices)), np.arange(len(LABELS)))
    again = DEALERS[name](clients, seed)
    assert all(np.array_equal(a, b) for a, b in zip(part.indices, again.indices, strict=True))


@pytest.mark.parametrize("name", ["iid", "dirichlet", "shards", "quantity"])
def test_another_seed_deals_other_rows(name: str) -> None:
    first, second = (DEALERS[name](5, seed) for seed in (0, 1))
    assert any(not np.array_equal(a, b) for a, b in zip(first.indices, second.indices, strict=True))


def test_iid_clients_differ_in_size_by_one_at_most() -> None:
    sizes = [len(rows) for rows in data.iid(100, 7).indices]
    assert max(sizes) - min(sizes) <= 1


def test_large_alpha_deals_every_label_evenly_and_small_alpha_to_few() -> None:
    y = np.tile([0, 1], 5000)
    even = data.dirichlet(y, 10, 1e4).table(y)
    assert (even[[0, 1]] - 500).abs().to_numpy().max() < 50  # 1/√α of 500 rows is 5; ten times that
    few = data.dirichlet(y, 10, 0.01).table(y)
    assert (few[[0, 1]].min(axis=1) / few["rows"]).median() < 0.01


def test_the_mean_share_of_a_client_is_one_of_m() -> None:
    sizes = [[len(rows) for rows in data.quantity(1000, 4, 1.0, seed=seed).indices] for seed in range(200)]
    # Var of a Dirichlet(1,1,1,1) share is 3/80, so the mean over 200 draws is within 4 standard errors.
    assert np.abs(np.mean(sizes, axis=0) / 1000 - 1 / 4).max() < 4 * np.sqrt(3 / 80 / 200)


def test_shards_give_each_client_few_labels() -> None:
    y = np.repeat(np.arange(10), 60)
    table = data.shards(y, 20, labels=2).table(y)
    assert (table["rows"] == 30).all()
    assert ((table[list(range(10))] > 0).sum(axis=1) <= 2).all()


def test_take_follows_the_rows_and_table_counts_them() -> None:
    X, y = np.arange(200.0).reshape(100, 2), LABELS
    part = data.dirichlet(y, 6, 0.3, seed=2)
    X_each, y_each = part.take(X, y)
    for rows, X_i, y_i in zip(part.indices, X_each, y_each, strict=True):
        assert np.array_equal(X_i, X[rows])
        assert np.array_equal(y_i, y[rows])
    table = part.table(y)
    assert table["rows"].sum() == 100
    assert table[[0, 1, 2, 3]].sum().tolist() == [40, 30, 20, 10]
    assert table["client"].tolist() == list(part.names)


def test_the_picture_shows_the_counts() -> None:
    part = data.dirichlet(LABELS, 80, 0.1)
    axes = part.plot(LABELS).axes[0]
    heights = np.array([[bar.get_height() for bar in layer] for layer in axes.containers])
    assert np.array_equal(heights, part.table(LABELS)[[0, 1, 2, 3]].to_numpy().T)
    assert [text.get_text() for text in part.plot(LABELS).legends[0].get_texts()] == ["3", "2", "1", "0"]
    assert not part.plot().legends


def test_sparse_and_dense_rows_give_the_same_problem() -> None:
    draw = np.random.default_rng(0)
    X = draw.standard_normal((100, 7)) * (draw.random((100, 7)) < 0.3)
    y = data.signs(LABELS > 1)
    part = data.quantity(100, 5, 1.0)
    for build in (problems.logistic, problems.regression):
        dense, thin = (build(*part.take(form, y), l2=0.1) for form in (X, sparse.csr_array(X)))
        assert np.array_equal(dense.minimizer, thin.minimizer)
        assert np.array_equal(dense.grad(np.ones(7)), thin.grad(np.ones(7)))


def test_sparse_rows_too_large_to_write_out_are_refused() -> None:
    X: Any = [sparse.csr_array((10, 2**20)), sparse.csr_array((1000, 2**20))]
    with pytest.raises(DataError, match="2,097,152,000 entries"):
        problems.logistic(X, [np.ones(10), np.ones(1000)])


# How much clients differ


def test_heterogeneity_of_a_quadratic_is_the_theorys() -> None:
    problem = problems.least_squares(clients=4, dim=3, samples=10)
    found = data.heterogeneity(problem)
    assert tuple(theory.dissimilarity(problem)) == (found.C, found.D)
    gradients = problem.data.A @ problem.minimizer - problem.data.b
    np.testing.assert_allclose(found.dissimilarity, np.mean(np.sum(gradients**2, axis=1)), rtol=1e-10)
    np.testing.assert_allclose(found.relative, found.dissimilarity / np.mean(np.sum(problem.data.b**2, axis=1)))


def test_heterogeneity_is_zero_for_equal_clients_and_grows_as_labels_part() -> None:
    draw = np.random.default_rng(1)
    X = np.column_stack([np.ones(400), draw.standard_normal((400, 2))])
    y = np.where(draw.random(400) < 0.5, 1.0, -1.0)
    same = data.heterogeneity(problems.logistic([X, X], [y, y], l2=0.1))
    assert same.dissimilarity < 1e-24
    assert np.isnan(same.C)
    assert "C=unknown" in repr(same)
    mixed, parted = (
        data.heterogeneity(problems.logistic(*part.take(X, y), l2=0.1))
        for part in (data.iid(y, 4), data.shards(y, 4, 1))
    )
    assert parted.dissimilarity > 5 * mixed.dissimilarity
    assert 0 < mixed.relative < parted.relative


def test_heterogeneity_knows_nothing_without_a_minimiser() -> None:
    problem = problems.from_loss(lambda x, batch: (x @ batch[0]) ** 2, np.ones(2), np.ones((2, 1, 2)))
    assert all(np.isnan(data.heterogeneity(problem)))


# Reading


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("suffix", ["", ".libsvm", ".txt", ".svm.gz"])
@pytest.mark.parametrize("first", [0, 1])
def test_libsvm_stays_sparse_whether_counted_from_zero_or_one(tmp_path: Path, suffix: str, first: int) -> None:
    text = f"+1 {first}:0.5 {first + 2}:2\n-1\n-1 {first + 1}:3\n"
    path = tmp_path / f"small{suffix}"
    path.write_bytes(gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode())
    table = data.read(path, dim=4)
    assert isinstance(table.X, sparse.csr_array)
    assert table.X.toarray().tolist() == [[0.5, 0, 2, 0], [0, 0, 0, 0], [0, 3, 0, 0]]
    assert table.y.tolist() == [1, -1, -1]
    assert table.clients is None


def test_libsvm_files_share_one_feature_space(tmp_path: Path) -> None:
    write(tmp_path / "b", "1 0:1\n")
    write(tmp_path / "a", "0 3:1\n1 1:1\n")
    table = data.read(tmp_path)
    assert table.X.toarray().tolist() == [[0, 0, 0, 1], [0, 1, 0, 0], [1, 0, 0, 0]]
    assert table.clients is not None
    assert table.clients.tolist() == ["a", "a", "b"]


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_what_was_written_is_read_back(tmp_path: Path, kind: str) -> None:
    import pandas as pd

    draw = np.random.default_rng(0)
    X, y, clients = draw.standard_normal((20, 3)), draw.integers(0, 2, 20), draw.integers(8, 12, 20)
    frame = pd.DataFrame({"a": X[:, 0], "client": clients, "label": y, "b": X[:, 1], "c": X[:, 2]})
    path = tmp_path / f"rows.{kind}"
    if kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "parquet":
        frame.to_parquet(path)
    else:
        np.savez(path, X=X, y=y, clients=clients)
    table = data.read(path)
    np.testing.assert_allclose(table.X, X, rtol=1e-14 if kind == "csv" else 0)  # pandas 2 may miss a CSV's last digit
    np.testing.assert_array_equal(table.y, y)
    assert table.y.dtype == table.X.dtype == np.float64
    assert data.by_column(table.clients).names == ("8", "9", "10", "11")  # numbers in their own order


def test_columns_are_found_by_name_or_by_place(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "town,age,rich\nRome,30,no\nOslo,40,yes\n")
    table = data.read(path, client="town")
    assert table.X.tolist() == [[30], [40]]
    assert data.signs(table.y).tolist() == [-1, 1]
    assert table.clients is not None
    assert table.clients.tolist() == ["Rome", "Oslo"]
    assert data.read(write(tmp_path / "b.csv", "cost,age\n3,30\n"), label="cost").X.tolist() == [[30]]


def test_files_may_order_their_columns_as_they_like(tmp_path: Path) -> None:
    first = write(tmp_path / "n.csv", "a,b,label\n1,2,0\n")
    second = write(tmp_path / "s.csv", "label,b,a\n1,4,3\n")
    for asked in (tmp_path, [first, second], str(tmp_path / "?.csv")):
        table = data.read(asked)
        assert table.X.tolist() == [[1, 2], [3, 4]]
        assert table.y.tolist() == [0, 1]


def test_a_column_of_clients_wins_over_the_files_names(tmp_path: Path) -> None:
    write(tmp_path / "part-0.csv", "a,client,label\n1,x,0\n2,y,1\n")
    write(tmp_path / "part-1.csv", "a,client,label\n3,x,0\n")
    part = data.by_column(data.read(tmp_path).clients)
    assert part.names == ("x", "y")
    assert [rows.tolist() for rows in part.indices] == [[0, 2], [1]]


class BadFile(NamedTuple):
    name: str
    files: dict[str, str]
    words: tuple[str, ...]
    options: dict[str, Any] = {}  # noqa: RUF012 - never changed


GOOD = "age,size,label\n1,2,0\n3,4,1\n"
BAD_FILES = [
    BadFile("column misspelt", {"a.csv": GOOD}, ("a.csv", "'lable'", "did you mean 'label'"), {"label": "lable"}),
    BadFile("client unknown", {"a.csv": GOOD}, ("a.csv", "'who'", "age, size, label"), {"client": "who"}),
    BadFile("label is client", {"a.csv": GOOD}, ("'age'", "both label and client"), {"client": "age", "label": "age"}),
    BadFile("no features", {"a.csv": "label\n1\n"}, ("a.csv", "no columns of features", "'label'")),
    BadFile("hole", {"a.csv": "age,label\n1,0\n,1\n"}, ("a.csv", "row 1", "column 'age'", "NaN", "impute")),
    BadFile("infinite", {"a.csv": "age,label\n1,0\ninf,1\n"}, ("a.csv", "row 1", "column 'age'", "infinite")),
    BadFile("label missing", {"a.csv": "age,label\n1,0\n2,\n"}, ("a.csv", "row 1 has no y", "leave these rows out")),
    BadFile("word missing", {"a.csv": "age,label\n1,no\n2,\n"}, ("a.csv", "row 1 has no y")),
    BadFile(
        "client missing",
        {"a.csv": "client,age,label\n,1,2\nx,2,2\n"},
        ("a.csv", "1 of 2 rows name no client, the first is row 0"),
    ),
    BadFile("words", {"a.csv": "age,label\n1,0\nold,1\n"}, ("a.csv", "'age'", "'old'", "row 1", "encode")),
    BadFile("no rows", {"a.csv": "age,label\n"}, ("a.csv", "no rows", "leave it out")),
    BadFile("empty file", {"a.csv": ""}, ("a.csv", "cannot be read")),
    BadFile("not Parquet", {"a.parquet": GOOD}, ("a.parquet", "cannot be read")),
    BadFile("not NumPy", {"a.npz": GOOD}, ("a.npz", "cannot be read")),
    BadFile("not LIBSVM", {"a": "age,size\n"}, ("a", "cannot be read as LIBSVM")),
    BadFile("no entries", {"a": "1\n2\n"}, ("a has no features",)),
    BadFile("NaN in LIBSVM", {"a": "1 1:1\n0 2:nan\n"}, ("a: row 1", "column 1", "NaN")),
    BadFile("dim too small", {"a": "1 5:1\n"}, ("dim = 3", "5 features"), {"dim": 3}),
    BadFile("dim of columns", {"a.csv": GOOD}, ("dim = 3", "LIBSVM"), {"dim": 3}),
    BadFile("label of LIBSVM", {"a": "1 5:1\n"}, ("label = 'y'", "columns"), {"label": "y"}),
    BadFile("suffix", {"a.xls": GOOD}, ("a.xls", ".xls", ".csv", ".parquet")),
    BadFile("other columns", {"a.csv": GOOD, "b.csv": "aged,size,label\n1,2,0\n"}, ("b.csv", "'age'", "'aged'")),
    BadFile("more columns", {"a.csv": GOOD, "b.csv": "age,size,label,x\n1,2,0,3\n"}, ("b.csv", "'x'", "a.csv")),
    BadFile("kinds mixed", {"a.csv": GOOD, "b.txt": "1 1:1\n"}, ("mixes", "one kind")),
    BadFile("one name twice", {"a.txt": "1 1:1\n", "a.svm": "1 1:1\n"}, ("'a'", "rename")),
    BadFile("nothing there", {}, ("holds no files",)),
]


@pytest.mark.parametrize("case", BAD_FILES, ids=lambda case: case.name)
def test_a_bad_file_is_told_by_name_and_place(tmp_path: Path, case: BadFile) -> None:
    for name, text in case.files.items():
        write(tmp_path / name, text)
    with pytest.raises((ArgumentError, DataError)) as caught:
        data.read(tmp_path / next(iter(case.files)) if len(case.files) == 1 else tmp_path, **case.options)
    for words in case.words:
        assert words in str(caught.value), str(caught.value)


def test_a_path_that_leads_nowhere_is_told_with_the_nearest(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", GOOD)
    with pytest.raises(DataError, match=r"trian\.csv is neither.*did you mean 'train\.csv'"):
        data.read(tmp_path / "trian.csv")
    with pytest.raises(DataError, match="neither"):
        data.read([tmp_path / "train.csv", tmp_path / "no" / "file.csv"])


def test_an_archive_without_labels_is_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=np.ones((2, 2)), labels=np.ones(2))
    with pytest.raises(DataError, match=r"a\.npz has no array 'y' \(it holds X, labels"):
        data.read(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", X=np.ones((2, 2)), y=np.ones(3))
    with pytest.raises(DataError, match=r"a\.npz: y has shape \(3,\) for 2 rows"):
        data.read(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", X=np.array([["a"]]), y=np.ones(1))
    with pytest.raises(DataError, match="not an array of numbers"):
        data.read(tmp_path / "a.npz")


# Fetching


class Home(http.server.BaseHTTPRequestHandler):
    """A publisher with a good file, a spoilt one, one that breaks off, and no others."""

    def do_GET(self) -> None:
        name = self.path.removeprefix("/")
        if name not in ("good", "spoilt", "broken"):
            self.send_error(404)
            return
        content = b"+1 1:1\n" if name != "spoilt" else b"-1 1:1\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[:3] if name == "broken" else content)

    def log_message(self, *_: object) -> None:
        """Nothing on the screen."""


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A catalogue served from this machine, and an empty cache."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Home) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with socket.socket() as closed:  # a port nobody listens on
            closed.bind(("127.0.0.1", 0))
            ports = dict.fromkeys(("good", "spoilt", "broken", "gone"), server.server_port)
            ports["away"] = closed.getsockname()[1]
        right = sha256(b"+1 1:1\n").hexdigest()
        entries = {name: (download.Source(f"http://127.0.0.1:{port}/{name}", right),) for name, port in ports.items()}
        monkeypatch.setattr(download, "CATALOGUE", entries)
        monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
        yield tmp_path / "cache"
        server.shutdown()


def test_a_good_file_is_fetched_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = data.fetch("good")
    assert path == home / "good"
    assert data.read(path).X.toarray().tolist() == [[1]]
    monkeypatch.setattr(download, "urlopen", None)  # from now on there is no network
    assert data.fetch("good") == path


def test_a_file_damaged_in_the_cache_is_fetched_again(home: Path) -> None:
    path = data.fetch("good")
    path.write_text("damaged")
    assert data.fetch("good").read_text() == "+1 1:1\n"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("spoilt", ("not the published file", sha256(b"-1 1:1\n").hexdigest())),
        ("broken", ("broke off after 3 of 7 bytes",)),
        ("gone", ("404",)),
        ("away", ("cannot be downloaded", "check the network")),
    ],
)
def test_a_failed_download_leaves_nothing_behind(home: Path, name: str, words: tuple[str, ...]) -> None:
    with pytest.raises(DataError) as caught:
        data.fetch(name)
    for word in (*words, "127.0.0.1", str(home / name)):
        assert word in str(caught.value), str(caught.value)
    assert list(home.iterdir()) == []


def test_the_cache_lies_where_the_system_keeps_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(download, "_stored", lambda source, folder: folder / "file")
    assert data.fetch("a9a") == tmp_path / "fedlin" / "file"


def test_an_empty_variable_keeps_no_data_either(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, "")
    with pytest.raises(ArgumentError, match="FEDLIN_CACHE is empty"):
        data.fetch("a9a")
    monkeypatch.setattr(download, "_stored", lambda source, folder: folder / "file")
    assert data.fetch("a9a", folder=tmp_path) == tmp_path / "file"


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    write(tmp_path / "file", "")
    with pytest.raises(DataError, match="FEDLIN_CACHE"):
        data.fetch("a9a", folder=tmp_path / "file" / "below")


# Real data


def test_mnist_is_the_published_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files at hand have the published checksums, so nothing is downloaded."""
    monkeypatch.setattr(download, "urlopen", None)
    for name in ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"):
        (tmp_path / name).write_bytes(data_file(name).read_bytes())
    path = data.fetch("mnist", folder=tmp_path)
    table = data.read(path)
    assert table.X.shape == (10_000, 784)
    assert (table.X.min(), table.X.max()) == (0, 255)
    assert np.bincount(table.y.astype(int)).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert data.fetch("mnist", folder=tmp_path) == path


def test_a9a_is_the_published_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As published its lines end in a line feed alone; the copy at hand may have been through other systems."""
    monkeypatch.setattr(download, "urlopen", None)
    lines = gzip.decompress(data_file("a9a.gz").read_bytes()).splitlines()
    (tmp_path / "a9a").write_bytes(b"\n".join(lines) + b"\n")
    table = data.read(data.fetch("a9a", folder=tmp_path))
    assert table.X.shape == (32_561, 123)
    assert table.X.nnz == 451_592
    assert np.unique(table.y).tolist() == [-1, 1]
    as_found = data.read(data_file("a9a.gz"))
    assert (as_found.X != table.X).nnz == 0
    assert np.array_equal(as_found.y, table.y)
