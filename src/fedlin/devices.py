"""What the machine offers: which devices there are, what runs on them, and how clients are shared out over them."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from fedlin.errors import ArgumentError
from fedlin.layout import CLIENTS, SHARED_OUT

Devices = int | Sequence[jax.Device] | None


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
            "On a CPU, set XLA_FLAGS=--xla_force_host_platform_device_count=N before JAX starts."
        )
    chosen = there[:devices] if isinstance(devices, int) else list(devices)
    if clients % len(chosen):
        fitting = [k for k in range(1, len(chosen)) if clients % k == 0]
        raise ArgumentError(
            f"devices = {len(chosen)} for {clients} clients: every device takes an equal share, so give {fitting}."
        )
    return Mesh(np.array(chosen), (CLIENTS,)) if len(chosen) > 1 else None


def share_out(tree: Any, mesh: Mesh) -> Any:
    """Arrays with a leading client axis, each device holding its own clients' part."""
    return jax.device_put(tree, NamedSharding(mesh, SHARED_OUT))
