"""What is known of every round is one list: everything else reads it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fedlin
from fedlin.columns import COLUMNS, MEASURED, SPENT, Column, column, headline, write
from fedlin.engines.federation.round_log import FederationResult
from fedlin.errors import ArgumentError
from quadratics import X0, plan, problem
from ten_changes import NEW_COLUMN

# Everything that reads the list, in a package to which one line was added.
USES = """
import sys
from pathlib import Path
import numpy as np
import fedlin
from fedlin.experiments.config import StopConfig
from quadratics import X0, plan, problem

def sizes(result):
    np.testing.assert_allclose(result.size, np.linalg.norm(result.iterates, axis=1), rtol=1e-12)
    return result

folder, run = Path(sys.argv[1]), (fedlin.fedlin(), problem(), plan())
told = []
whole = sizes(fedlin.simulate(*run, 8, x0=X0, callbacks=[lambda t, measures: told.append(measures["size"])]))
np.testing.assert_array_equal(told, whole.size[1:])
sizes(fedlin.simulate(*run, 8, x0=X0, chunk=3))
sizes(fedlin.simulate_many(*run, 8, x0=X0, seeds=[0, 1])[1])
sizes(fedlin.simulate(*run, 4, x0=X0, checkpoint=folder / "run.ckpt"))
resumed = sizes(fedlin.simulate(*run, 8, x0=X0, checkpoint=folder / "run.ckpt"))
np.testing.assert_array_equal(resumed.size, whole.size)
seldom = fedlin.simulate(*run, 8, x0=X0, measure_every=4)
np.testing.assert_array_equal(np.flatnonzero(~np.isnan(seldom.size)), [0, 4, 8])
limit = 0.05
stopped = fedlin.simulate(*run, 8, x0=0 * X0, stop=fedlin.Stop(size=limit))
assert stopped.status == "stopped" and stopped.size[-1] >= limit and np.all(stopped.size[:-1] < limit), stopped.size
clock = fedlin.Clock(speed=10)
sizes(fedlin.flanp(fedlin.gradient_tracking(), run[1], run[2], clock, 8, accuracy=1.0, x0=X0))
whole.save(folder / "run.npz")
np.testing.assert_array_equal(fedlin.Result.load(folder / "run.npz").size, whole.size)
assert whole.plot("size").get_ylabel() == "‖x‖"
assert "size" in whole.to_dataframe()
assert fedlin.compare({"m": stopped}, limit, measure="size").costs[0].spent["rounds"] == stopped.rounds
assert "size" in StopConfig.model_fields
"""


@pytest.mark.slow
def test_a_new_column_is_one_line(tmp_path: Path) -> None:
    """Computed, kept, resumed, stopped by, saved, drawn, compared and named in files."""
    copied = tmp_path / "src" / "fedlin"
    shutil.copytree(Path(fedlin.__file__).parent, copied, ignore=shutil.ignore_patterns("__pycache__"))
    listed = copied / "columns.py"
    before, mark, after = listed.read_text(encoding="utf-8").partition('    _spent("bytes_up"')
    assert mark
    listed.write_text(before + NEW_COLUMN + mark + after, encoding="utf-8")
    helpers = str(Path(__file__).parent / "helpers")
    paths = os.pathsep.join([str(tmp_path / "src"), helpers])
    done = subprocess.run(
        [sys.executable, "-c", USES, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_run_has_every_column_that_is_measured_or_spent() -> None:
    result = fedlin.simulate(fedlin.fedlin(), problem(), plan(), 3, x0=X0)
    assert result.columns.keys() == {one.name for one in (*MEASURED, *SPENT)}
    for one in COLUMNS:
        assert (one.measure is None) or (one.cost is None)
        if one.sums and one.cost is not None:
            assert result.columns[one.name][0] == 0
            assert np.all(np.diff(result.columns[one.name]) >= 0)


def test_a_federation_keeps_the_sums_that_a_simulation_keeps() -> None:
    assert {one.name for one in SPENT} <= set(FederationResult.__dataclass_fields__)


def test_limits_are_at_most_or_at_least() -> None:
    values = np.array([0.5, np.nan, 0.8, 0.9])
    assert column("gap").reached(values, 0.8).tolist() == [True, False, True, False]
    assert column("accuracy").reached(values, 0.8).tolist() == [False, False, True, True]
    for one in (*MEASURED, column("accuracy")):
        assert not np.any(one.reached(np.array([-1e300, 0, 1e300, np.nan]), one.never))


def test_a_stop_says_what_it_cannot_do() -> None:
    assert fedlin.Stop(1e-3) == fedlin.Stop(gap=1e-3)
    assert fedlin.Stop(gap=1e-3, accuracy=0.9).limits == {"gap": 1e-3, "accuracy": 0.9}
    assert fedlin.Stop(gap=1e-3).loss is None
    assert hash(fedlin.Stop(loss=1.0, gap=0.1)) == hash(fedlin.Stop(gap=0.1, loss=1.0))
    with pytest.raises(
        ArgumentError, match=r"stop\.seconds is not allowed: a run ends by gap, distance, grad_norm, loss"
    ):
        fedlin.Stop(seconds=3.0)
    with pytest.raises(ArgumentError, match=r"Stop\(accuracy=0.9\), and this run measures no accuracy"):
        fedlin.simulate(fedlin.fedavg(), problem(), plan(), 3, stop=fedlin.Stop(accuracy=0.9))
    with pytest.raises(AttributeError, match="no seconds"):
        fedlin.Stop().seconds  # noqa: B018


def test_values_are_written_for_a_reader() -> None:
    assert [write("bytes", value) for value in (12, 1.5e3, 2.5e6, 3e9)] == ["12 B", "1.5 kB", "2.5 MB", "3 GB"]
    assert (write("rounds", 12345), write("gap", 1.5e-7), write("accuracy", 0.91234)) == ("12,345", "1.50e-07", "0.912")
    assert headline({"gap": np.nan, "loss": 0.25}) == "loss 0.25"
    assert isinstance(column("accuracy"), Column)
