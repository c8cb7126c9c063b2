"""Experiment files: what they mean, what is refused, how step sizes are chosen and costs are counted."""

import inspect
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

import fedlin
from fedlin import theory
from fedlin.aggregation import coordinate_median
from fedlin.core import Algorithm
from fedlin.errors import ArgumentError, FedLinError
from fedlin.experiments import build_method, catalogue, config
from fedlin.experiments.build_method import evaluate
from fedlin.experiments.build_problem import build_problem
from fedlin.experiments.compare_folders import compare_folders
from fedlin.experiments.execute import execute
from fedlin.experiments.experiment_file import load
from fedlin.experiments.experiments_cli import template
from fedlin.experiments.prepare import prepare
from fedlin.experiments.run_folder import RunFolder, resolved
from fedlin.experiments.tune import Trial, search, tune

SMALL: dict[str, Any] = {
    "rounds": 50,
    "problem": {"kind": "least_squares", "clients": 3, "dim": 4, "samples": 10},
    "plan": {"tau": 2, "eta_bar": 0.01},
    "algorithm": [{"name": "fedlin"}],
}


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDLIN_DATA", raising=False)


def write(folder: Path, **changes: Any) -> Path:
    """The small experiment with some of its tables replaced."""
    path = folder / "experiment.toml"
    path.write_text(tomli_w.dumps({**SMALL, **changes}))
    return path


def test_lists_are_grids_and_every_combination_is_a_member(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        seeds=[3, 4],
        participation=[0.5, 1.0],
        problem={**SMALL["problem"], "alpha": [0.0, 1.0, 2.0]},
        algorithm=[{"name": "fedprox", "beta": [0.1, 1.0]}, {"name": "fedavg"}],
    )
    found = load(path).runs
    assert len(found) == 3 * 2 * (2 + 1) * 2
    assert [member.number for member in found] == list(range(36))
    assert len({str(member) for member in found}) == 36
    assert found[0].grid == {"problem.alpha": 0.0, "participation": 0.5, "algorithm.beta": 0.1}
    assert found[0].setting == {"problem.alpha": 0.0, "participation": 0.5}
    assert len({member.case for member in found}) == 6
    assert {member.label for member in found} == {"fedprox(beta=0.1)", "fedprox(beta=1.0)", "fedavg"}


def test_a_plan_of_its_own_replaces_the_step_size_of_all(tmp_path: Path) -> None:
    own = {"name": "fednova", "plan": {"eta": [0.1, 0.2]}}
    path = write(
        tmp_path, plan={"tau": [1, {"low": 2, "high": 9}], "eta_bar": 0.01}, algorithm=[{"name": "fedlin"}, own]
    )
    found = [(m.method, m.plan.eta, m.plan.eta_bar, m.setting.get("plan.tau")) for m in load(path).runs]
    spread = {"low": 2, "high": 9}
    assert found[:2] == [("fedlin", None, 0.01, 1), ("fedlin", None, 0.01, spread)]
    assert sorted(found[2:], key=str) == sorted(
        [("fednova", eta, None, tau) for eta in (0.1, 0.2) for tau in (1, spread)], key=str
    )


def test_each_gives_every_client_its_own_number_of_steps(tmp_path: Path) -> None:
    path = write(tmp_path, plan={"tau": {"each": [1, 2, 5]}, "eta_bar": 0.1})
    (run,) = prepare(load(path))
    assert run.plan(50).tau.tolist() == [1, 2, 5]
    np.testing.assert_allclose(run.plan(50).eta, [0.1, 0.05, 0.02])


