"""Compiled programs kept on disk: by the command line, and by the library where it is asked to."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import fedlin
from fedlin.cache import VARIABLE, keep_compiled

HITS = """
import sys
import jax
import fedlin
assert str(fedlin.keep_compiled(sys.argv[1])) == sys.argv[1]
seen = []
jax.monitoring.register_event_listener(lambda event, **_: seen.append(event))
problem = fedlin.problems.least_squares(clients=2, dim=3, samples=4)
fedlin.simulate(fedlin.fedavg(), problem, fedlin.Plan(2, 0.01), 2)
print(seen.count("/jax/compilation_cache/cache_hits"), seen.count("/jax/compilation_cache/cache_misses"))
"""


def hits_and_misses(folder: Path) -> list[int]:
    """How often a fresh process finds a program in the folder, and how often not."""
    command = [sys.executable, "-c", HITS, str(folder)]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=True, timeout=300)
    return [int(word) for word in done.stdout.split()]


@pytest.mark.slow
def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    first, second = hits_and_misses(tmp_path), hits_and_misses(tmp_path)
    assert first[0] == 0
    assert first[1] > 0
    assert second == [first[1], 0]


def test_an_empty_variable_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    before = dict(jax.config.values)
    assert keep_compiled() is None
    assert jax.config.values == before


def test_the_library_keeps_nothing_by_itself() -> None:
    before = dict(jax.config.values)
    problem = fedlin.problems.least_squares(clients=2, dim=3, samples=4)
    fedlin.simulate(fedlin.fedavg(), problem, fedlin.Plan(2, 0.01), 2)
    assert jax.config.values == before
