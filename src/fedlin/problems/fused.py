"""All τ_i local steps of a linear model with the client's rows held on the chip, as one GPU kernel.

A loop over gradients reads the rows twice a step, and memory bounds it. Here a client is one program: its rows are
read once a round into registers, cut into tiles [R, C] that span the program's threads, and each step takes
z = X x, r = slope(z) and Xᵀr from the same tiles. Every client stops at its own τ_i. Under `vmap` clients become the
grid.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from math import ceil, gcd, log2
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import DTypeLike

from fedlin.core import Matrix, Scalar, Vector
from fedlin.problems.objective import Descent
from fedlin.problems.rows import Sheet

Reference = Any  # to an array in the memory of the device, within a kernel


class Model(NamedTuple):
    """A linear model by its derivative: `slope` takes the logits (an array a class) and the labels of rows."""

    slope: Callable[[Sequence[Vector], Any], Sequence[Vector]]
    classes: int
    # Whether the loss depends on y aᵀx alone: then y a is held instead of a, and `slope` is given no labels.
    signed: bool


REGISTERS = 190  # of 32 bits a thread may fill with what is kept through the steps, of 255
WARPS = (1, 2, 4, 8)
UNROLLED = 2048  # tile products in one step that are still worth compiling


class Tile(NamedTuple):
    """How a client's rows are cut: R rows and C columns are held by all threads of the program together."""

    rows: int  # R
    columns: int  # C
    warps: int