def test_the_resolved_file_gives_the_same_members(tmp_path: Path) -> None:
    path = tmp_path / "init.toml"
    path.write_text(template(path.name))
    first = load(path)
    again = tmp_path / "again.toml"
    again.write_text(tomli_w.dumps(resolved(first)))
    second = load(again)
    assert [vars(member) for member in first.runs] == [vars(member) for member in second.runs]
    assert resolved(first) == resolved(second)
    assert tomllib.loads(again.read_text())["problem"]["seed"] == 0, "defaults are filled in"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"problem": {**SMALL["problem"], "alpa": 1.0}}, "problem: no key is called 'alpa': did you mean 'alpha'?"),
        ({"problem": {**SMALL["problem"], "dim": 2.5}}, "problem.dim = 2.5 is not allowed: give a whole number"),
        ({"problem": {**SMALL["problem"], "dim": [4, -1]}}, "problem.dim = -1 is not allowed: give a whole number"),
        ({"problem": {**SMALL["problem"], "dim": []}}, "problem.dim is an empty list"),
        ({"problem": {**SMALL["problem"], "dim": True}}, "problem.dim = True is not allowed"),
        ({"problem": {"kind": "least_sqares"}}, "problem.kind: no problem is called 'least_sqares': did you mean"),
        ({"problem": {"dim": 3}}, "problem.kind is missing: give one of least_squares"),
        ({"problem": {"kind": ["logistic", "softmax"]}}, "problem.kind is a list: give one name"),
        ({"problem": {"kind": "logistic"}}, "problem: give either data or synthetic"),
        ({"problem": {"kind": "quadratic", "file": "no.npz"}}, "file = 'no.npz' is not in .*FEDLIN_DATA"),
        ({"problem": {"kind": "logistic", "data": {"file": "no.csv"}}}, "file = 'no.csv' is not in"),
        ({"problem": {"kind": "logistic", "data": {"fil": "x"}}}, "problem.data: no key is called 'fil'.*'file'"),
        (
            {"problem": {"kind": "logistic", "synthetic": {}, "partition": {"kind": "iid", "clients": 2}}},
            "leave partition out",
        ),
        ({"plan": {"tau": 2}}, "plan: give either eta"),
        ({"plan": {"tau": 2, "eta": 1.0, "eta_bar": 1.0}}, "plan: give either eta"),
        ({"plan": {"tau": {"low": 2, "hi": 3}, "eta": 1.0}}, "plan.tau = .*'hi': 3.* is not allowed: give a whole"),
        ({"plan": {"tau": 0, "eta": 0.1}}, "every client needs a whole number of local steps"),
        ({"plan": {"tau": 2, "eta": -0.1}}, "every step size must be above 0"),
        ({"plan": {"tau": 2, "eta": "strongly_conve"}}, "no theorem is called 'strongly_conve': did you mean"),
        ({"plan": {"tau": 2, "eta": "server_feedback"}}, "missing a required argument: 'delta'; server_feedback takes"),
        ({"plan": {"tau": 2, "eta_bar": "tund"}}, "plan.eta_bar = 'tund' is not allowed: give a number above 0, or"),
        ({"plan": {"tau": 2, "eta": "tuned", "tuning": {"low": 2.0, "high": 1.0}}}, "high = 1 is not above low = 2"),
        ({"plan": {"tau": {"each": [1, 2]}, "eta": 0.1}}, "tau has 2 entries for 3 clients"),
        ({"algorithm": [{"name": "fedlni"}]}, "no method is called 'fedlni': did you mean 'fedlin'"),
        ({"algorithm": [{"label": "x"}]}, r"algorithm\[0\]: give either name"),
        ({"algorithm": [{"name": "fedprox"}]}, "fedprox needs beta"),
        ({"algorithm": [{"name": "fedprox", "bta": 1.0}]}, "no argument of fedprox is called 'bta'.*'beta'"),
        ({"algorithm": [{"name": "fedlin", "momentun": 0.9}]}, "no argument of fedlin is called 'momentun'.*'mom"),
        ({"algorithm": [{"name": "fedlin", "momentum": 1.0}]}, "beta = 1.0 is not allowed"),
        ({"algorithm": [{"name": "scaffnew", "momentum": 0.9}]}, "momentum puts another one in its place"),
        ({"algorithm": [{"name": "fedprox", "beta": "big"}]}, "beta = 'big' is not allowed"),
        ({"algorithm": [{"name": "fedlin", "uplink": "top_kk(2)"}]}, "no uplink is called 'top_kk'.*'top_k'"),
        ({"algorithm": [{"name": "fedlin", "uplink": 3}]}, "uplink = 3 is not allowed: write it as text"),
        ({"algorithm": [{"name": "fedlin", "uplink": "top_k(99)"}]}, "k = 99 is more than the model's 4 entries"),
        ({"algorithm": [{"name": "fedlin", "same_batch": 1}]}, "same_batch = 1 is not allowed: give true or false"),
        ({"algorithm": [{"name": "ef21", "compressor": "plain(top_k(2))"}]}, "no compressor is called 'plain'"),
        ({"algorithm": [{"name": "fednova", "plan": {"tau": {"each": [1, 2, 3]}}}]}, "fednova needs one step size"),
        ({"algorithm": [{"name": "fedavg"}, {"name": "fedavg"}]}, "two runs would be called fedavg"),
        ({"algorithm": [{"name": "fedavg", "aggregate": "krum(2)"}]}, "at least 5 uploads, and a round may have 3"),
        ({"algorithm": [{"name": "fedavg", "aggregate": 2}]}, r"algorithm\[0\].aggregate = 2 is not allowed"),
        ({"algorithm": [{"name": "scaffold", "aggregate": "krum(1)"}]}, "scaffold needs the mean of the uploads"),
        ({"rounds": "many"}, "rounds = 'many' is not allowed: give a whole number of at least 1"),
        ({"round": 3}, "no key is called 'round': did you mean 'rounds'"),
        ({"seeds": [0, 1, 0]}, "seeds holds 0 twice"),
        ({"rounds": 2**31}, "rounds = 2147483648 is not allowed: give a whole number of at least 1, below"),
        ({"problem": {**SMALL["problem"], "clients": 10**9}}, r"\[problem\]: the rows of 1000000000 clients .* GiB"),
        ({"seeds": [-1]}, "seeds = -1 is not allowed: give one or more whole numbers"),
        ({"targets": [0.0]}, "targets = 0.0 is not allowed: give one or more numbers above 0"),
        ({"participation": [0.5, 1.5]}, r"participation = 1.5 is not allowed: give a number in \(0, 1\]"),
        ({"stop": {"gap": -1.0}}, "stop.gap = -1.0 is not allowed"),
        ({"problem": {"kind": "logistic", "synthetic": {}, "nonconvex": 0.1}}, 'set measure = "grad_norm"'),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_told_with_its_place(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = write(tmp_path, **changes)
    with pytest.raises(FedLinError, match=message) as caught:
        prepare(load(path))
    assert all(line.startswith(str(path)) for line in str(caught.value).split("\n"))


def test_all_wrong_keys_are_told_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, problem={**SMALL["problem"], "dim": 0, "sample": 3})
    with pytest.raises(ArgumentError) as caught:
        load(path)
    assert len(str(caught.value).split("\n")) == 2


