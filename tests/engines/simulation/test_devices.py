"""Clients and runs shared out over devices, cores and processes: the same run, to rounding, in less memory each.

How many devices a CPU shows is fixed when JAX starts, so these runs happen in processes of their own.
"""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
import pytest

import compilation
import fedlin
from compilation import compilations
from fedlin import Plan, problems
from fedlin.errors import ArgumentError

CLIENTS = 8
TAU = np.arange(1, CLIENTS + 1)
FOLDERS = [str(Path(file).parent) for file in (__file__, compilation.__file__)]


def workloads() -> dict[str, Any]:
    """Runs that reach every part of a round: closed form and loop, links with memory, draws, absent clients."""
    draw = np.random.default_rng(0)
    X = draw.standard_normal((CLIENTS, 12, 5))
    squares = problems.regression(X, draw.standard_normal((CLIENTS, 12)), reduction="mean")
    logistic = problems.logistic(X, np.sign(draw.standard_normal((CLIENTS, 12))), l2=0.1)
    half = np.tile([[1, 0], [0, 1], [1, 1], [1, 0]], (3, CLIENTS // 2))
    return {
        "closed form": (fedlin.fedlin(uplink=fedlin.top_k(2)), squares, {"participation": half, "weights": TAU}),
        "loop": (fedlin.scaffold(), logistic, {}),
        "surveyed within a round": (fedlin.fedlin(), logistic, {"participation": half, "weights": TAU}),
        "a cohort that cannot be shared": (fedlin.fedavg(), logistic, {"participation": 3 / 8, "layout": "client"}),
        "noise": (fedlin.fedavg(), problems.minibatch(logistic, 4), {"participation": 0.5}),
        "masks by number": (fedlin.compressed_scaffnew(CLIENTS, 3), logistic, {"plan": Plan(2, 0.05)}),
        "a second model": (fedlin.locodl(fedlin.natural(), 0.5, 0.5), logistic, {"plan": Plan(1, 0.05)}),
        "uploads gathered": (fedlin.fedlin(), logistic, {"aggregate": fedlin.aggregation.multi_krum(2)}),
    }


def play(name: str, **rest: Any) -> fedlin.Result:
    algorithm, problem, options = workloads()[name]
    plan = options.pop("plan", Plan(TAU, 0.05))
    return fedlin.simulate(algorithm, problem, plan, 12, seed=3, **options, **rest)


STEPS = (0.05, 0.04, 0.03, 0.02, 0.01, 40.0)  # the last diverges, and ends before the others


def play_many() -> list[fedlin.Result]:
    algorithm, problem, _ = workloads()["loop"]
    return fedlin.simulate_many(algorithm, problem, [Plan(TAU, eta) for eta in STEPS], 12, seeds=3)


def curves(result: fedlin.Result) -> dict[str, list[float]]:
    return {"x": result.iterates.ravel().tolist(), "loss": result.loss.tolist(), "calls": result.gradients.tolist()}


def assert_same(found: dict[str, list[float]], expected: dict[str, list[float]]) -> None:
    for name, column in expected.items():
        np.testing.assert_allclose(found[name], column, rtol=1e-12, atol=1e-14, err_msg=name)


def start(code: str, devices: int) -> subprocess.Popen[str]:
    """A fresh interpreter with so many CPU devices, this file at hand as `test_devices`."""
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": str(devices)}
    whole = f"import sys; sys.path[:0] = {FOLDERS}; import test_devices; {code}"
    return subprocess.Popen(
        [sys.executable, "-c", whole], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def answer(child: subprocess.Popen[str]) -> Any:
    out, err = child.communicate(timeout=300)
    assert child.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def tell_four() -> None:
    """What the child with four devices does."""
    from fedlin.devices import make_mesh, share_out
    from fedlin.layout import sum_over_clients

    runs = {name: curves(play(name, devices=4)) for name in workloads()}
    with patch("fedlin.devices.WORTH_SHARING", 0):
        unasked = {name: curves(play(name)) for name in ("closed form", "loop")}
    data = np.zeros((CLIENTS, 1000), np.float32)
    mesh = make_mesh(4, CLIENTS)
    assert mesh is not None
    bytes_each = [shard.data.nbytes for shard in share_out(data, mesh).addressable_shards]
    pairs = [(np.ones(CLIENTS), (data, data[:, 0])), (TAU / 9.0, data)]
    program = jax.jit(lambda pairs: sum_over_clients(pairs, mesh)).lower(pairs).compile().as_text()
    meetings = re.findall(r"= (\w+\[[\d,]*\])\S* all-reduce\(", program or "")
    with compilations() as compiled:
        batch = [curves(result) for result in play_many()]  # six runs for four cores
    assert compiled.count("jit(advance)") == 1, compiled
    print(json.dumps({"runs": runs, "unasked": unasked, "batch": batch, "bytes": bytes_each, "meetings": meetings}))


def tell_of_process(number: int, port: int) -> None:
    """What each of two processes does: join the other, and run on the devices of both."""
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=number)
    print(json.dumps(curves(play("loop", devices=jax.devices()))))


@pytest.mark.slow
def test_four_devices_play_the_same_run_with_a_quarter_of_the_data_each() -> None:
    told = answer(start("test_devices.tell_four()", 4))
    for name in workloads():
        assert_same(told["runs"][name], curves(play(name)))
    assert told["bytes"] == [CLIENTS * 1000 * 4 // 4] * 4
    assert told["meetings"] == ["f32[2001]"]  # whatever is summed, the devices meet once
    for name, run in told["unasked"].items():
        assert_same(run, curves(play(name, devices=1)))
    algorithm, problem, _ = workloads()["loop"]
    for run, eta in zip(told["batch"], STEPS, strict=True):
        assert_same(run, curves(fedlin.simulate(algorithm, problem, Plan(TAU, eta), 12, seed=3, devices=1)))


@pytest.mark.parametrize(
    ("before", "environment", "devices"),
    [
        ("", {}, len(os.sched_getaffinity(0))),
        ("import jax; jax.devices(); ", {}, 1),
        ("", {"JAX_NUM_CPU_DEVICES": "3"}, 3),
        ("", {"XLA_FLAGS": "--xla_force_host_platform_device_count=5"}, 5),
    ],
    ids=["a device a core", "JAX had started", "told by JAX's own setting", "told by XLA's"],
)
def test_import_shows_the_cores_unless_told_otherwise(before: str, environment: dict[str, str], devices: int) -> None:
    clean = {name: value for name, value in os.environ.items() if name not in ("JAX_NUM_CPU_DEVICES", "XLA_FLAGS")}
    code = f"{before}import fedlin, jax; print(len(jax.devices()))"
    done = subprocess.run([sys.executable, "-c", code], env=clean | environment, capture_output=True, text=True)
    assert done.stdout.strip() == str(devices), done.stderr


@pytest.mark.long  # gloo, which carries it between CPUs, was once seen to mix up two sums of a round
def test_two_processes_play_the_same_run() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = [start(f"test_devices.tell_of_process({number}, {port})", 1) for number in (0, 1)]
    try:
        for child in children:
            assert_same(answer(child), curves(play("loop")))
    finally:  # one that fails leaves the other waiting
        for child in children:
            child.kill()
            child.communicate()


def test_one_device_is_the_plain_run() -> None:
    np.testing.assert_array_equal(play("loop", devices=1).iterates, play("loop").iterates)


def test_devices_that_cannot_share_equally_are_refused() -> None:
    twice = [jax.devices()[0]] * 3  # the shares are counted before anything is placed
    with pytest.raises(ArgumentError, match=r"devices = 3 for 8 clients.*\[1, 2\]"):
        play("loop", devices=twice)
