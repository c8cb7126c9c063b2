"""Thousands of wrong inputs, generated: no exception but our own, no exit status with another meaning, no half file.

Each call starts from arguments that are right; one of them, then pairs drawn at random, become something else.
"""

import copy
import random
import resource
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
import tomli_w
from scipy import sparse
from typer.testing import CliRunner

import fedlin
from fedlin import data, privacy, problems, theory
from fedlin.cli import app
from fedlin.errors import FedLinError
from fedlin.experiments.experiment_file import load
from fedlin.experiments.prepare import prepare

pytestmark = pytest.mark.slow

ROOM = 4 * 2**30  # bytes that a call may take beyond what the process holds already


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """Numbers that ask for more memory than there is must be refused; without a limit they would take all of it."""
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held + ROOM, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


NAN, INF = float("nan"), float("inf")
NUMBERS: list[Any] = [
    -1, 0, 1, 2, 7, 10**12, 2**31, 2**32, 2**63, 10**30, 10**400, -0.0, 0.5, 1e-300, 1e300, -1.5, NAN, INF, -INF,
]  # fmt: skip
ODD: list[Any] = [
    *NUMBERS, None, True, False, 1j, "", "text", "1", "tuned", "nan", "../x", "κ", "a" * 5000, b"bytes", [], [1],
    [1, 2, 3], [0.5], [NAN], ["a"], [None], [[1, 2], [3]], {}, {"a": 1}, (), (1, 2), set(), object(), int, len,
    np.float32(0.5), np.int64(3), np.array(2), np.array([1.0]), np.array([]), np.zeros((2, 2)), np.zeros((2, 3, 4)),
    np.array(["a", "b"]), np.array([1, None], object), np.array([1e200, -1e200]), np.array([True, False]),
    np.datetime64("2020-01-01"), pd.NA, pd.Timestamp("2020-01-01"), pd.Series([1.0, 2.0]), pd.DataFrame({"a": [1.0]}),
    sparse.eye(2), Path("x"), range(3), iter([1]), lambda x: x, jnp.ones(2),
]  # fmt: skip

M, D, N = 3, 2, 4
ROWS = np.random.default_rng(0).standard_normal((M, N, D))
SIGNS = np.where(np.arange(M * N).reshape(M, N) % 2, 1.0, -1.0)
QUADRATIC = problems.quadratic(np.stack([np.eye(D) * (i + 1) for i in range(M)]), np.ones((M, D)))
LOGISTIC = problems.logistic(ROWS, SIGNS, l2=0.1)
PLAN = fedlin.Plan(2, 0.1)
TABLE = data.RawTable({"a": np.arange(12) % 5.0, "b": np.array(["u", "v", None] * 4, object)}, np.arange(12) % 2.0,
                      np.array(["x", "y"] * 6))  # fmt: skip
RESULT = fedlin.simulate(fedlin.fedlin(), QUADRATIC, PLAN, 2)


def mean_square(x: Any, batch: Any) -> Any:
    return jnp.mean((x[None] - batch) ** 2)