def test_a_file_that_is_not_toml_or_not_there_is_told(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("rounds = ")
    with pytest.raises(ArgumentError, match=r"bad\.toml is not TOML"):
        load(tmp_path / "bad.toml")
    with pytest.raises(ArgumentError, match="cannot be read: No such file"):
        load(tmp_path / "none.toml")


ROWS = "age,size,site,label\n" + "".join(f"{i % 7},{i % 5},s{i % 3},{i % 2}\n" for i in range(60))
PLAIN = ROWS.replace(",s", ",")  # without words, so that no column has to tell the clients


@pytest.mark.parametrize(
    ("content", "data", "partition", "message"),
    [
        (PLAIN.replace(",1\n", ",2\n", 1), {}, {"kind": "iid", "clients": 2}, "y holds 3 different labels"),
        (PLAIN, {"label": "lable"}, {"kind": "iid", "clients": 2}, "lable"),
        (ROWS, {"client": "town"}, None, "town"),
        (ROWS.replace(",s0,", ",,", 1), {"client": "site"}, None, "rows name no client, the first is row 0"),
        (ROWS.replace(",0\n", ",\n").replace(",1\n", ",\n"), {"client": "site"}, None, "no row has a label"),
        (ROWS, {"client": "site"}, {"kind": "iid", "clients": 2}, "exclude each other"),
        (PLAIN, {}, None, "do not tell their clients"),
        (ROWS, {"client": "site", "positive": 7.0}, None, "positive = 7.0 is not among the labels"),
        (PLAIN, {}, {"kind": "iid", "clients": 99}, "99 clients cannot share 60"),
        (ROWS, {}, {"kind": "dirichlet", "clients": 3}, "problem.partition: kind = 'dirichlet' needs alpha"),
        (ROWS, {}, {"kind": "iid", "clients": 3, "alpha": 1.0}, "kind = 'iid' takes no alpha"),
        (ROWS, {}, {"kind": "by_hand", "clients": 3}, 'give one of "iid", "dirichlet"'),
    ],
)  # fmt: skip
def test_data_that_do_not_fit_are_refused_before_any_work(
    tmp_path: Path, content: str, data: dict[str, Any], partition: Any, message: str
) -> None:
    (tmp_path / "rows.csv").write_text(content)
    problem = {"kind": "logistic", "l2": 0.1, "data": {"file": "rows.csv", **data}}
    path = write(tmp_path, problem=problem if partition is None else {**problem, "partition": partition})
    with pytest.raises(FedLinError, match=message):
        prepare(load(path))


def table_problem(folder: Path, **changes: Any) -> Any:
    """A problem on rows of three sites: numbers in units far apart, words, holes and an id."""
    draw = np.random.default_rng(0)
    lines = []
    for i in range(120):
        ward, ill = "ab"[i % 2] if i % 7 else "", "yes" if draw.random() < 0.4 else "no"
        lines.append(f"{i},s{i % 3},{draw.normal():.6f},{1e6 * draw.normal():.3f},{ward},{ill}")
    (folder / "rows.csv").write_text("id,site,size,income,ward,ill\n" + "\n".join(lines) + "\n")
    problem = {"kind": "logistic", "l2": 0.1, "data": {"file": "rows.csv", "client": "site"}, **changes}
    (run,) = prepare(load(write(folder, problem=problem)))
    return run.built


def test_a_table_is_prepared_unless_a_file_says_otherwise(tmp_path: Path) -> None:
    """By default as `data.prepare` does it: standardised, words as ones and zeros, an intercept without a penalty."""
    built = table_problem(tmp_path)
    raw = fedlin.data.read_table(tmp_path / "rows.csv", client="site")
    made = fedlin.data.prepare(raw)
    assert built.rows.preparation == made.preparation
    assert made.preparation.names == ("size", "income", "ward=a", "ward=b", "ward=(missing)", "intercept")
    for ours, theirs in zip(built.rows.X, made.train.X, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert built.rows.classes == ("no", "yes")
    np.testing.assert_array_equal(built.problem.sheet.l2[0], [0.1] * 5 + [0.0])
    assert any(note.startswith("id: left out") for note in built.rows.notes)
    sizes = [len(part) for part in built.rows.y]
    np.testing.assert_allclose(built.problem.weights, np.array(sizes) / sum(sizes))
    assert built.facts()["f"] == "Σ (nᵢ/n) fᵢ, clients in proportion to their rows"
    assert set(built.facts()) >= {"rows", "preparing sends"}


def test_a_file_says_what_is_done_with_columns(tmp_path: Path) -> None:
    recipe = {"keep": ["income", "ward"], "scale": "none", "intercept": False}
    built = table_problem(tmp_path, prepare=recipe, test={"share": 0.25, "seed": 1}, weights="equal")
    assert built.rows.preparation.names == ("income", "ward=a", "ward=b", "ward=(missing)")
    assert np.abs(np.concatenate(built.rows.X)[:, 0]).max() > 1e5
    assert sum(map(len, built.rows.test.y)) == 30
    assert sum(built.rows.sizes) == 90
    assert built.facts()["f"] == "(1/m) Σ fᵢ, every client alike"
    with pytest.raises(FedLinError, match="column 'ward' holds 'b' in row 1"):
        table_problem(tmp_path, prepare="none")
    with pytest.raises(FedLinError, match=r"problem\.prepare: no key is called 'scal': did you mean 'scale'"):
        table_problem(tmp_path, prepare={"scal": "none"})
    with pytest.raises(FedLinError, match=r"problem\.test\.share = 1\.5 is not allowed: give a number in"):
        table_problem(tmp_path, test=1.5)


def test_whole_clients_can_be_held_out(tmp_path: Path) -> None:
    built = table_problem(tmp_path, test={"share": 0.3, "by": "client"})
    assert built.problem.clients == 2
    assert len(built.rows.test.clients) == 1


@pytest.mark.parametrize("kind", ["softmax", "regression"])
def test_rows_that_are_drawn_can_be_held_out_too(kind: str) -> None:
    drawn = {"clients": 4, "dim": 3, "samples": 20}
    setting = config.PROBLEMS[kind].model_validate({"kind": kind, "synthetic": drawn, "test": 0.25, "l2": 0.1})
    built = build_problem(setting)
    assert built.rows is not None
    assert built.rows.test is not None
    assert [len(part) for part in built.rows.test.y] == [5] * 4
    assert built.rows.sizes == [15] * 4


def test_a_stored_file_that_says_nothing_of_preparing_means_none(tmp_path: Path) -> None:
    """Runs that were stored before tables were prepared go on with the numbers they had."""
    (tmp_path / "rows.csv").write_text(PLAIN)
    problem = {"kind": "logistic", "l2": 0.1, "data": {"file": "rows.csv"}, "partition": {"kind": "iid", "clients": 2}}
    path = write(tmp_path, problem=problem)
    (fresh,), (stored,) = (prepare(load(path, stored=before)) for before in (False, True))
    assert fresh.built.rows is not None
    assert fresh.built.rows.preparation is not None
    assert stored.built.rows is not None
    assert stored.built.rows.preparation is None
    assert stored.problem.dim == 3


def test_files_lie_beside_the_experiment_or_in_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    A, b = np.stack([np.eye(2), 3 * np.eye(2)]), np.ones((2, 2))
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "q.npz", A=A, b=b)
    path = write(tmp_path, problem={"kind": "quadratic", "file": "q.npz"})
    monkeypatch.setenv("FEDLIN_DATA", str(tmp_path / "data"))
    (run,) = prepare(load(path))
    np.testing.assert_allclose(run.problem.minimizer, 0.5)
    np.savez(tmp_path / "q.npz", A=A, b=2 * b)
    (run,) = prepare(load(path))
    np.testing.assert_allclose(run.problem.minimizer, 1.0)
    np.savez(tmp_path / "q.npz", A=A)
    with pytest.raises(FedLinError, match="has no array b"):
        prepare(load(path))
    (tmp_path / "q.npz").write_text("text")
    with pytest.raises(FedLinError, match=r"is not an \.npz file"):
        prepare(load(path))


def test_weights_by_rows_make_the_minimiser_that_of_all_rows_together(tmp_path: Path) -> None:
    """Σ (n_i/n) mean over client i = mean over all rows, however the rows were dealt."""
    source = np.random.default_rng(0)
    X = source.standard_normal((90, 3))
    y = np.where(source.random(90) < 0.4, 1.0, 0.0)
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    pooled = fedlin.problems.logistic([X], [2 * y - 1], l2=0.1)
    table = {"kind": "logistic", "l2": 0.1, "weights": "rows", "data": {"file": "rows.npz"}}
    for partition in (
        {"kind": "dirichlet", "clients": 5, "alpha": 0.3},
        {"kind": "shards", "clients": 4, "labels": 2},
        {"kind": "quantity", "clients": 4, "alpha": 0.5},
        {"kind": "iid", "clients": 7},
    ):
        (run,) = prepare(load(write(tmp_path, problem={**table, "partition": partition})))
        assert run.problem.clients == partition["clients"]
        np.testing.assert_allclose(run.problem.minimizer, pooled.minimizer, rtol=1e-9)
        assert run.built.rows is not None
        assert run.built.rows.partition is not None
        assert int(run.built.rows.partition.table(y)["rows"].sum()) == 90


@pytest.mark.parametrize("kind", ["logistic", "softmax", "poisson", "regression", "ridge"])
def test_drawn_clients_differ_by_alpha(kind: str) -> None:
    def spread(alpha: float) -> float:
        drawn = {"clients": 4, "dim": 3, "samples": 2000, "alpha": alpha}
        setting = config.PROBLEMS[kind].model_validate({"kind": kind, "l2": 0.1, "synthetic": drawn})
        return fedlin.data.heterogeneity(build_problem(setting).problem).dissimilarity

    assert spread(0.0) < 0.1 * spread(4.0)


@pytest.mark.parametrize("text", [
    "__import__('os')", "top_k(10).name", "lambda: 1", "top_k(*[1])", "top_k(**{'k': 1})", "[1]", "3", "top_k(", "",
    "top_k(k)", "top_k(1 + 1)", "innovation(open('x'))", "top_k.__class__", "top_k(1)(2)", "(top_k)(x := 1)",
])  # fmt: skip
def test_a_link_is_names_and_plain_values_and_nothing_else(text: str) -> None:
    with pytest.raises(ArgumentError):
        evaluate(text, {**build_method.COMPRESSORS, **build_method.LINKS}, "link")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("top_k(10)", fedlin.top_k(10)),
        ("rand_k(k=3, unbiased=True)", fedlin.rand_k(3, unbiased=True)),
        ("sign", fedlin.sign()),
        ("shifted(quantize(4), alpha=0.5)", fedlin.shifted(fedlin.quantize(4), 0.5)),
    ],
)
def test_a_link_as_text_is_the_link(text: str, expected: Any) -> None:
    assert evaluate(text, {**build_method.COMPRESSORS, **build_method.LINKS}, "link") == expected


