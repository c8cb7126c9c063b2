"""What new users met with tables of their own, as it was and as it is now: docs/tables.md.

`python -m benchmarks.user_tables` measures every part, which takes minutes, keeps the figures in results/tables.json
and writes the page; `--only units`, for example, measures one part anew. `was` is what the first users saw, before
there was any preparation; all else is measured. scikit-learn is needed beside fedlin, and idle cores for the seconds.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler, scale

import fedlin
from benchmarks import bounds, estimators, hospitals, jobs, refusals
from benchmarks.process import ROOT
from benchmarks.tables import table
from fedlin.experiments.run_folder import RunFolder
from fedlin.problems import packed_rows
from fedlin.sklearn import FederatedLogisticRegression, FederatedRidge

FIGURES = ROOT / "benchmarks" / "results" / "tables.json"
PAGE = ROOT / "docs" / "tables.md"
Line = dict[str, str]  # what is seen, what it was, and what it is now


def line(seen: str, was: str, now: str) -> Line:
    """One line of the page."""
    return {"seen": seen, "was": was, "now": now}


@cache
def hospital_file() -> Path:
    """The table of twelve hospitals, written anew, with an experiment's file beside it."""
    path = Path(tempfile.mkdtemp(), "hospitals.csv")
    subprocess.run([sys.executable, ROOT / "tests" / "helpers" / "hospital_table.py", path], check=True)
    return path


def split_hospitals() -> Any:
    """The table prepared as a federation prepares it, a quarter of every hospital's rows held out."""
    raw = fedlin.data.read_table(hospital_file(), label="outcome", client="hospital")
    return fedlin.data.prepare(raw, test=0.25)


def quiet_fit(model: Any, *data: Any, **options: Any) -> tuple[Any, bool]:
    """The fitted model, and whether it said that it did not converge."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        fitted = model.fit(*data, **options)
    return fitted, any(issubclass(warning.category, ConvergenceWarning) for warning in caught)


def units() -> list[Line]:
    """One irrelevant feature in units a million times smaller."""
    draw = np.random.default_rng(0)
    X, slope = draw.standard_normal((400, 6)), np.array([3.0, -2.0, 1.0, 2.0, -1.0, 0.0])
    sign, number = X @ slope + 0.05 * draw.standard_normal(400) > 0, X @ slope
    X = X * np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1e6])
    ours, warned = quiet_fit(FederatedLogisticRegression(), X, sign, clients=5)
    theirs = LogisticRegression(C=1 / 4).fit(scale(X), sign).score(scale(X), sign)
    ridge, _ = quiet_fit(FederatedRidge(1e-4), X, number, clients=5)
    other = Ridge(alpha=400 * 1e-4).fit(X, number).score(X, number)
    return [
        line(
            "one irrelevant feature × 10⁶, `FederatedLogisticRegression`: accuracy (scikit-learn, standardised)",
            "0.540 (0.990), ended after 8 rounds without a warning",
            f"{ours.score(X, sign):.3f} ({theirs:.3f}), ended after {ours.n_iter_} rounds "
            f"{'with' if warned else 'without'} a warning",
        ),
        line(
            "the same, `FederatedRidge`: R² (scikit-learn)",
            "0.008 (1.0)",
            f"{ridge.score(X, number):.3f} ({other:.3f})",
        ),
    ]


def tolerance() -> list[Line]:
    """The default tolerance, and every method in a pipeline, on the hospitals' table."""
    train = split_hospitals().train
    X, y = np.concatenate(train.X)[:, :-1], np.concatenate(train.y)  # the last feature is the intercept
    sites = np.repeat(np.array(train.clients), [len(part) for part in train.y])
    exact = LogisticRegression(C=1 / (len(y) * 1e-2), tol=1e-12, max_iter=10_000, solver="newton-cg").fit(X, y)
    ours, warned = quiet_fit(FederatedLogisticRegression(), X, y, clients=sites)
    off = np.abs(ours.predict_proba(X) - exact.predict_proba(X)).max()
    lines = [
        line(
            "the default `tol`: probabilities off by at most",
            "0.023 without a warning; `tol=1e-6` did not converge in 2,000 rounds",
            f"{off:.1e} in {ours.n_iter_} rounds, {'with' if warned else 'without'} a warning; `tol` is 1e-6",
        )
    ]
    ends = []
    for method in ("fedlin", "scaffold", "fednova", "fedavg", "gradient_descent"):
        pipeline = make_pipeline(StandardScaler(), FederatedLogisticRegression(method=method))
        began = time.perf_counter()
        fitted, warned = quiet_fit(pipeline, X, y, federatedlogisticregression__clients=sites)
        end = "a warning" if warned else "converged"
        ends.append(f"{method} {time.perf_counter() - began:.1f} s ({fitted[-1].n_iter_} rounds, {end})")
    began = time.perf_counter()
    make_pipeline(StandardScaler(), LogisticRegression(C=1 / (len(y) * 1e-2), max_iter=1000)).fit(X, y)
    return [
        *lines,
        line(
            "every method in a pipeline of scikit-learn, first fit with all compilation",
            "all hit the limit, 16 to 35 s against scikit-learn's 0.14 s",
            f"{', '.join(ends)}; scikit-learn {time.perf_counter() - began:.2f} s",
        ),
    ]


