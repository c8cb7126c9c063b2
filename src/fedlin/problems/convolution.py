"""Convolutions and pooling in forms that stay fast where every client has a model of its own.

A convolution whose kernel differs by client is a grouped convolution to the compiler, which takes several times as long
as the same arithmetic in one batched matrix product. So where kernels differ, the patches of the images are laid out as
rows and multiplied with the kernel as a matrix. Where all clients share a kernel, their images are one large batch. On
a CPU every convolution is such a product, since the compiler's own is ten times slower inside of a loop.

Max-pooling over windows that do not overlap is a maximum over two axes, and its derivative goes to the first entry of
a window that attains it, as the compiler's own does by a far slower search.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from numpy.typing import DTypeLike

Array = jax.Array
Shape = tuple[int, ...]
MOST_OFFSETS = 256  # entries of a window up to which one slice each is worth compiling


class Convolution(NamedTuple):
    """The parameters of `jax.lax.conv_general_dilated`, by its names."""

    window_strides: Shape
    padding: tuple[tuple[int, int], ...]
    lhs_dilation: Shape
    rhs_dilation: Shape
    dimension_numbers: lax.ConvDimensionNumbers
    feature_group_count: int
    batch_group_count: int
    precision: lax.PrecisionLike
    preferred_element_type: DTypeLike | None


class Window(NamedTuple):
    """The parameters of `jax.lax.reduce_window`, by its names."""

    window_dimensions: Shape
    window_strides: Shape
    padding: tuple[tuple[int, int], ...]
    base_dilation: Shape
    window_dilation: Shape


def convolve(how: Convolution, images: Array, kernel: Array) -> Array | None:
    """The convolution, ready for clients with kernels of their own; None where it is best left as it is."""
    spatial = kernel.ndim - 2
    offsets = np.prod([kernel.shape[axis] for axis in how.dimension_numbers.rhs_spec[2:]], dtype=int)
    if how.batch_group_count != 1 or spatial == 0 or offsets > MOST_OFFSETS:
        return None
    return _convolution(how)(images, kernel)


@cache
def _convolution(how: Convolution) -> Callable[[Array, Array], Array]:
    """The convolution with derivatives that know, like itself, what to do where kernels differ."""

    @jax.custom_vjp
    def convolution(images: Array, kernel: Array) -> Array:
        result: Array = _forward(how)(images, kernel)
        return result

    def forward(images: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
        return convolution(images, kernel), (images, kernel)

    def backward(residuals: tuple[Array, Array], slope: Array) -> tuple[Array, Array]:
        images, kernel = residuals
        to_images, to_kernel = _to_images(how, images.shape), _to_kernel(how, kernel.shape)
        return to_images(kernel, slope).astype(images.dtype), to_kernel(images, slope).astype(kernel.dtype)

    convolution.defvjp(forward, backward)
    return convolution


@cache
def _forward(how: Convolution) -> Callable[[Array, Array], Array]:
    images_at, _, out_at = (spec[0] for spec in how.dimension_numbers)
    return _by_client(
        partial(_plain, how),
        partial(_product, how),
        lambda axis_size, images, kernel: _unmerge(_forward(how)(_merge(images, images_at), kernel), out_at, axis_size),
    )


@cache
def _to_images(how: Convolution, shape: Shape) -> Callable[[Array, Array], Array]:
    """(kernel, slope) -> the derivative in the images, whose shape is given."""
    images_at, _, out_at = (spec[0] for spec in how.dimension_numbers)

    def transposed(convolution: Callable[[Convolution, Array, Array], Array], kernel: Array, slope: Array) -> Array:
        images = jax.ShapeDtypeStruct(shape, kernel.dtype)  # type: ignore[no-untyped-call]
        derivative: Array = jax.linear_transpose(lambda images: convolution(how, images, kernel), images)(slope)[0]
        return derivative

    def merged(axis_size: int, slope: Array, kernel: Array) -> Array:
        large = list(shape)
        large[images_at] *= axis_size
        return _unmerge(_to_images(how, tuple(large))(kernel, _merge(slope, out_at)), images_at, axis_size)

    derivative = _by_client(
        lambda slope, kernel: transposed(_plain, kernel, slope),
        lambda slope, kernel: transposed(_product, kernel, slope),
        merged,
    )
    return lambda kernel, slope: derivative(slope, kernel)


@cache
def _to_kernel(how: Convolution, shape: Shape) -> Callable[[Array, Array], Array]:
    """(images, slope) -> the derivative in the kernel, whose shape is given: every client's own."""

    def transposed(convolution: Callable[[Convolution, Array, Array], Array], images: Array, slope: Array) -> Array:
        kernel = jax.ShapeDtypeStruct(shape, images.dtype)  # type: ignore[no-untyped-call]
        derivative: Array = jax.linear_transpose(lambda kernel: convolution(how, images, kernel), kernel)(slope)[0]
        return derivative

    return _by_client(partial(transposed, _plain), partial(transposed, _product), None)


