"""Thin links: the commands that make them, the clock that foretells them, the relay that delays, and one real run."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")
pytest.importorskip("psutil", reason="comes with fedlin[flare]")

from benchmarks import thin_links, thin_network, thin_page, thin_problems

import fedlin
from local_flare import free_port
from realdata import data_file

ROOT = Path(__file__).parents[1]
BYTES = {"FedAvg": [[800, 800]], "FedLin": [[800, 800], [800, 800]], "compressed FedLin": [[96, 96], [96, 96]]}


def test_every_site_has_a_link_of_its_own_shaped_at_both_ends() -> None:
    sites = ["north", "south"]
    made = [" ".join(words) for words in thin_network.setup_commands("x-", sites)]
    namespaces = {line.split()[-1] for line in made if line.startswith("ip netns add")}
    assert namespaces == {"x-server", "x-north", "x-south"}
    addresses = [line.split()[5] for line in made if " addr add " in line]
    assert len(set(addresses)) == 3
    assert len({address.rpartition(".")[0] for address in addresses}) == 1  # one network
    ends = [(words[2], words[6]) for words in thin_network.shape_commands("x-", sites, 5.0)]
    pairs = [line.split() for line in made if line.startswith("ip link add")]
    assert sorted(ends) == sorted(end for p in pairs for end in ((p[5], p[3]), (p[12], p[10])))
    assert all(
        words[words.index("rate") + 1] == "5000000bit" for words in thin_network.shape_commands("x-", sites, 5.0)
    )


def made_up(latency: float, cost: float, overhead: float) -> tuple[Any, Any]:
    """Tuned methods, and the runs that sites of these numbers would have over free links."""
    tuned, free = {}, {}
    for name, sizes in BYTES.items():
        calls = thin_problems.PROBLEMS["a9a"].tau + len(sizes) - 1
        a_round = 2 * len(sizes) * latency + calls * cost
        tuned[name] = {"bytes": sizes, "eta": 0.1, "rounds": 4}
        carried = float(np.sum(sizes)) + 2 * len(sizes) * overhead * thin_links.ACKNOWLEDGED
        free[name] = {"seconds": [9.0 + a_round * t for t in range(5)], "carried": carried}
    return tuned, free


def test_what_the_clock_is_given_is_found_again() -> None:
    tuned, free = made_up(0.03, 0.002, 7000.0)
    found = thin_links.calibrate(thin_problems.PROBLEMS["a9a"], tuned, free)
    assert found["latency"] == pytest.approx(0.03)
    assert found["speed"] == pytest.approx(500)
    assert found["overhead"] == pytest.approx(dict.fromkeys(BYTES, 7000.0))


def test_a_prediction_is_the_sum_by_hand() -> None:
    """FedLin: two exchanges a round, four messages, each with its latency, and with its headers at the link's rate.

    After a pause the bucket of `tbf` is full, and as many bytes pass at once.
    """
    problem = thin_problems.PROBLEMS["a9a"]
    drawn = fedlin.problems.least_squares(clients=5, dim=100, samples=120)
    small = thin_problems.ThinProblem(**{**vars(problem), "build": lambda: drawn})
    calibrated = {"latency": 0.03, "speed": 500.0, "overhead": dict.fromkeys(BYTES, 7000.0)}
    tuned = {"eta": 1e-4, "rounds": 11}
    got = thin_links.predicted(small, "FedLin", tuned, calibrated, 0.5)
    sent = 4 * (800 + 7000 - thin_network.BURST) / (0.5e6 / 8)
    assert got == pytest.approx(9 * (4 * 0.03 + sent + (problem.tau + 1) / 500))


def test_steps_are_ranked_by_rounds_to_the_target_and_then_by_the_end() -> None:
    problem = thin_problems.PROBLEMS["a9a"]
    curves = {"late": [1, 1e-3, 1e-9], "soon": [1, 1e-7, 1e-7], "near": [1, 1e-2, 1e-5], "far": [1, 1e-2, 1e-2]}
    ranks = {name: thin_links.rank(problem, np.array(curve), "done") for name, curve in curves.items()}
    assert sorted(ranks, key=ranks.__getitem__) == ["soon", "late", "near", "far"]
    assert thin_links.rank(problem, np.array(curves["soon"]), "diverged") > max(ranks.values())


def test_the_relay_delays_each_way_and_changes_nothing() -> None:
    """Two messages sent at once arrive at once: the delay is that of a way, not a rate."""
    delay, sent = 0.2, os.urandom(300_000)
    port = free_port()
    with socket.create_server(("127.0.0.2", port)) as far:
        command = [sys.executable, "-m", "benchmarks.delay_relay", str(port), "127.0.0.2", str(delay)]
        relay = subprocess.Popen(command, cwd=ROOT)
        try:
            near = connected(port)
            there, _ = far.accept()
            begun = time.monotonic()
            near.sendall(sent)
            got = receive(there, len(sent))
            took = time.monotonic() - begun
            there.sendall(got)
            assert receive(near, len(sent)) == sent
            assert took >= delay
            assert time.monotonic() - begun >= 2 * delay
            near.close()
            assert there.recv(1) == b""  # the end of a connection is passed on too
            there.close()
        finally:
            relay.kill()
            relay.wait()


def connected(port: int) -> socket.socket:
    for _ in range(300):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=30)
        except OSError:
            time.sleep(0.1)
    raise TimeoutError("the relay does not listen")


def receive(connection: socket.socket, count: int) -> bytes:
    parts: list[bytes] = []
    while sum(map(len, parts)) < count:
        parts.append(connection.recv(1 << 16))
    return b"".join(parts)


def test_the_page_and_its_picture_are_those_of_what_was_measured(tmp_path: Path) -> None:
    found = json.loads(thin_links.RESULTS.read_text(encoding="utf-8"))
    thin_page.save(found, tmp_path / "page.md", tmp_path)
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == thin_page.PAGE.read_text(encoding="utf-8")
    picture = thin_page.PICTURES / "thin-links.svg"
    assert picture.read_bytes() == (tmp_path / "thin-links.svg").read_bytes()
    assert picture.stat().st_size < 100_000


def test_it_is_skipped_where_there_are_no_namespaces(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["thin_links", "a9a:5", "--file", "unused.json"])
    thin_links.main()
    assert capsys.readouterr().out == "skipped: network namespaces need root\n"
    assert not Path("unused.json").exists()


@pytest.mark.long
def test_a_federation_over_thin_links_ends_where_the_simulation_does(monkeypatch: pytest.MonkeyPatch) -> None:
    if (reason := thin_network.why_not()) is not None:
        pytest.skip(reason)
    monkeypatch.setenv(thin_problems.DATA, str(data_file("a9a.gz").parent))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path]))
    problem, rounds, eta = thin_problems.PROBLEMS["a9a"], 5, 0.5
    tuned = {"FedLin": {"rounds": rounds, "eta": eta}}
    run = dict(thin_links.measure("a9a", tuned, ["0.5"]))["0.5"]["FedLin"]
    expected = fedlin.simulate(fedlin.fedlin(), problem.build(), fedlin.Plan(problem.tau, eta), rounds)
    assert run["ends at"] == pytest.approx(expected.gap[-1], abs=1e-7)
    # No faster than the link: the method's own bytes and the delay of four messages a round.
    least = 4 * (984 / (0.5e6 / 8) + thin_links.DELAY)
    assert np.diff(run["seconds"]).min() >= least
    assert run["carried"] > 4 * 984
    left = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert f"fedlin{os.getpid()}-" not in left