def test_every_theorem_that_makes_a_plan_can_be_named() -> None:
    problem = fedlin.problems.least_squares(clients=3, dim=4, samples=10)
    arguments = dict.fromkeys(("server_sparse", "server_feedback", "client_feedback", "ef21"), "delta=2")
    arguments |= dict.fromkeys(("diana", "fedpaq", "fedcomgate", "adiana"), "omega=0.5")
    arguments |= dict.fromkeys(("compressed_scaffnew", "tamuna"), "sparsity=2")
    arguments |= {"s_local_svrg": "row_smoothness=9.0", "marina": "omega=0.5, probability=0.5"}
    no_plan = {"dissimilarity", "adiana_probability", "gradskip_probability", "locodl_probability", "locodl_pace"}
    no_plan |= {"curvature_spread", "momentum_factor"}
    steps = [name for name in theory.__all__ if inspect.isfunction(getattr(theory, name)) and name not in no_plan]
    assert sorted(build_method.THEOREMS) == steps
    for name in build_method.THEOREMS:
        made = build_method.plan(config.PlanConfig(tau=2, eta=f"{name}({arguments.get(name, '')})"), problem, 7)
        assert np.all(made.eta > 0)
    thm1 = build_method.plan(config.PlanConfig(tau=2, eta="strongly_convex"), problem, 7)
    assert np.all(thm1.eta == theory.strongly_convex(problem, 2).eta)


