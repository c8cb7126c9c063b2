"""Sums of counts beyond 32 bits, which a program in single precision has no whole numbers for."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

_UNIT = 2**10  # with it both parts keep to 31 bits for two million clients and 2⁴¹ gradients


def wide_sum(counts: jax.Array) -> jax.Array:
    """Σ counts in two parts: how many units, and the rest."""
    return jnp.stack([jnp.sum(part, dtype=jnp.int32) for part in jnp.divmod(counts, _UNIT)])


def read_wide_sum(parts: Any) -> NDArray[np.int64]:
    """The sums, from parts along the last axis.

    >>> read_wide_sum(wide_sum(jnp.full(3, 2**30))).item() == 3 * 2**30
    True
    """
    units, rest = np.moveaxis(np.asarray(parts, np.int64), -1, 0)
    return np.asarray(units * _UNIT + rest)
