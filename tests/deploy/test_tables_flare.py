"""Tables of hospitals over NVIDIA FLARE: prepared at the sites, and the model is that of one process on all rows."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

import fedlin
from fedlin import data
from fedlin.audit import AuditTrail
from fedlin.deploy.project import create
from fedlin.deploy.settings import NAME
from fedlin.deploy.status import lines
from fedlin.engines.federation.preparation import FILE
from hospital_table import hospital_rows
from local_flare import free_port, importable

pytestmark = pytest.mark.long
SITES = ("north", "south")
TAU, ETA, ROUNDS = {"north": 4, "south": 2}, {"north": 0.05, "south": 0.1}, 3
CLIENT = """
from pathlib import Path

import fedlin

ROWS = Path(__file__).with_name("rows.csv")


def table():
    return fedlin.data.read_table(ROWS, label="outcome")


def problem(preparation):
    global own
    own = preparation.problem("softmax", [table()], l2=0.01)
    return own


def evaluate(model):
    return {"loss": float(own.loss(model))}
"""
SETTINGS = f"""
[run]
rounds = {ROUNDS}

[prepare]
drop = ["hospital"]

[algorithm]
name = "fedlin"

[evaluation]
every = {ROUNDS}

[sites]
north = {{ tau = {TAU["north"]}, eta = {ETA["north"]} }}
south = {{ tau = {TAU["south"]}, eta = {ETA["south"]} }}
"""


def test_tables_are_prepared_at_the_sites_and_the_model_is_that_of_one_process(tmp_path: Path) -> None:
    folder = tmp_path / "federation"
    create(folder, SITES, "localhost", free_port())
    rows = hospital_rows()[:300]
    parts = {"north": rows[:200], "south": rows[200:]}
    for name, part in parts.items():
        place = folder / "sites" / name
        with (place / "rows.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(part[0]))
            writer.writeheader()
            writer.writerows(part)
        (place / "client.py").write_text(CLIENT)
    (folder / NAME).write_text(SETTINGS)
    with importable():
        command = [sys.executable, "-m", "fedlin", "federation", "start", "--local", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr

    tables = [data.read_table(folder / "sites" / name / "rows.csv", label="outcome") for name in SITES]
    pooled = data.prepare(
        data.read_table([folder / "sites" / name / "rows.csv" for name in SITES], label="outcome", client="hospital"),
        partition=data.Partition([np.arange(200), np.arange(200, 300)], SITES),
    )
    kept = data.Preparation.from_bytes((folder / "sites" / "south" / "state" / FILE).read_bytes())
    assert kept == pooled.preparation
    problem = kept.problem("softmax", tables, l2=0.01)
    plan = fedlin.Plan([TAU[name] for name in SITES], [ETA[name] for name in SITES])
    simulated = fedlin.simulate(fedlin.fedlin(), problem, plan, ROUNDS)
    np.testing.assert_allclose(np.load(folder / "server" / "model.npy"), simulated.x, atol=1e-10)
    (evaluation,) = (line for line in lines(folder / "server") if line.get("event") == "evaluation")
    for name, table in zip(SITES, tables, strict=True):
        loss = kept.problem("softmax", [table], l2=0.01).loss(simulated.x)
        assert evaluation["sites"][name]["loss"] == pytest.approx(float(loss), rel=1e-9)
        asked = [
            entry.facts["kind"] for entry in AuditTrail(folder / "sites" / name).entries() if "kind" in entry.facts
        ]
        assert asked[:3] == ["SUMMARISE", "PREPARE", "HELLO"]
        assert asked[-2:] == ["EVALUATE", "FINAL"]
    log = (folder / "server" / "fedlin.log").read_text(encoding="utf-8")
    assert "preparing took" in log
    assert "patient: left out" in log
    assert "P0" not in json.dumps(log), "no entry of an id is at the server"
