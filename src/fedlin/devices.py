"""What the machine offers: which devices there are, and what runs on them."""

from functools import cache

import jax


@cache
def runs_kernels() -> bool:
    """Whether JAX's first device is an NVIDIA GPU new enough (compute capability 8) for kernels of our own."""
    device = jax.devices()[0]
    if device.platform != "gpu" or "cuda" not in device.client.platform_version.lower():
        return False
    return float(device.compute_capability) >= 8
