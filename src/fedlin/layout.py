"""How a function of one client is applied to all of them in one program.

Step-major runs every client's first step, then every client's second: right on a GPU. Client-major runs all
steps of one client while its data is in cache, and lets every client stop at its own τ_i: right on a CPU
for large clients. In between lie blocks: as many clients at once as fit in a core's cache.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fedlin.checks import one_of

CACHE_BYTES = 512 * 1024  # what one core keeps close: the L2 cache of current server chips, or half of it

Each = Callable[..., Any]


def each_client(function: Callable[..., Any], block: int | None) -> Callable[..., Any]:
    """`function` over the leading axis of its arguments, `block` clients at a time; None means all at once."""
    if block is None:
        return jax.vmap(function)
    return lambda *arguments: jax.lax.map(
        lambda one: function(*one), arguments, batch_size=block if block > 1 else None
    )


def choose_block(layout: str, data: Any, clients: int) -> int | None:
    """Clients at a time for a layout: "step" all, "client" one, "auto" by the rule above."""
    one_of("layout", layout, ("auto", "client", "step"))
    if layout == "client":
        return 1
    if layout == "step" or jax.default_backend() != "cpu":
        return None
    bytes_each = sum(np.dtype(a.dtype).itemsize * a.size for a in jax.tree.leaves(data)) / clients
    fitting = max(1, int(CACHE_BYTES // max(bytes_each, 1)))
    if fitting >= clients:
        return None
    # Equal blocks leave no remainder, which would be compiled as a second copy of the loop.
    return next((b for b in range(fitting, fitting // 2, -1) if clients % b == 0), fitting)