def test_the_certified_step_needs_no_tuning_and_is_fedlins_alone(tmp_path: Path) -> None:
    certified = {"plan": {"tau": {"low": 2, "high": 9}, "eta": "certified"}, "algorithm": [{"name": "fedlin"}]}
    (run,) = prepare(load(write(tmp_path, **certified)))
    made = run.plan(5)
    np.testing.assert_array_equal(made.eta, theory.certified(run.problem, made.tau).eta)
    assert not run.planned.plan.tuned
    for changes in (
        {"algorithm": [{"name": "fedavg"}]},
        {"algorithm": [{"name": "fedlin", "uplink": "top_k(2)"}]},
        {"participation": 0.5},
    ):
        with pytest.raises(ArgumentError, match="proved for FedLin"):
            prepare(load(write(tmp_path, **{**certified, **changes})))


def test_every_method_is_listed_with_what_it_is() -> None:
    listed = {item.name: item for item in catalogue.methods()}
    assert set(listed) == set(fedlin.algorithms.__all__)
    assert all(item.summary for item in listed.values())
    bare = {name for name, item in listed.items() if not item.reference}
    assert bare == {"compressed", "gradient_descent"}, "every method from a paper names it"
    assert {item.name for item in catalogue.problem_kinds()} == set(fedlin.problems.__all__) - {"Problem"}
    assert {"top_k", "sign", "identity", "innovation"} <= {item.name for item in catalogue.compressors()}