@cache
def choose_tile(samples: int, features: int, classes: int, dtype: DTypeLike) -> Tile | None:
    """The tile that costs the fewest instructions a step; None where no tile fits the registers."""
    size = np.dtype(dtype).itemsize
    vector = gcd(features, 16 // size)  # neighbours in one thread, as wide as a row's alignment lets it load
    best: tuple[float, Tile] | None = None
    for warps in WARPS:
        for lanes in (4, 8, 16, 32):  # threads side by side along a row
            tile = Tile(32 * warps // lanes, lanes * vector, warps)
            down, along = ceil(samples / tile.rows), ceil(features / tile.columns)
            own = along * vector  # columns of one thread
            registers = size // 4 * (down * own + own + classes * (down + 2 * own))
            if registers > REGISTERS or down * along * classes > UNROLLED:
                continue
            shuffles = down * log2(lanes) + own * (log2(32 / lanes) + (warps > 1) * 4)
            cost = warps * classes * (2 * down * own + 2 * shuffles + 12 * down)
            if best is None or cost < best[0]:
                best = cost, tile
    return None if best is None else best[1]


def descend_on_chip(model: Model, sheet: Sheet, work: Descent) -> Vector | None:
    """x ← x - η(w Xᵀ slope(X x) + l2 x + shift + pull (x - center)), `steps` times; None where it does not fit."""
    samples, features = sheet.X.shape
    if sheet.l2.ndim:  # the kernel takes one penalty for all entries
        return None
    tile = choose_tile(samples, features, model.classes, sheet.X.dtype)
    return None if tile is None else run_kernel(model, tile, sheet, work)


def run_kernel(model: Model, tile: Tile, sheet: Sheet, work: Descent, interpret: bool = False) -> Vector:
    """The steps as one kernel; `interpret` runs it on any device, slowly."""
    dtype = sheet.X.dtype
    # Summed up beforehand: x ← keep x - push - scale Xᵀr. A client's rows weigh equally, and padding is zero.
    keep = 1 - work.eta * (sheet.l2 + work.pull)
    push = work.eta * (work.shift - work.pull * work.center)
    kernel = partial(_kernel, model, tile, _plain if interpret else _exact)
    result: Vector = launch(kernel, work.start, tile.warps, interpret)(
        sheet.X,
        sheet.y,
        jnp.stack([jnp.asarray(keep, dtype), jnp.asarray(work.eta * sheet.weight[0], dtype)]),
        jnp.broadcast_to(jnp.asarray(push, dtype), work.start.shape),
        jnp.asarray(work.steps, jnp.int32).reshape(1),
        work.start,
    )
    return result


def launch(kernel: Callable[..., None], like: Vector, warps: int, interpret: bool) -> Callable[..., Vector]:
    """`kernel` as a function whose result looks like `like`."""
    from jax.experimental import pallas

    call: Callable[..., Vector] = pallas.pallas_call(
        kernel,
        jax.typeof(like),
        compiler_params=triton().CompilerParams(num_warps=warps, num_stages=1),
        interpret=interpret,
    )
    return call


def _kernel(
    model: Model,
    tile: Tile,
    fma: Callable[..., Vector],
    X: Reference,
    y: Reference,
    numbers: Reference,
    push: Reference,
    steps: Reference,
    start: Reference,
    out: Reference,
) -> None:
    (samples, features), classes = X.shape, model.classes
    rows = [at + jnp.arange(tile.rows) for at in range(0, samples, tile.rows)]
    columns = [at + jnp.arange(tile.columns) for at in range(0, features, tile.columns)]
    tiles = [[_load_tile(X, row, column) for column in columns] for row in rows]
    labels = [load(y, row, row < samples) for row in rows]
    if model.signed:
        tiles = [[part * label[:, None] for part in row] for row, label in zip(tiles, labels, strict=True)]

    def load_model(array: Reference) -> list[list[Vector]]:
        return [[load(array, c * classes + k, c < features) for c in columns] for k in range(classes)]

    keep, scale, pushes = numbers[0], numbers[1], load_model(push)

    def step(_: Scalar, xs: list[list[Vector]]) -> list[list[Vector]]:
        slopes = [
            model.slope(
                [jnp.sum(_dot(fma, row, [part[None, :] for part in x]), axis=1) for x in xs],
                None if model.signed else y,
            )
            for row, y in zip(tiles, labels, strict=True)
        ]
        moves = [
            [jnp.sum(_dot(fma, column, [r[k][:, None] for r in slopes]), axis=0) for column in zip(*tiles, strict=True)]
            for k in range(classes)
        ]
        return [
            [keep * x - away - scale * move for x, away, move in zip(*parts, strict=True)]
            for parts in zip(xs, pushes, moves, strict=True)
        ]

    for k, x in enumerate(jax.lax.fori_loop(0, steps[0], step, load_model(start))):
        for c, part in zip(columns, x, strict=True):
            triton().store(out.at[c * classes + k], part, mask=c < features)


def _dot(fma: Callable[..., Vector], left: Sequence[Vector], right: Sequence[Vector]) -> Vector:
    """Σ_j left_j right_j, entry by entry."""
    total = left[0] * right[0]
    for a, b in zip(left[1:], right[1:], strict=True):
        total = fma(a, b, total)
    return total


def _plain(a: Vector, b: Vector, c: Vector) -> Vector:
    return a * b + c


def _exact(a: Vector, b: Vector, c: Vector) -> Vector:
    # The compiler leaves a product and a sum as two instructions unless asked for one.
    kind, bits = ("f", 32) if c.dtype == jnp.float32 else ("d", 64)
    arguments = [jnp.broadcast_to(a, c.shape), jnp.broadcast_to(b, c.shape), c]
    fused: Vector = triton().elementwise_inline_asm(
        f"fma.rn.f{bits} $0, $1, $2, $3;",
        args=arguments,
        constraints=f"={kind},{kind},{kind},{kind}",
        pack=1,
        result_shape_dtypes=[jax.typeof(c)],
    )[0]
    return fused


def load(array: Reference, index: Vector, inside: Vector) -> Vector:
    """The entries at `index`, zero where it is not `inside`."""
    entries: Vector = triton().load(array.at[index], mask=inside, other=0)
    return entries


def _load_tile(X: Reference, row: Vector, column: Vector) -> Matrix:
    shape = (row.size, column.size)
    i, j = jnp.broadcast_to(row[:, None], shape), jnp.broadcast_to(column[None, :], shape)
    tile: Matrix = triton().load(X.at[i, j], mask=(i < X.shape[0]) & (j < X.shape[1]), other=0)
    return tile


def triton() -> ModuleType:
    """JAX's interface to Triton."""
    # Loaded where it is used, so that `import fedlin` stays light.
    from jax.experimental.pallas import triton

    return triton