def weights() -> list[Line]:
    """Rows against hospitals that count alike: the accuracy of both minimisers on the rows held out."""
    prepared = split_hospitals()
    train, test, preparation = prepared.train, prepared.test, prepared.preparation
    labels = [preparation.codes(y) for y in train.y]
    equal = fedlin.problems.softmax(train.X, labels, preparation.penalties(1e-3, 3), classes=3)
    by_rows = equal.weighted([len(y) for y in labels])
    X, truth = np.concatenate(test.X), np.concatenate([preparation.codes(y) for y in test.y])

    def accuracy(problem: Any) -> float:
        return float(np.mean(np.argmax(X @ problem.minimizer.reshape(-1, 3), axis=1) == truth))

    return [
        line(
            "the default weights in f of an experiment file: held-out accuracy",
            "hospitals, one of 2 rows as one of 1,538: 0.829; rows: 0.844",
            f"rows: {accuracy(by_rows):.3f}, and page and terminal say so; hospitals: {accuracy(equal):.3f}",
        )
    ]


def unequal() -> list[Line]:
    """Clients of different size, beside NumPy and beside padding."""
    measured = hospitals.measure(repeats=9)
    wall, cores = measured["wall"], measured["cores"]
    lines = [
        line(
            f"12 hospitals of 2 to 1,538 rows, softmax 33×3, 100 rounds, {name}: time over plain NumPy's",
            was,
            f"{wall[f'{name} over NumPy']:.2f} in wall time, {cores[f'{name} over NumPy']:.2f} in CPU time",
        )
        for name, was in (
            ("measured in every round", "3.4 (1.0 s against 0.29 s), with one device 4.9 to 7"),
            ("not measured", "not possible"),
        )
    ]
    return [*lines, *dirichlet()]


def dirichlet(rounds: int = 40, repeats: int = 2) -> list[Line]:
    """80 Dirichlet(0.1) clients of a9a, packed and padded in turns, measured in every round."""
    file = Path(os.environ.get("FEDLIN_DATA", ROOT.parent / "shared" / "data"), "a9a.gz")
    data = fedlin.data.read(file)
    X, y = fedlin.data.dirichlet(data.y, 80, 0.1, seed=0).take(data.X, data.y)
    plan, taken, models = fedlin.Plan(5, 0.1), {"packed": list[float](), "padded": list[float]()}, {}
    problems = {
        name: fedlin.problems.logistic(X, y, 1e-3).without_search() for name in taken
    }  # each packs its rows once
    for name in list(taken) * (repeats + 1):
        with patch("fedlin.problems.packed_rows.WORTHWHILE", np.inf if name == "padded" else packed_rows.WORTHWHILE):
            began = time.process_time()
            run = fedlin.simulate(fedlin.fedlin(), problems[name], plan, rounds, iterates=False)
        taken[name].append(time.process_time() - began if name in models else np.inf)  # the first compiles
        models[name] = run.x
    np.testing.assert_allclose(models["packed"], models["padded"], rtol=1e-8, atol=1e-10)
    return [
        line(
            "80 Dirichlet(0.1) clients of a9a: times faster than padded to the longest, in CPU time",
            "1",
            f"{min(taken['padded']) / min(taken['packed']):.1f}",
        )
    ]


