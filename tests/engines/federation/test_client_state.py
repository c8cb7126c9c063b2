"""A site's states on its disk: written over files that are needed no more, whole or not at all.

Every test also runs where all arrays are long, and have files of their own.
"""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from test_federation import PROBLEM, D, Wrapped, events, serve, sites, undisturbed

import fedlin
from fedlin import Client
from fedlin.core import Method
from fedlin.engines import checkpoint
from fedlin.engines.federation import array_files
from fedlin.engines.federation.array_files import ArrayFiles
from fedlin.engines.federation.client_state import ClientStates
from fedlin.transports.loopback import Loopback

ALGORITHM = fedlin.fedlin()
KEPT = 8  # files: states of three rounds of two phases, and one of each phase to be written over
ARRAYS = 9  # files: models, gradients and replies of three rounds
LONG = array_files.LONG


@pytest.fixture(autouse=True, params=[LONG, 1], ids=["together", "apart"])
def long(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes from which an array is long."""
    monkeypatch.setattr(array_files, "LONG", request.param)
    return int(request.param)


def federation(
    folder: Path, rounds: int, on_round: Any = None, algorithm: Method = ALGORITHM, start_again: int = -1
) -> Any:
    """Site 0 keeps its states in a folder; its process is a new one after `start_again` rounds."""
    handlers = sites(algorithm)
    handlers["site-0"] = Client(algorithm, PROBLEM.client(0), folder=folder).handle

    def note(played: int, x: Any, measures: Any) -> None:
        if on_round is not None:
            on_round(played)
        if played == start_again:
            handlers["site-0"] = Client(algorithm, PROBLEM.client(0), folder=folder).handle

    carrier = Wrapped(handlers, lambda name, phase, payload: handlers[name](phase, payload))
    return serve(algorithm, carrier, rounds, on_round=note)


def states(folder: Path) -> list[Path]:
    """The files of the one run in a site's folder."""
    (run,) = [path for path in folder.iterdir() if path.is_dir()]
    return sorted(run.iterdir())


def test_a_run_needs_no_new_files_and_no_more_room(tmp_path: Path, long: int) -> None:
    """After the first rounds the same few files are written over, whatever their names."""
    seen: dict[int, tuple[set[int], int]] = {}

    def look(played: int) -> None:
        found = [path.stat() for path in states(tmp_path)]
        seen[played] = {one.st_ino for one in found}, sum(one.st_size for one in found)

    result = federation(tmp_path, 50, look)
    np.testing.assert_array_equal(result.x, undisturbed(ALGORITHM, 50))
    assert all(files == seen[10][0] for played, (files, _) in seen.items() if played >= 10)
    assert len(seen[50][0]) <= KEPT + ARRAYS * (long == 1)
    assert seen[50][1] <= seen[10][1] + 100  # the numbers of rounds have more digits


@pytest.mark.parametrize(
    ("algorithm", "arrays"),
    [
        (ALGORITHM, {LONG: 4, 1: 3}),  # a model, a gradient, a reply; a gradient's reply is one, and is written again
        (fedlin.compressed(2), {LONG: 9, 1: 4}),  # of seven arrays and two replies those that one of the phases changes
    ],
    ids=str,
)
def test_a_round_writes_what_has_changed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, long: int, algorithm: Method, arrays: dict[int, int]
) -> None:
    written: list[int] = []
    write, write_array = checkpoint.write_whole, ArrayFiles._write

    def counted(path: Any, content: Any, *how: Any, **named: Any) -> None:
        if Path(path).suffix == ".state":
            written.append(sum(map(len, content)))
        write(path, content, *how, **named)

    def counted_array(files: ArrayFiles, stored: Any, content: Any) -> None:
        written.append(content.size)
        write_array(files, stored, content)

    monkeypatch.setattr(checkpoint, "write_whole", counted)
    monkeypatch.setattr(ArrayFiles, "_write", counted_array)
    before: list[int] = []
    federation(tmp_path, 8, lambda played: before.append(len(written)), algorithm)
    of_a_round = written[before[-2] : before[-1]]
    whole = [size for size in of_a_round if size == 8 * D]
    assert len(of_a_round) - len(whole) <= 2 + 2 * (long == 1)  # states, and replies that are no array
    assert len(whole) <= (arrays[1] if long == 1 else 0)
    assert sum(of_a_round) <= arrays[long] * 8 * D + 2500


def test_files_are_their_owner_s_alone(tmp_path: Path) -> None:
    federation(tmp_path, 6)
    assert {path.stat().st_mode & 0o777 for path in states(tmp_path)} == {0o600}


def test_what_a_killed_write_left_is_cleared_away(tmp_path: Path) -> None:
    """Half of a longer file than any stands where states are written; a new process removes it and goes on."""

    def kill(played: int) -> None:
        if played == 5:
            for phase in (0, 1):
                (states(tmp_path)[0].parent / f"phase{phase}.part").write_bytes(bytes(10_000))
            (states(tmp_path)[0].parent / "0.array").write_bytes(bytes(10_000))

    result = federation(tmp_path, 12, kill, start_again=5)
    np.testing.assert_array_equal(result.x, undisturbed(ALGORITHM, 12))
    assert not events(result, "started afresh")
    assert all(path.stat().st_size < 10_000 for path in states(tmp_path))