# Tuning.


def attempt_with(best: float, diverging: float) -> Any:
    """Rounds grow with the distance from the best step size on a logarithmic scale; large ones diverge."""

    def attempt(values: Sequence[float], rounds: int) -> list[Trial]:
        return [
            Trial(value, "diverged", (None,), np.inf)
            if value > diverging
            else Trial(value, "done", (100 + round(10 * abs(np.log(value / best))),), 0.0)
            for value in values
        ]

    return attempt


@pytest.mark.parametrize(("best", "diverging"), [(0.3, 1.0), (30.0, 40.0), (1e-4, 1e-3), (3e-5, 1e9)])
def test_the_grid_grows_until_the_best_lies_inside(best: float, diverging: float) -> None:
    setting = config.TuningConfig(low=0.01, high=1.0, count=5)
    found = search(attempt_with(best, diverging), setting, 1.0, 400)
    assert not found.edge
    assert abs(np.log10(found.value / best)) <= 0.26, "within half a step of the grid"
    assert [trial.value for trial in found.trials] == sorted(trial.value for trial in found.trials)


def test_a_best_that_stays_outermost_is_flagged() -> None:
    found = search(attempt_with(1e9, 1e12), config.TuningConfig(low=0.01, high=1.0, count=5, extend=1), 1.0, 400)
    assert found.edge
    assert len(found.trials) == 8


