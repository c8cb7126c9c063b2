"""Many claims at once: one process a core, verdicts as they finish."""

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence

from fedlin.claims.claim import Claim, Setting, find
from fedlin.report.verdict import Verdict


def verdicts(claims: Sequence[Claim], setting: Setting, jobs: int = 1) -> Iterator[Verdict]:
    """Check the claims on `jobs` processes; with one they come in order, with more as they finish."""
    jobs = min(jobs, len(claims))
    if jobs <= 1:
        yield from (claim.attempt(setting) for claim in claims)
        return
    # Each process is one of several already, so its linear algebra keeps to one core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # A fresh interpreter each: JAX's threads do not survive a fork.
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=_leave_interrupts) as pool:
        yield from pool.imap_unordered(_attempt, [(claim.id, setting) for claim in claims])


def _attempt(task: tuple[str, Setting]) -> Verdict:
    # A claim is sent by its name: the function behind it cannot travel.
    name, setting = task
    return find(name).attempt(setting)


def _leave_interrupts() -> None:
    """Ctrl-C is the parent's to handle; it ends its workers itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