def fit(clients: Any, **parameters: Any) -> None:
    """An estimator with these parameters, fitted to rows of these clients."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fedlin.sklearn.FederatedLogisticRegression(**parameters).fit(
            ROWS.reshape(-1, D), SIGNS.ravel(), clients=clients
        )


class Call(NamedTuple):
    """A function and arguments it takes as they are."""

    name: str
    function: Callable[..., Any]
    arguments: dict[str, Any]


def calls() -> Iterator[Call]:
    """Everything public, with arguments that are right."""
    run: dict[str, Any] = {
        "algorithm": fedlin.fedlin(), "problem": QUADRATIC, "plan": PLAN, "rounds": 2, "seed": 0, "x0": None,
        "participation": 1.0, "weights": None, "stop": None, "layout": "auto", "iterates": None, "devices": None,
        "measure_every": None, "callbacks": (), "checkpoint": None, "chunk": None,
    }  # fmt: skip
    many = {
        "algorithms": fedlin.fedlin(), "problems": QUADRATIC, "plans": PLAN, "rounds": 2, "seeds": [0, 1], "x0": None,
        "participation": 1.0, "weights": None, "stop": None, "layout": "auto", "iterates": None, "measure_every": None,
    }  # fmt: skip
    rows: dict[str, Any] = {"X": ROWS, "y": SIGNS, "l2": 0.1, "reduction": "mean", "row_weights": None}
    known: list[tuple[Callable[..., Any], dict[str, Any]]] = [
        (fedlin.simulate, run),
        (fedlin.simulate_many, many),
        (fedlin.Plan, {"tau": 2, "eta": 0.1}),
        (fedlin.Plan.scaled, {"tau": 2, "eta_bar": 0.1}),
        (fedlin.Stop, {"gap": 1e-3, "distance": None, "grad_norm": 1e-3, "loss": None}),
        (fedlin.Checkpoint, {"path": "x", "every": 5}),
        (fedlin.compare, {"results": {"a": RESULT}, "targets": [0.1], "measure": "gap", "title": "t"}),
        (fedlin.draw_steps, {"clients": 3, "low": 1, "high": 4, "seed": 0, "rounds": None}),
        (fedlin.epochs, {"problem": problems.minibatch(LOGISTIC, 2), "number": 1.0}),
        (fedlin.message_sizes, {"algorithm": fedlin.fedlin(), "problem": QUADRATIC}),
        (problems.quadratic, {"A": np.stack([np.eye(2)] * 2), "b": np.ones((2, 2))}),
        (problems.least_squares, {"clients": 2, "dim": 2, "samples": 5, "alpha": 1.0, "seed": 0}),
        (problems.logistic, {**rows, "nonconvex": 0.0}),
        (problems.softmax, {**rows, "y": (SIGNS > 0).astype(int), "classes": 2}),
        (problems.poisson, {**rows, "y": np.abs(SIGNS)}),
        (problems.regression, rows),
        (problems.from_loss, {"loss": mean_square, "params": np.zeros(D), "data": ROWS, "smoothness": 1.0,
                              "strong_convexity": 0.1, "polyak_lojasiewicz": None, "minimizer": None}),
        (problems.minibatch, {"problem": LOGISTIC, "size": 2}),
        (problems.noisy, {"problem": QUADRATIC, "variance": 0.1}),
        (data.iid, {"y": 10, "clients": 2, "seed": 0}),
        (data.dirichlet, {"y": [0, 1] * 10, "clients": 2, "alpha": 0.5, "seed": 0}),
        (data.shards, {"y": [0, 1] * 10, "clients": 2, "labels": 2, "seed": 0}),
        (data.quantity, {"n": 20, "clients": 2, "alpha": 0.5, "seed": 0}),
        (data.by_column, {"names": ["a", "b", "a"]}),
        (data.signs, {"y": [0, 1], "positive": None}),
        (data.heterogeneity, {"problem": QUADRATIC}),
        (data.read, {"path": "nowhere.csv", "label": None, "client": None, "dim": None}),
        (data.fetch, {"name": "a9b"}),
        (data.read_table, {"path": "nowhere.csv", "label": None, "client": None, "missing": ["-999"]}),
        (data.Recipe, {"keep": None, "drop": ["a"], "scale": "range", "fill": "zero", "words": [], "most_words": 3,
                       "intercept": True}),
        (data.prepare, {"table": TABLE, "recipe": data.Recipe(), "partition": None, "test": 0.2, "test_by": "row",
                        "seed": 0}),
        (data.hold_out, {"partition": data.iid(10, 2), "share": 0.2, "by": "row", "seed": 0}),
        (data.Partition, {"indices": [[0], [1]], "names": None}),
        (fedlin.top_k, {"k": 1}),
        (fedlin.rand_k, {"k": 1}),
        (fedlin.quantize, {"levels": 4}),
        (fedlin.cast, {"dtype": "float32"}),
        (fedlin.plain, {"compressor": fedlin.top_k(1)}),
        (fedlin.error_feedback, {"compressor": fedlin.top_k(1)}),
        (fedlin.innovation, {"compressor": fedlin.top_k(1)}),
        (fedlin.shifted, {"compressor": fedlin.quantize(4), "alpha": 0.5}),
        (fedlin.fedlin, {"uplink": fedlin.top_k(1), "downlink": fedlin.identity(), "same_batch": False}),
        (fedlin.fedprox, {"beta": 0.1}),
        (fedlin.scaffold, {}),
        (fedlin.fedsplit, {"steps": 2, "start": "u"}),
        (fedlin.compressed, {"k": 1}),
        (fedlin.clipped, {"method": fedlin.fedavg(), "norm": 1.0}),
        (fedlin.server_optimizer, {"method": fedlin.fedavg(), "optimizer": optax.sgd(0.5)}),
        (fedlin.per_layer, {"params": np.zeros((2, 3)), "compressor": fedlin.sign()}),
        (fedlin.draw_rates, {"clients": 3, "rate": 1.0, "law": "lognormal", "spread": 1.0, "seed": 0}),
        (fedlin.Clock, {"speed": 1.0, "up": 1.0, "down": [1.0], "latency": 0.0, "overhead": 0.0}),
        (privacy.gaussian, {"clip": 1.0, "noise": 1.0, "where": "local"}),
        (privacy.account, {"algorithm": fedlin.fedpaq(privacy.gaussian(1.0, 1.0)), "rounds": 2, "delta": 1e-5}),
        (privacy.noise_for, {"epsilon": 1.0, "rounds": 2, "delta": 1e-5, "phases": 1}),
        (theory.strongly_convex, {"problem": QUADRATIC, "tau": 2}),
        (theory.server_feedback, {"problem": QUADRATIC, "tau": 2, "delta": 2.0}),
        (fit, {"l2": 0.1, "method": "fedlin", "local_steps": 2, "step": None, "rounds": 3, "tol": 1.0,
               "random_state": None, "fit_intercept": True, "warm_start": False, "class_weight": None, "clients": 2}),
    ]  # fmt: skip
    for function, arguments in known:
        yield Call(function.__qualname__, function, arguments)


def attempt(call: Call, arguments: dict[str, Any]) -> str | None:
    """What is wrong with how the call ended: anything raised that is not ours."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call.function(**arguments)
    except FedLinError as error:
        return None if str(error).strip() else "an empty message"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:100]}"
    return None