def test_the_rule_counts_targets_then_rounds_then_the_last_measure() -> None:
    better = [
        Trial(1.0, "stopped", (50, 90), 1e-10),
        Trial(2.0, "done", (10, 95), 1e-10),  # sooner at the first target, later at the hardest
        Trial(3.0, "done", (5, None), 1e-9),
        Trial(4.0, "done", (6, None), 1e-12),
        Trial(5.0, "done", (None, None), 1e-3),
        Trial(6.0, "done", (None, None), 1e-2),
        Trial(7.0, "diverged", (1, 2), 1e-12),
    ]
    shuffled = [better[i] for i in (3, 6, 1, 0, 5, 2, 4)]
    assert sorted(shuffled, key=lambda trial: trial.rank) == better


def test_tuning_finds_what_trying_one_by_one_finds(tmp_path: Path) -> None:
    tuning = {"low": 0.05, "high": 5.0, "count": 5, "extend": 0}
    path = write(tmp_path, rounds=300, targets=[1e-4, 1e-8], plan={"tau": 3, "eta_bar": "tuned", "tuning": tuning})
    loaded = load(path)
    (run,) = prepare(loaded)
    found = tune(run, halve=False)
    rounds = {}
    for trial in found.trials:
        stop = fedlin.Stop(gap=1e-8)
        result = fedlin.simulate(run.algorithm, run.problem, fedlin.Plan.scaled(3, trial.value), 300, stop=stop)
        if result.status == "stopped":
            rounds[trial.value] = result.rounds
            assert trial.reached[1] == result.rounds
    assert found.value == min(rounds, key=rounds.__getitem__)


LEAST_SQUARES = {"kind": "least_squares", "clients": 5, "dim": 10, "samples": 40}
DRAWN = {"clients": 6, "dim": 8, "samples": 60}
SEARCHED: list[tuple[dict[str, Any], dict[str, Any]]] = [  # problem, method
    ({**LEAST_SQUARES, "alpha": 10.0}, {"name": "fedlin"}),
    ({**LEAST_SQUARES, "alpha": 1.0}, {"name": "fedavg"}),
    ({**LEAST_SQUARES, "alpha": 0.1, "seed": 3}, {"name": "scaffold"}),
    ({**LEAST_SQUARES, "seed": 1}, {"name": "fedlin", "uplink": "innovation(top_k(2))"}),
    ({**LEAST_SQUARES, "noise": 0.01}, {"name": "fedavg"}),
    ({"kind": "logistic", "l2": 0.01, "synthetic": DRAWN}, {"name": "fedlin"}),
    ({"kind": "logistic", "l2": 0.1, "synthetic": DRAWN}, {"name": "fedavg"}),
    ({"kind": "softmax", "l2": 0.01, "synthetic": DRAWN}, {"name": "fednova"}),
    ({"kind": "softmax", "l2": 0.1, "synthetic": DRAWN}, {"name": "fedprox", "beta": 0.1}),
    ({"kind": "ridge", "l2": 0.1, "synthetic": DRAWN}, {"name": "gradient_descent", "plan": {"tau": 1}}),
]  # fmt: skip


