"""Float64 where a problem asks for it, without flipping JAX's global switch for the user's other code."""

from contextlib import AbstractContextManager

import jax
import numpy as np
from numpy.typing import DTypeLike


def precision(dtype: DTypeLike) -> AbstractContextManager[object]:
    """A context in which JAX computes in 64 bits exactly if `dtype` has 64."""
    context: AbstractContextManager[object] = jax.enable_x64(np.dtype(dtype).itemsize == 8)
    return context