@pytest.mark.parametrize("call", list(calls()), ids=lambda call: call.name)
def test_what_is_public_raises_nothing_but_its_own_errors(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    draw = random.Random(call.name)
    assert attempt(call, call.arguments) is None
    changes = [{name: value} for name in call.arguments for value in ODD]
    if len(call.arguments) > 1:
        changes += [{name: draw.choice(ODD) for name in draw.sample(sorted(call.arguments), 2)} for _ in range(50)]
    faults = []
    for change in changes:
        fault = attempt(call, {**call.arguments, **change})
        if fault is not None:
            faults.append(f"{call.name}({change!r:.200}): {fault}")
    assert faults == [], f"{len(faults)} in all\n" + "\n".join(faults[:40])


# Files.

CSV = "age,site,label\n" + "".join(f"{i % 7},s{i % 3},{'yes' if i % 5 else 'no'}\n" for i in range(30))
WARDS = "age,ward,site,label\n" + "".join(f"{i % 7},{i % 4},s{i % 3},{'yes' if i % 5 else 'no'}\n" for i in range(30))
OWN = """
import fedlin, numpy as np
def problem(clients=2, size=1.0):
    return fedlin.problems.quadratic(np.stack([size * np.eye(2)] * clients), np.ones((clients, 2)))
def method(beta=0.1):
    return fedlin.fedprox(beta)
def hits(x, X, y):
    return float(np.mean((X @ x > 0) == (y > 0)))
def broken():
    raise RuntimeError("broken")
"""
METHODS = [{"name": "fedlin", "uplink": "top_k(1)"}, {"name": "fedprox", "beta": 0.1, "label": "b"}]
FILES: dict[str, dict[str, Any]] = {
    "numbers": {
        "title": "t", "rounds": 3, "seeds": [0, 1], "targets": [1e-2], "measure": "gap", "participation": 1.0,
        "checkpoint": 2, "delta": 1e-5, "stop": {"gap": 1e-9},
        "problem": {"kind": "least_squares", "clients": 3, "dim": 2, "samples": 5, "alpha": 1.0, "seed": 0,
                    "noise": 0.1},
        "plan": {"tau": {"low": 1, "high": 3, "seed": 0}, "eta_bar": "tuned",
                 "tuning": {"low": 0.1, "high": 1.0, "count": 3}},
        "algorithm": METHODS,
    },
    "drawn": {
        "rounds": 3, "problem": {"kind": "softmax", "l2": 0.1, "reduction": "mean", "weights": "rows", "minibatch": 2,
                                 "synthetic": {"clients": 3, "dim": 2, "samples": 5, "alpha": 1.0, "classes": 3,
                                               "seed": 0}},
        "plan": {"tau": {"each": [1, 2, 3]}, "eta": 0.1}, "algorithm": METHODS,
    },
    "rows": {
        "rounds": 3, "problem": {"kind": "logistic", "l2": 0.1, "nonconvex": 0.0,
                                 "data": {"file": "rows.csv", "label": "label", "client": "site", "positive": "yes",
                                          "scale": 2.0}},
        "plan": {"tau": 2, "eta": "strongly_convex"}, "algorithm": METHODS,
    },
    "prepared": {
        "rounds": 3, "layout": "client", "track": "tensorboard", "evaluate_every": 2, "stop": {"accuracy": 0.99},
        "metrics": {"hits": "mine.py:hits"},
        "problem": {"kind": "logistic", "l2": 0.1, "weights": "rows", "test": {"share": 0.3, "by": "row", "seed": 0},
                    "data": {"file": "rows.csv", "label": "label", "client": "site", "missing": ["6"]},
                    "prepare": {"mode": "always", "drop": [], "keep": ["age", "ward"], "scale": "robust",
                                "fill": "median", "words": ["ward"], "most_words": 2, "intercept": True}},
        "plan": {"tau": 2, "eta": 0.1}, "algorithm": [{"name": "fedlin"}],
    },
    "own": {
        "rounds": 3, "problem": {"python": "mine.py:problem", "clients": 2, "size": [1.0, 2.0]},
        "plan": {"tau": 2, "eta": 0.1}, "algorithm": [{"python": "mine.py:method", "beta": 0.1, "label": "mine"}],
    },
}  # fmt: skip
TOML_ODD: list[Any] = [
    *(number for number in NUMBERS if abs(number) < 2**63 or number != number), True, False, "", "text", "κ", "tuned",
    "top_k(1)", "__import__('os')", "rows.csv", "/", "..", [], [1], [0.5, 1.0], ["a", "b"], [[1]], [{}], {}, {"a": 1},
    {"low": 1}, {"each": [1]}, "least_squares", "mine.py:problem", "mine.py:broken", "mine.py:none", "none.py:problem",
    "rows.csv:problem", "age", ["age", "nothing"], ["ward", "ward"], "client", "none", {"mode": "none"},
    "a" * 3000, "\x00", [1, "a"],
]  # fmt: skip


def places(table: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every value in a table, tables and lists themselves too."""
    entries = table.items() if isinstance(table, dict) else enumerate(table) if isinstance(table, list) else ()
    for key, value in entries:
        yield (*path, key)
        yield from places(value, (*path, key))


def changed(table: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """The table with one value replaced, one key gone, misspelt or added."""
    other = copy.deepcopy(table)
    *parents, key = draw.choice(list(places(other)))
    inside: Any = other
    for parent in parents:
        inside = inside[parent]
    kind = draw.choice(["value"] * 6 + ["gone", "misspelt", "added"])
    if kind == "value" or isinstance(inside, list):
        inside[key] = draw.choice(TOML_ODD)
    elif kind == "added":
        inside[draw.choice(["seed", "kind", "extra", "κ", "file", "plan", ""])] = draw.choice(TOML_ODD)
    else:
        value = inside.pop(key)
        if kind == "misspelt":
            inside[f"{key}x"] = value
    return other


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_wrong_is_refused_by_our_own_errors(name: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(WARDS if name == "prepared" else CSV)
    (tmp_path / "mine.py").write_text(OWN)
    path, draw, faults = tmp_path / "experiment.toml", random.Random(name), []
    path.write_text(tomli_w.dumps(FILES[name]))
    prepare(load(path))
    for _ in range(500):
        table = changed(FILES[name], draw)
        path.write_text(tomli_w.dumps(table), encoding="utf-8")
        fault = attempt(Call(name, lambda: prepare(load(path)), {}), {})
        if fault is not None:
            faults.append(f"{table}: {fault}")
    assert faults == [], f"{len(faults)} in all\n" + "\n".join(faults[:20])


def test_a_file_whose_text_is_broken_is_refused_by_our_own_errors(tmp_path: Path) -> None:
    text = tomli_w.dumps(FILES["numbers"]).encode()
    path, draw, faults = tmp_path / "experiment.toml", random.Random(0), []
    for _ in range(400):
        content = bytearray(text)
        for _ in range(draw.choice([1, 1, 2, 5])):
            place = draw.randrange(len(content))
            content[place : place + draw.choice([0, 1, 3, 30])] = draw.choice(
                [b"", b"\xff", b"[", b"=", b'"', b"\n", b"1"]
            )
        path.write_bytes(bytes(content))
        fault = attempt(Call("text", lambda: prepare(load(path)), {}), {})
        if fault is not None:
            faults.append(f"{bytes(content)!r}: {fault}")
    assert faults == [], "\n".join(faults[:10])


def test_rows_that_are_broken_are_read_or_refused(tmp_path: Path) -> None:
    path, draw, faults = tmp_path / "rows.csv", random.Random(1), []
    pieces = [
        b"",
        b",",
        b";",
        b"\n",
        b"\r\n",
        b'"',
        b"\xff",
        b"\x00",
        b"NA",
        b"?",
        b"1e999",
        b"-",
        b"\xef\xbb\xbf",
        b"nan",
        b"\t",
    ]
    for _ in range(500):
        content = bytearray(CSV.encode())
        for _ in range(draw.choice([1, 2, 5, 20])):
            place = draw.randrange(len(content) + 1)
            content[place : place + draw.choice([0, 1, 5, 200])] = draw.choice(pieces)
        path.write_bytes(bytes(content))
        fault = attempt(Call("read", lambda: data.read(path), {}), {})
        if fault is not None:
            faults.append(f"{bytes(content)!r:.300}: {fault}")
    assert faults == [], f"{len(faults)} in all\n" + "\n".join(faults[:10])


# Commands.

ARGUMENTS = [
    "", "x", "-1", "0", "1", "2", "1e9", "2147483648", "nan", "experiment.toml", "rows.csv", "runs/experiment", "..",
    "/", "/dev/null", "--json", "--out", "--rounds", "--resume", "--by", "--check", "κ", "a" * 300, "--help", "--", "-",
]  # fmt: skip
COMMANDS = ["run", "report", "init", "algorithms", "problems", "compressors", "reproduce", "federation"]


def listing(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("words", [
    ["--jobs", "0"], ["--jobs", "-1"], ["--jobs", "1e9"], ["--jobs", "2147483648"], ["--jobs", "nan"], ["--jobs", ""],
    ["--jobs", "2", "--rounds", "0"], ["--jobs"], ["--ray"],
], ids=" ".join)  # fmt: skip
def test_workers_that_cannot_be_are_refused_before_anything_is_written(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("experiment.toml").write_text(tomli_w.dumps(FILES["numbers"]))
    result = CliRunner().invoke(app, ["run", "experiment.toml", *words])
    assert result.exit_code == 2
    assert listing(tmp_path) == {str(tmp_path / "experiment.toml"): Path("experiment.toml").stat().st_size}


def test_commands_leave_by_their_own_exit_status_and_write_whole_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0 done and 2 refused; 1 and 130 mean that a run can go on, which none of these can."""
    monkeypatch.chdir(tmp_path)
    draw, faults = random.Random(2), []
    small = {**FILES["numbers"], "seeds": [0], "algorithm": METHODS[:1], "plan": {"tau": 1, "eta": 0.01}}
    for number in range(150):
        Path("experiment.toml").write_text(tomli_w.dumps(small))
        Path("rows.csv").write_text(CSV)
        words = [draw.choice(COMMANDS), *(draw.choice(ARGUMENTS) for _ in range(draw.choice([0, 1, 1, 2, 3])))]
        if words[0] == "reproduce" and not {"--help", "--out"} & set(words[:2]):
            words = [*words[:1], "nothing", *words[1:]]  # the claims themselves take minutes
        before = listing(tmp_path)
        result = CliRunner().invoke(app, words)
        after = listing(tmp_path)
        raised = result.exception is not None and not isinstance(result.exception, SystemExit)
        if raised or result.exit_code not in (0, 2):
            faults.append(f"{number} {words}: exit {result.exit_code}, {result.exception!r}")
        if result.exit_code == 2 and before != after:
            faults.append(f"{number} {words}: refused, and yet wrote {set(after) - set(before)}")
        if any(path.endswith((".part", ".new", ".old")) for path in after):
            faults.append(f"{number} {words}: left a file half written")
    assert faults == [], f"{len(faults)} in all\n" + "\n".join(faults[:20])
