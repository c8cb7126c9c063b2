"""Many claims at once: verdicts as they finish, a section of claims to a process."""

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from typing import Any

from fedlin.claims.claim import EXACT, OPEN, Claim, Setting, find
from fedlin.devices import compile_less
from fedlin.report.verdict import Verdict

ALONE = "open-models"  # takes as long as a section and shares no program with one
# The order in which sections begin: what takes longest first, so that no process is left with it alone.
LONGEST = ("Figures", OPEN, "Compression", "Rates without compression", ALONE, EXACT)


def verdicts(claims: Sequence[Claim], setting: Setting, jobs: int = 1, notices: bool = False) -> Iterator[Verdict]:
    """Check claims, each as soon as a process is free.

    Args:
        claims: Which.
        setting: How much work to spend on each.
        jobs: How many processes; with one the claims come in order, with more as they finish.
        notices: Whether every claim is tried with wrong methods too.

    Returns:
        The verdicts.
    """
    # The claims of a section share compiled programs, which processes cannot.
    names = sorted({_share(claim) for claim in claims}, key=_rank)
    sections = [[claim.id for claim in claims if _share(claim) == name] for name in names]
    jobs = min(jobs, len(sections))
    if jobs <= 1:
        yield from (claim.attempt(setting, notices) for claim in claims)
        return
    # Each process is one of several already, so its linear algebra and its runs keep to one core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")
    os.environ.setdefault("PJRT_NPROC", "1")  # XLA's threads
    compile_less(least=setting.quick)
    # A fresh interpreter each: JAX's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    finished = context.SimpleQueue()
    with context.Pool(jobs, initializer=_begin, initargs=(finished,)) as pool:
        pool.map_async(_attempt, [(ids, setting, notices) for ids in sections], chunksize=1)
        for _ in claims:
            yield finished.get()


def _share(claim: Claim) -> str:
    """The claims of equal share go to one process."""
    return ALONE if claim.id == ALONE else claim.section


def _rank(section: str) -> tuple[int, str]:
    return (LONGEST.index(section) if section in LONGEST else len(LONGEST)), section


_finished: Any = None  # in a worker: where its verdicts go


def _begin(finished: object) -> None:
    global _finished
    _finished = finished
    # Ctrl-C is the parent's to handle; it ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _attempt(task: tuple[list[str], Setting, bool]) -> None:
    # A claim is sent by its name: the function behind it cannot travel.
    ids, setting, notices = task
    for name in ids:
        _finished.put(find(name).attempt(setting, notices))
