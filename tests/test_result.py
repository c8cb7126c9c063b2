"""Results: tables, pictures, files and words."""

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fedlin
from fedlin import Plan, Result, problems, simulate
from fedlin.columns import COLUMNS as LISTED
from fedlin.columns import column
from fedlin.errors import ArgumentError, CheckpointError, UnknownError
from fedlin.result import AXES

M, D = 3, 2
PROBLEM = problems.quadratic(np.stack([np.eye(D) * (i + 1) for i in range(M)]), np.arange(6.0).reshape(M, D))
COLUMNS = [
    "round",
    "gap",
    "distance",
    "loss",
    "grad_norm",
    "bytes_up",
    "bytes_down",
    "gradients",
    "seconds",
    "simulated",
]


@pytest.fixture(scope="module")
def result() -> Result:
    method, plan = fedlin.fedlin(uplink=fedlin.top_k(1)), Plan([1, 2, 3], 0.05)
    return fedlin.Clock(speed=10).time(simulate(method, PROBLEM, plan, 12, seed=9), method, PROBLEM, plan)


@pytest.fixture(scope="module")
def unsolved() -> Result:
    problem = problems.from_loss(lambda x, batch: jnp.mean((x[None] - batch) ** 2), np.zeros(D), np.ones((M, 4, D)))
    return simulate(fedlin.fedavg(), problem, Plan(2, 0.1), 5, iterates=False)


@pytest.fixture(scope="module")
def diverged() -> Result:
    return simulate(fedlin.fedavg(), PROBLEM, Plan(2, 1e4), 100, x0=np.ones(D))


def test_dataframe_has_one_row_a_round_and_one_column_a_measure(result: Result, unsolved: Result) -> None:
    table = result.to_dataframe()
    assert sorted(table.columns) == sorted(COLUMNS)
    assert len(table) == 13
    assert table["round"].tolist() == list(range(13))
    for name in COLUMNS[1:]:
        np.testing.assert_array_equal(table[name].to_numpy(), getattr(result, name))
    assert sorted(unsolved.to_dataframe().columns) == sorted(
        {*COLUMNS, "training_loss"} - {"gap", "distance", "simulated"}
    )


@pytest.mark.parametrize("x", AXES)
@pytest.mark.parametrize("y", [one.name for one in LISTED if one.measure is not None])
def test_plot_draws_the_curve_asked_for(result: Result, x: str, y: str) -> None:
    from matplotlib.axes import Axes

    if x == "bits":  # counted apart
        result = result.with_columns(bits=np.linspace(0.0, 60.0, 13))
    axes = result.plot(y, x)
    assert isinstance(axes, Axes)
    (line,) = axes.get_lines()
    across = np.arange(13) if x == "rounds" else getattr(result, x)
    np.testing.assert_array_equal(line.get_xdata(), across)
    np.testing.assert_array_equal(line.get_ydata(), getattr(result, y))
    assert axes.get_xlabel() == column(x).label
    assert axes.get_ylabel() == column(y).label
    assert axes.get_yscale() == ("linear" if y == "loss" else "log")
    assert line.get_label() == result.algorithm


def test_plots_share_axes_and_take_line_settings(result: Result, unsolved: Result) -> None:
    axes = result.plot(color="red", label="mine")
    assert axes.get_ylabel() == column("gap").label
    assert unsolved.plot("grad_norm", ax=axes) is axes
    first, second = axes.get_lines()
    assert (first.get_color(), first.get_label(), second.get_label()) == ("red", "mine", "fedavg")
    assert unsolved.plot().get_ylabel() == column("grad_norm").label  # what there is when the minimiser is not known


def test_plot_refuses_what_it_cannot_draw(result: Result, unsolved: Result) -> None:
    with pytest.raises(ArgumentError, match=r"y = 'speed'.*'gap'"):
        result.plot("speed")
    with pytest.raises(ArgumentError, match=r"x = 'epochs'.*'bytes_up'"):
        result.plot(x="epochs")
    with pytest.raises(UnknownError, match="gap"):
        unsolved.plot("gap")


@pytest.mark.parametrize("which", ["result", "unsolved", "diverged"])
def test_save_and_load_give_back_every_bit(which: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    original: Result = request.getfixturevalue(which)
    path = tmp_path / "run.npz"
    original.save(path)
    loaded = Result.load(path)
    assert [p.name for p in tmp_path.iterdir()] == ["run.npz"]
    assert_equal(loaded, original)


def assert_equal(left: Result, right: Result) -> None:
    facts = {name: value for name, value in vars(right).items() if name not in ("columns", "x", "kept_iterates")}
    for name, value in facts.items():
        assert getattr(left, name) == value
        assert type(getattr(left, name)) is type(value)
    assert left.columns.keys() == right.columns.keys()
    pairs = {name: (left.columns[name], values) for name, values in right.columns.items()}
    for name, (one, other) in {**pairs, "x": (left.x, right.x)}.items():
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other, err_msg=name)
    if right.kept_iterates is None:
        assert left.kept_iterates is None
    else:
        np.testing.assert_array_equal(left.iterates, right.iterates)
    assert repr(left) == repr(right)