@pytest.mark.long
def test_halving_chooses_what_the_whole_grid_chooses_with_a_fifth_of_the_rounds(tmp_path: Path) -> None:
    """Within one step of the grid on nine of ten problems; what is counted is the rounds of all candidates."""
    apart, shares = [], []
    for problem, method in SEARCHED:
        content = {"problem": problem, "plan": {"tau": 4, "eta": "tuned"}, "algorithm": [method]}
        (run,) = prepare(load(write(tmp_path, rounds=960, targets=[1e-4, 1e-8], **content)))
        counts = []
        chosen = []
        for halve in (False, True):
            played = list[int]()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("fedlin.experiments.tune.simulate_many", _counted(played))
                chosen.append(tune(run, halve=halve).value)
            counts.append(sum(played))
        apart.append(abs(np.log(chosen[1] / chosen[0])) / np.log(1000 ** (1 / 6)))
        shares.append(counts[1] / counts[0])
        print(method["name"], problem["kind"], *chosen, round(apart[-1], 2), round(shares[-1], 3))
    assert sum(distance < 1.01 for distance in apart) >= 9
    assert np.mean(shares) <= 0.2


def _counted(played: list[int]) -> Any:
    """`simulate_many` that notes how many rounds all runs of a batch were computed: as many as the longest of them."""

    def many(*arguments: Any, **named: Any) -> list[fedlin.Result]:
        results = fedlin.simulate_many(*arguments, **named)
        played.append(len(results) * max(result.rounds for result in results))
        return results

    return many


def test_arguments_reach_the_method(tmp_path: Path) -> None:
    method = {"name": "fedlin", "uplink": "innovation(top_k(2))", "label": "thin"}
    (run,) = prepare(load(write(tmp_path, algorithm=[method])))
    assert isinstance(run.algorithm, Algorithm)
    assert run.algorithm is fedlin.fedlin(uplink=fedlin.innovation(fedlin.top_k(2)))


def test_what_is_made_of_the_uploads_is_a_grid_and_reaches_the_run(tmp_path: Path) -> None:
    method = {"name": "fedavg", "aggregate": ["mean", "coordinate_median"]}
    averaged, robust = prepare(load(write(tmp_path, algorithm=[method, {"name": "fedprox", "beta": 0.1}])))[:2]
    assert averaged.aggregate.is_mean
    assert robust.aggregate is coordinate_median()
    assert robust.algorithm is averaged.algorithm is fedlin.fedavg()
    assert robust.planned.label == "fedavg(aggregate=coordinate_median)"
    loaded = load(write(tmp_path, rounds=3, algorithm=[method]))
    folder = RunFolder.create(tmp_path / "runs", loaded)
    execute(folder, prepare(loaded), say=lambda line: None)
    found = {run.aggregate: result.x for run, result in folder.results()}
    plan = fedlin.Plan.scaled(2, 0.01)
    for run in (averaged, robust):
        expected = fedlin.simulate(run.algorithm, run.problem, plan, 3, aggregate=run.aggregate).x
        np.testing.assert_array_equal(found[run.planned.aggregate], expected)
    assert not np.array_equal(found["mean"], found["coordinate_median"])


def test_privacy_is_stated_before_the_run_and_in_the_report(tmp_path: Path) -> None:
    """ε of the whole run; the search for a step size is said not to be counted, and what is not noised is named."""
    private = {"uplink": "gaussian(5.0, 30.0)", "model_uplink": "gaussian(1.0, 30.0)"}
    content = {
        "rounds": 4,
        "problem": {"kind": "least_squares", "clients": 4, "dim": 3, "samples": 8},
        "plan": {"tau": 2, "eta_bar": 0.001},
        "algorithm": [
            {"name": "fedlin", "label": "private", **private},
            {"name": "fedlin", "label": "half", "uplink": "gaussian(5.0, 30.0)"},
            {"name": "fedavg"},
        ],
    }
    file = tmp_path / "private.toml"
    file.write_text(tomli_w.dumps(content))
    loaded = load(file)
    folder, said = RunFolder.create(tmp_path / "run", loaded), list[str]()
    execute(folder, prepare(loaded), say=said.append)
    exact = fedlin.privacy.account(prepare(loaded)[0].algorithm, 4, delta=1e-5)
    assert said[0] == f"private: {exact}."
    assert "half: " in said[1]
    assert "not private" in said[1]
    assert "[1/3]" in said[2]  # nothing had run when ε was told
    tables = {table.title: table for table in compare_folders([folder]).chapters[0].tables}
    assert tables["Privacy of a run to its last round"].rows[0] == ("private", str(exact))