def test_a_longer_file_that_is_written_over_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "spare.part").write_bytes(bytes(10_000))
    checkpoint.write(tmp_path / "a.state", {}, {"x": np.arange(3.0)}, reuse="spare")
    found = checkpoint.read(tmp_path / "a.state", {})
    assert found is not None
    np.testing.assert_array_equal(found["x"], np.arange(3.0))
    assert [path.name for path in tmp_path.iterdir()] == ["a.state"]


@pytest.mark.parametrize("algorithm", [fedlin.fedlin(), fedlin.scaffold()], ids=str)
def test_a_disk_that_is_full_for_a_moment_costs_no_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: Method
) -> None:
    """A write over an old file fails: the states before are whole, and the request is answered when asked again."""
    replace, failures = os.replace, list[Any]()

    def full(source: Any, target: Any) -> None:
        if Path(target).suffix == ".state" and len(failures) < 2 and int(Path(target).stem[:10]) == 6:
            failures.append(target)
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    result = federation(tmp_path, 12, algorithm=algorithm, start_again=8)
    assert len(failures) == 2
    np.testing.assert_array_equal(result.x, undisturbed(algorithm, 12))
    assert not events(result, "started afresh")


def test_a_file_of_an_array_that_somebody_removes_is_written_again(tmp_path: Path, long: int) -> None:
    """Also where the array has not changed: the process still has it."""
    removed = list[Path]()

    def remove(played: int) -> None:
        if played == 5:
            removed.extend(path for path in states(tmp_path) if path.suffix == ".array")
            for path in removed:
                path.unlink()

    algorithm = fedlin.compressed(2)
    result = federation(tmp_path, 12, remove, algorithm, start_again=6)
    assert bool(removed) is (long == 1)
    np.testing.assert_array_equal(result.x, undisturbed(algorithm, 12))
    assert not events(result, "started afresh")


def test_states_of_an_earlier_version_are_read(tmp_path: Path) -> None:
    """It had all arrays of a state, and its reply, in one file."""
    algorithm = fedlin.compressed(2)

    def write_as_before(played: int) -> None:
        if played != 5:
            return
        (run,) = [path for path in tmp_path.iterdir() if path.is_dir()]
        now = ClientStates(Client(algorithm, PROBLEM.client(0)).handshake, run)
        for path in run.glob("*.state"):
            record = now.get(bytes.fromhex(path.stem[11:]))
            assert record is not None
            arrays = {f"leaf{i}": leaf for i, leaf in enumerate(jax.tree.leaves(record.state))}
            arrays["place"] = np.array([record.round, record.opening, record.phase])
            arrays |= {name: np.frombuffer(getattr(record, name), np.uint8) for name in ("parent", "reply")}
            checkpoint.write(path, now._identity, arrays)
        for path in run.glob("*.array"):
            path.unlink()

    result = federation(tmp_path, 12, write_as_before, algorithm, start_again=5)
    np.testing.assert_array_equal(result.x, undisturbed(algorithm, 12))
    assert not events(result, "started afresh")


def test_a_damaged_state_is_a_lost_one(tmp_path: Path) -> None:
    """One byte of every state is another when the process starts again: memories are made anew, and none is wrong."""
    algorithm = fedlin.scaffold()

    def damage(played: int) -> None:
        if played == 5:
            for path in states(tmp_path):
                content = bytearray(path.read_bytes())
                content[-1] ^= 1
                path.write_bytes(content)

    result = federation(tmp_path, 400, damage, algorithm, start_again=5)
    assert events(result, "started afresh")
    np.testing.assert_allclose(result.x, PROBLEM.minimizer, atol=1e-6)


@pytest.mark.parametrize("name", ["{} (copy){}", "{}-backup{}", "server-old-{}{}"])
def test_a_copy_that_somebody_made_changes_nothing(tmp_path: Path, name: str) -> None:
    """Beside a server's checkpoints or a site's states, under a name that a person or a file manager gives."""
    algorithm, handlers = fedlin.scaffold(), sites(fedlin.scaffold())
    for rounds in (4, 9):
        handlers["site-0"] = Client(algorithm, PROBLEM.client(0), folder=tmp_path / "site").handle
        result = serve(algorithm, Loopback(handlers), rounds, folder=tmp_path / "server")
        for path in (*(tmp_path / "server").glob("*.ckpt"), *(tmp_path / "site").glob("*/*.state")):
            shutil.copy(path, path.with_name(name.format(path.stem, path.suffix)))
    assert not events(result, "started afresh")
    np.testing.assert_array_equal(result.x, undisturbed(algorithm, 9))
