"""Every test runs under JAX's strictest rules for mixing types and shapes."""

import os
from collections.abc import Iterator
from typing import Any

import jax
import pytest

os.environ["FEDLIN_CACHE"] = ""  # tests leave nothing in the user's folders


@pytest.fixture(autouse=True)
def strict_promotion() -> Iterator[None]:
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture
def ordinary_promotion(strict_promotion: None) -> Iterator[None]:
    """JAX's ordinary rules: examples and notebooks are written for users, who have these."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
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