def _by_client(
    plain: Callable[[Array, Array], Array],
    product: Callable[[Array, Array], Array],
    merged: Callable[[int, Array, Array], Array] | None,
) -> Callable[[Array, Array], Array]:
    """`plain` until it is applied to many clients at once: then `product`, or `merged` where the second is shared."""
    function = custom_vmap(plain)

    @function.def_vmap
    def many(axis_size: int, in_batched: Sequence[bool], first: Array, second: Array) -> tuple[Array, bool]:
        if merged is not None and not in_batched[1]:
            return merged(axis_size, first, second), True
        axes = tuple(0 if batched else None for batched in in_batched)
        return jax.vmap(product, in_axes=axes)(first, second), True

    return function


def _plain(how: Convolution, images: Array, kernel: Array) -> Array:
    if jax.default_backend() == "cpu":
        return _product(how, images, kernel)
    return lax.conv_general_dilated(images, kernel, **how._asdict())


def _product(how: Convolution, images: Array, kernel: Array) -> Array:
    """The convolution as one matrix product: the patches of the images times the kernel."""
    images_spec, kernel_spec, out_spec = how.dimension_numbers
    rank, groups = len(how.window_strides), how.feature_group_count
    images = lax.transpose(images, (images_spec[0], *images_spec[2:], images_spec[1]))  # image, space, channel
    kernel = lax.transpose(kernel, (*kernel_spec[2:], kernel_spec[1], kernel_spec[0]))  # space, channel in, channel out
    *size, inner, outer = kernel.shape
    around = [(low, high, dilation - 1) for (low, high), dilation in zip(how.padding, how.lhs_dilation, strict=True)]
    images = lax.pad(images, jnp.zeros((), images.dtype), [(0, 0, 0), *around, (0, 0, 0)])
    patches = _patches(images, tuple(size), how.window_strides, how.rhs_dilation)  # image, space, offset and channel
    options: Any = {"precision": how.precision, "preferred_element_type": how.preferred_element_type}
    if groups == 1:
        contracted: Any = ((rank + 1,), (0,))
        out = lax.dot_general(patches, kernel.reshape(-1, outer), (contracted, ((), ())), **options)
    else:
        patches = patches.reshape(*patches.shape[:-1], -1, groups, inner)
        kernel = kernel.reshape(-1, inner, groups, outer // groups)
        contracted = ((rank + 1, rank + 3), (0, 1))
        out = lax.dot_general(patches, kernel, (contracted, ((rank + 2,), (2,))), **options)  # group, image, space, out
        out = jnp.moveaxis(out, 0, -2).reshape(*out.shape[1:-1], outer)
    order = np.argsort([out_spec[0], *out_spec[2:], out_spec[1]])
    return lax.transpose(out, tuple(int(axis) for axis in order))


def _patches(images: Array, size: Shape, strides: Shape, dilation: Shape) -> Array:
    """What lies under the kernel at each of its places, for images of shape (image, *space, channel).

    The result has shape (image, *places, offsets in the kernel times channels).
    """
    spans = [(k - 1) * step + 1 for k, step in zip(size, dilation, strict=True)]
    places = [(n - span) // stride + 1 for n, span, stride in zip(images.shape[1:-1], spans, strides, strict=True)]
    parts = []
    for offset in np.ndindex(*size):
        start = [at * step for at, step in zip(offset, dilation, strict=True)]
        end = [first + (count - 1) * stride + 1 for first, count, stride in zip(start, places, strides, strict=True)]
        limits = (images.shape[0], *end, images.shape[-1])
        parts.append(lax.slice(images, (0, *start, 0), limits, (1, *strides, 1)))
    # Joined along the channels, which are contiguous: stacking them takes longer on a GPU.
    return jnp.concatenate(parts, axis=-1)


def _merge(array: Array, axis: int) -> Array:
    """The leading axis, of clients, into the axis that `axis` was without it."""
    array = jnp.moveaxis(array, 0, axis)
    return array.reshape(*array.shape[:axis], -1, *array.shape[axis + 2 :])


def _unmerge(array: Array, axis: int, clients: int) -> Array:
    array = array.reshape(*array.shape[:axis], clients, -1, *array.shape[axis + 1 :])
    return jnp.moveaxis(array, axis, 0)


def pool(how: Window, reduce: str, array: Array) -> Array | None:
    """The "max" or "sum" over windows that do not overlap; None where it is best left as it is."""
    dilated = any(step != 1 for step in how.base_dilation + how.window_dilation)
    if dilated or how.window_dimensions != how.window_strides or np.prod(how.window_dimensions) > MOST_OFFSETS:
        return None
    size = how.window_dimensions
    empty = jnp.zeros((), array.dtype) if reduce == "sum" else jnp.asarray(-jnp.inf, array.dtype)
    array = lax.pad(array, empty, [(low, high, 0) for low, high in how.padding])
    places = tuple(n // k for n, k in zip(array.shape, size, strict=True))
    array = lax.slice(array, [0] * array.ndim, [n * k for n, k in zip(places, size, strict=True)])
    return _largest(array, size) if reduce == "max" else jnp.sum(_windows(array, size), axis=_within(size))


def _windows(array: Array, size: Shape) -> Array:
    """Every axis in two: which window, and where in it."""
    return array.reshape([part for n, k in zip(array.shape, size, strict=True) for part in (n // k, k)])


def _within(size: Shape) -> Shape:
    return tuple(range(1, 2 * len(size), 2))


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _largest(array: Array, size: Shape) -> Array:
    return jnp.max(_windows(array, size), axis=_within(size))


def _largest_forward(array: Array, size: Shape) -> tuple[Array, tuple[Array, Array]]:
    largest = _largest(array, size)
    return largest, (array, largest)


def _largest_backward(size: Shape, residuals: tuple[Array, Array], slope: Array) -> tuple[Array]:
    array, largest = residuals
    windows = _windows(array, size)
    taken = jnp.zeros(largest.shape, bool)
    parts = []
    for offset in np.ndindex(*size):
        hit = windows[tuple(index for at in offset for index in (slice(None), at))] == largest
        parts.append(jnp.where(hit & ~taken, slope, 0))
        taken |= hit
    for axis in reversed(range(array.ndim)):  # parts are in row-major order of their offsets
        k = size[axis]
        groups = [parts[first : first + k] for first in range(0, len(parts), k)]
        parts = [_interleave(group, axis) for group in groups]
    return (parts[0],)


def _interleave(parts: list[Array], axis: int) -> Array:
    if len(parts) == 1:
        return parts[0]
    stacked = jnp.stack(parts, axis=axis + 1)
    return stacked.reshape(*stacked.shape[:axis], -1, *stacked.shape[axis + 2 :])


_largest.defvjp(_largest_forward, _largest_backward)