def from_csv() -> list[Line]:
    """The hospitals' table from CSV to report by one file, beside pooled scikit-learn."""
    home = hospital_file().parent
    study = (home / "hospitals.toml").read_text()
    began = time.perf_counter()
    command = [sys.executable, "-m", "fedlin", "run", "hospitals.toml", "--out", "run"]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=True)
    taken = time.perf_counter() - began
    results = {planned.label: result for planned, result in RunFolder.open(home / "run").results()}
    playing = sum(float(result.seconds[-1]) for result in results.values())
    frame = pd.read_csv(hospital_file(), na_values="?", dtype={"hospital": str})
    held = fedlin.data.hold_out(fedlin.data.by_column(frame["hospital"].to_numpy(str)), 0.25)
    train, test = (frame.iloc[np.concatenate(rows)] for rows in (held.train, held.test))
    words = make_pipeline(SimpleImputer(strategy="constant", fill_value="missing"), OneHotEncoder())
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), make_column_selector(dtype_include="number")),
        (words, make_column_selector(dtype_exclude="number")),
    )
    left = ["patient", "hospital", "country", "outcome"]
    pooled = make_pipeline(columns, LogisticRegression(C=1 / (1e-3 * len(train)), max_iter=2000))
    pooled.fit(train.drop(columns=left), train["outcome"])
    score = accuracy_score(test["outcome"], pooled.predict(test.drop(columns=left)))
    notes = sum(text.startswith("prepared: ") for text in done.stdout.splitlines())
    return [
        line(
            "`fedlin run` on the hospitals' table, tuning included (the runs alone)",
            "5 min 42 s (22.6 s)",
            f"{taken:.0f} s ({playing:.1f} s)",
        ),
        line(
            "text, missing values, units, an intercept, a test split in a file",
            "each stopped it, one after another",
            f"a file of {len(study.strip().splitlines())} lines, and {notes} lines that say what was done; "
            f"accuracy {results['fedlin'].columns['accuracy'][-1]:.4f}, pooled scikit-learn {score:.4f}",
        ),
    ]


def processes(rounds: int = 20_000) -> list[Line]:
    """Twelve runs by two processes."""
    measured = jobs.measure(rounds)
    cores = measured["one after another"]["cores"] / measured[f"{jobs.JOBS} processes"]["cores"]
    same = "to the same bits" if measured["the same bits"] else "**not to the same bits**"
    return [
        line(
            "12 equal runs by 2 processes: times faster than one after another",
            "below 1, by hand: `fedlin run` had one process, problems did not pickle, own code could not enter a file",
            f"{measured['times faster']:.2f} {same} (`--jobs 2`; {1 / cores:.2f} of the CPU time)",
        )
    ]


PARTS: dict[str, Callable[[], Any]] = {
    "units": units,
    "tolerance": tolerance,
    "weights": weights,
    "unequal": unequal,
    "from_csv": from_csv,
    "processes": processes,
    "refusals": refusals.measure,
    "estimators": estimators.measure,
}


def write(results: dict[str, Any]) -> str:
    """The page."""
    machine = results["machine"]
    seen = [part for name in PARTS if name not in ("refusals", "estimators") for part in results[name]]
    return f"""# Tables of your own, before and now

Problems of the first users with a table, a network or scikit-learn, and what the same steps give now. This page is
written by `python -m benchmarks.user_tables` from what it measures; *before* is what those users reported. Seconds are
of {machine["cpu"]}, {machine["cores"]} cores, with a load average of {machine["load"]:.1f} when the last of them were
taken: on a busy machine look at ratios.

{table(("", "before", "now"), [(entry["seen"], entry["was"], entry["now"]) for entry in seen])}

## What ended in a traceback

Each of these is repeated by the program. *Now* is its message, with the exit status where it is a command.

{refusals.write(results["refusals"])}

## Estimators beside scikit-learn's

{estimators.write(results["estimators"])}
"""


def main() -> None:
    """Every part, or one; figures are kept after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=tuple(PARTS))
    only = parser.parse_args().only
    results = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    results["machine"] = {**bounds.machine(), "load": os.getloadavg()[0]}
    for name in (only,) if only else PARTS:
        results[name] = PARTS[name]()
        FIGURES.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    if all(name in results for name in PARTS):
        PAGE.write_text(write(results))


if __name__ == "__main__":
    main()
