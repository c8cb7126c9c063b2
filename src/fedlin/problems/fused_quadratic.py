"""All τ_i local steps of a quadratic taken one by one, with A_i held on the chip, as one GPU kernel."""

import jax
import jax.numpy as jnp
import numpy as np

from fedlin.core import Matrix, Scalar, Vector
from fedlin.problems.fused import Reference, launch, load, triton
from fedlin.problems.objective import Descent

LARGEST = 2**17  # bytes of A_i that leave room in a multiprocessor's registers
BYTES_A_WARP = 2**14


def descend_on_chip(A: Matrix, b: Vector, work: Descent) -> Vector | None:
    """x ← x - η(A x - b + shift + pull (x - center)), `steps` times; None where A does not fit."""
    size = _padded(b.size) ** 2 * np.dtype(b.dtype).itemsize
    return run_kernel(A, b, work) if size <= LARGEST else None


def run_kernel(A: Matrix, b: Vector, work: Descent, interpret: bool = False) -> Vector:
    """The steps as one kernel; `interpret` runs it on any device, slowly."""
    width, dtype = _padded(b.size), b.dtype
    # Summed up beforehand: x ← keep x - push - η A x.
    numbers = jnp.stack([jnp.asarray(1 - work.eta * work.pull, dtype), jnp.asarray(work.eta, dtype)])
    push = work.eta * (work.shift - work.pull * work.center - b)

    def kernel(
        A: Reference, numbers: Reference, push: Reference, steps: Reference, start: Reference, out: Reference
    ) -> None:
        index = jnp.arange(width)
        i, j = (jnp.broadcast_to(line, (width, width)) for line in (index[:, None], index[None, :]))
        inside = index < push.size
        held: Matrix = triton().load(A.at[i, j], mask=(i < push.size) & (j < push.size), other=0)
        keep, eta, steady = numbers[0], numbers[1], load(push, index, inside)

        def step(_: Scalar, x: Vector) -> Vector:
            moved: Vector = keep * x - steady - eta * jnp.sum(held * x[None, :], axis=1)
            return moved

        x = jax.lax.fori_loop(0, steps[0], step, load(start, index, inside))
        triton().store(out.at[index], x, mask=inside)

    warps = int(np.clip(width**2 * np.dtype(dtype).itemsize // BYTES_A_WARP, 1, 8))
    result: Vector = launch(kernel, work.start, warps, interpret)(
        A, numbers, jnp.asarray(push, dtype), jnp.asarray(work.steps, jnp.int32).reshape(1), work.start
    )
    return result


def _padded(dim: int) -> int:
    # Tensors on the chip have sides that are powers of two.
    return max(16, 1 << (dim - 1).bit_length())
