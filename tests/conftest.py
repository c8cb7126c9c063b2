"""Every test runs under JAX's strictest rules for mixing types and shapes; all share what they compile."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import jax
import pytest

os.environ["FEDLIN_CACHE"] = ""  # tests leave nothing in the user's folders


def share_programs() -> None:
    """Let all files and workers of this session share compiled programs, which are most of its time.

    The folder goes with the session, so that a session compiles all that it tests. The processes that tests start do
    not see it. A program that is read while another worker writes it is compiled again (see `filterwarnings`).
    """
    variable = "FEDLIN_TEST_PROGRAMS"
    if variable not in os.environ:  # the first process, whose workers inherit it
        os.environ[variable] = tempfile.mkdtemp(prefix="fedlin-programs-")
        atexit.register(shutil.rmtree, os.environ[variable], ignore_errors=True)
    settings = {
        "jax_compilation_cache_dir": os.environ[variable],
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": 0,
    }
    for name, value in settings.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]


if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
    share_programs()


@pytest.fixture(autouse=True)
def strict_promotion() -> Iterator[None]:
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture(scope="module", autouse=True)
def forgotten_programs() -> Iterator[None]:
    """What a file compiled goes with it: a process that kept thousands of programs was seen to crash unwinding."""
    yield
    jax.clear_caches()  # type: ignore[no-untyped-call]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """All checks of one row of the contract share compiled programs, so one worker gets them all."""
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class ByRow(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            test, _, row = nodeid.rpartition("-")[0].partition("[")
            return row if "test_contract.py" in test else nodeid

    return ByRow(config, log)