@pytest.mark.parametrize("which", ["result", "unsolved", "diverged"])
def test_a_file_saved_before_columns_were_a_list_is_read(
    which: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """It had a field for each column, those that may be missing with an underscore."""
    original: Result = request.getfixturevalue(which)
    optional = ("gap", "distance", "simulated")
    arrays: dict[str, Any] = {f"_{name}" if name in optional else name: a for name, a in original.columns.items()}
    if original.kept_iterates is not None:
        arrays["_iterates"] = original.iterates
    facts = {name: getattr(original, name) for name in ("algorithm", "status", "diverged_at", "seed")}
    np.savez(tmp_path / "old.npz", facts=np.array(json.dumps(facts)), x=original.x, **arrays)
    assert_equal(Result.load(tmp_path / "old.npz"), original)


def test_a_result_survives_copying_and_pickling(result: Result) -> None:
    for again in (copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        assert_equal(again, result)


# A column that a run was given, such as an accuracy measured every few rounds.


def test_a_metric_is_a_column_like_any_other(result: Result, tmp_path: Path) -> None:
    accuracy = np.full(13, np.nan)
    accuracy[::4] = [0.1, 0.6, 0.9, 0.8]
    judged = result.with_columns(accuracy=accuracy)
    np.testing.assert_array_equal(judged.accuracy, accuracy)
    assert "accuracy" in dir(judged)
    assert list(judged.to_dataframe())[-1] == "accuracy"
    axes = judged.plot("accuracy", "bytes")
    (line,) = axes.get_lines()
    np.testing.assert_array_equal(line.get_xdata(), result.bytes[::4])
    np.testing.assert_array_equal(line.get_ydata(), accuracy[::4])
    assert (axes.get_yscale(), axes.get_ylabel()) == ("linear", "accuracy")
    judged.save(tmp_path / "judged.npz")
    assert_equal(Result.load(tmp_path / "judged.npz"), judged)
    with pytest.raises(AttributeError, match=r"no accuracy; its columns are .*gap"):
        result.accuracy  # noqa: B018


def test_metrics_are_compared_from_below(result: Result) -> None:
    """Reached by the first round at which it is at least the target; the best is the largest."""
    rising, lower = np.linspace(0, 0.9, 13), np.linspace(0, 0.5, 13)
    results = {"good": result.with_columns(accuracy=rising), "bad": result.with_columns(accuracy=lower)}
    compared = fedlin.compare(results, targets=[0.4, 0.85], measure="accuracy")
    assert [(cost.method, cost.target, cost.reached, cost.best) for cost in compared.costs] == [
        ("good", 0.4, 1, 0.9), ("bad", 0.4, 1, 0.5), ("good", 0.85, 1, 0.9), ("bad", 0.85, 0, 0.5),
    ]  # fmt: skip
    assert compared.costs[0].spent["rounds"] == np.flatnonzero(rising >= 0.4)[0]
    assert compared.table().heads[1] == "accuracy at least"
    assert compared.table().rows[0][:2] == ("good", "0.4")  # the easiest target first, then the fewest rounds
    with pytest.raises(ArgumentError, match="measure = 'recall'"):
        fedlin.compare(results, measure="recall")


def test_save_keeps_the_name_it_was_given(result: Result, tmp_path: Path) -> None:
    result.save(str(tmp_path / "run.result"))
    assert Result.load(str(tmp_path / "run.result")).rounds == 12


def test_damaged_or_foreign_files_are_refused(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    result.save(path)
    content = path.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 16
    for damaged in (content[: len(content) // 2], bytes(flipped), b"", b"notes", b"PK\x03\x04"):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"run\.npz is not a result saved by fedlin, or it is damaged"):
            Result.load(path)
    np.savez(path, x=np.ones(3))
    with pytest.raises(CheckpointError, match="not a result"):
        Result.load(path)
    with pytest.raises(FileNotFoundError):
        Result.load(tmp_path / "none.npz")


def test_repr_reads_as_a_sentence(result: Result, unsolved: Result, diverged: Result) -> None:
    assert "fedlin(uplink=error_feedback(top_k(1))): done after 12 rounds, gap " in repr(result)
    assert f"{result.bytes_up[-1]:,} bytes up" in repr(result)
    assert f"{result.gradients[-1]:,} gradients" in repr(result)
    assert "gradient norm" in repr(unsolved)
    assert "gap" not in repr(unsolved)
    assert f"diverged after {diverged.rounds} rounds, diverged in round {diverged.diverged_at}" in repr(diverged)
    assert len(repr(result)) < 250


@pytest.mark.parametrize("name", ["gap", "distance"])
def test_what_is_not_known_says_what_to_use(unsolved: Result, name: str) -> None:
    with pytest.raises(UnknownError, match=rf"fedavg has no {name}.*loss or grad_norm"):
        getattr(unsolved, name)


def test_iterates_that_were_not_kept_say_how_to_keep_them(unsolved: Result) -> None:
    with pytest.raises(UnknownError, match="iterates=True"):
        _ = unsolved.iterates


def test_bytes_are_both_ways(result: Result) -> None:
    np.testing.assert_array_equal(result.bytes, result.bytes_up + result.bytes_down)
    assert result.bytes.dtype == np.int64
    assert np.all(np.diff(result.bytes) > 0)
    assert result.seed == 9
