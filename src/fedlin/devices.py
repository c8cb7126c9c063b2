"""What the machine offers: which devices there are, what runs on them, and how work is shared out over them.

JAX shows a CPU as one device, and small products run on one core of it. So fedlin asks for a device a core when it is
imported, unless JAX has started already or was configured with a number of devices.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from fedlin.core import PyTree
from fedlin.errors import ArgumentError
from fedlin.layout import CLIENTS, RUNS, SHARED_OUT, count_bytes

Devices = int | Sequence[jax.Device] | None
WORTH_SHARING = 2**25  # bytes that a round reads, from which a second core outweighs what their all-reduces cost
WORTH_COPYING = 2**28  # bytes of data up to which every core gets a copy for runs of its own


def _show_cores() -> None:
    """Let JAX show every core as a device, where nothing else was configured."""
    config: Any = jax.config  # its typed face leaves this out
    if config.jax_num_cpu_devices == -1 and "device_count" not in os.environ.get("XLA_FLAGS", ""):
        with suppress(RuntimeError):  # JAX has started: it keeps the devices it has
            # Not every system says which cores are this process's own.
            own = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
            config.update("jax_num_cpu_devices", len(own))


_show_cores()


def compile_less(least: bool = False) -> None:
    """Let XLA do less when it compiles for a CPU, from where JAX starts on; what was set in XLA_FLAGS stays.

    It is for commands whose programs run for less time than they take to compile.

    Args:
        least: Whether it does as little as it can.
    """
    flags = ["--xla_backend_optimization_level=1", "--xla_cpu_use_fusion_emitters=false"]
    if least:
        flags[0] = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    os.environ.setdefault("XLA_FLAGS", " ".join(flags))


def _cores() -> list[jax.Device]:
    """The devices that can share work without being asked to: a CPU's cores, of this process."""
    return jax.local_devices() if jax.default_backend() == "cpu" and jax.process_count() == 1 else []


def choose_mesh(data: PyTree, clients: int, passes: float) -> Mesh | None:
    """The cores that share the clients of a run whose rounds read the data `passes` times, if that pays."""
    if count_bytes(data) * passes < WORTH_SHARING:
        return None
    cores = _cores()
    size = next((k for k in range(min(len(cores), clients), 1, -1) if clients % k == 0), 1)
    return Mesh(np.array(cores[:size]), (CLIENTS,)) if size > 1 else None


def choose_spread(data: PyTree, runs: int) -> Mesh | None:
    """The cores that share so many runs of one structure."""
    cores = _cores()[:runs]
    return Mesh(np.array(cores), (RUNS,)) if len(cores) > 1 and count_bytes(data) <= WORTH_COPYING else None


@cache
def runs_kernels() -> bool:
    """Whether JAX's first device is an NVIDIA GPU new enough (compute capability 8) for kernels of our own."""
    device = jax.devices()[0]
    if device.platform != "gpu" or "cuda" not in device.client.platform_version.lower():
        return False
    return float(device.compute_capability) >= 8


def make_mesh(devices: Devices, clients: int) -> Mesh | None:
    """The devices that share the clients equally; None where one is enough."""
    if devices is None:
        return None
    there = jax.devices()
    counted = isinstance(devices, int) and not isinstance(devices, bool) and devices > 0
    listed = isinstance(devices, Sequence) and devices and all(isinstance(device, jax.Device) for device in devices)
    if not counted and not listed:
        raise ArgumentError(f"devices = {devices!r} is not allowed: give how many, or a list of JAX devices.")
    if isinstance(devices, int) and devices > len(there):
        raise ArgumentError(
            f"devices = {devices} and JAX sees {len(there)}: give at most as many. "
            "On a CPU, set JAX_NUM_CPU_DEVICES=N before JAX starts."
        )
    chosen = there[:devices] if isinstance(devices, int) else list(devices)
    if clients % len(chosen):
        fitting = [k for k in range(1, len(chosen)) if clients % k == 0]
        raise ArgumentError(
            f"devices = {len(chosen)} for {clients} clients: all take an equal share, so give one of {fitting}."
        )
    return Mesh(np.array(chosen), (CLIENTS,)) if len(chosen) > 1 else None


def share_out(tree: PyTree, mesh: Mesh) -> PyTree:
    """Arrays with a leading client axis, each device holding its own clients' part."""
    return jax.device_put(tree, NamedSharding(mesh, SHARED_OUT))
