"""What a CPU gives at best, and how much of it a round of fedlin uses."""

import os
import platform
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from benchmarks import operate_page
from benchmarks.workloads import Workload, w1, w2
from fedlin.precision import precision

REPEATS = 5


def seconds(play: Callable[[], Any], calls: int = 1) -> float:
    """The median time of a call, after one that warms up."""
    times = []
    for _ in range(REPEATS + 1):
        began = time.perf_counter()
        for _ in range(calls):
            play()
        times.append((time.perf_counter() - began) / calls)
    return float(np.median(times[1:]))


def ceilings() -> dict[str, float]:
    """Bytes a second of a copy in memory, float64 operations a second of a product, seconds of an empty call of JAX."""
    source = np.ones(2**25)
    target = np.empty_like(source)
    with precision(np.float64):
        factor = jax.device_put(np.random.default_rng(0).standard_normal((1024, 1024)))
        product, nothing = jax.jit(lambda a: a @ a), jax.jit(lambda a: a + 1)
        scalar = jax.device_put(np.float64(0))
        return {
            "copy bytes/s": 2 * source.nbytes / seconds(lambda: np.copyto(target, source)),
            "flop/s": 2 * len(factor) ** 3 / seconds(lambda: product(factor).block_until_ready()),
            "call": seconds(lambda: nothing(scalar).block_until_ready(), 1000),
        }


def needs() -> dict[str, dict[str, float]]:
    """Operations of a round of FedLin with its measures, and bytes if all data is read once a round."""

    def need(work: Workload, products: Callable[[Any], Any]) -> dict[str, float]:
        data = jax.tree.leaves(work.problem.data)
        size = max(leaf.nbytes for leaf in data)  # A, or the rows
        tau = np.broadcast_to(work.plan.rows(work.problem.clients, 1)[0], work.problem.clients)
        read = sum(leaf.nbytes for leaf in data)
        return {"operations": float(2 * size / 8 * np.mean(products(tau))), "bytes": float(read)}

    return {
        # A gradient, three products with the eigenvectors, and the measures.
        "fedlin": need(w1(True), lambda tau: 0 * tau + 4),
        # A gradient before the steps and one a step.
        "fedlin, step by step": need(w1(False), lambda tau: tau + 1),
        # Two products a gradient; the measures take another gradient.
        "W2": need(w2(), lambda tau: 2 * (tau + 2)),
    }


def machine() -> dict[str, Any]:
    """What it ran on."""
    return {
        "cpu": operate_page.processor(),
        "cores": os.cpu_count(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "jax": jax.__version__,
        "numpy": np.__version__,
    }
