"""Compression layer by layer: each array of a model's parameters is encoded by itself.

A vector's entries are those of the parameters' arrays one after the other, as `jax.flatten_util.ravel_pytree` has them.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from math import prod

import jax
import jax.numpy as jnp
import numpy as np

from fedlin.checks import shown
from fedlin.compressors import Compressor
from fedlin.core import Key, PyTree, Vector
from fedlin.errors import ArgumentError
from fedlin.payloads import Payload, Size

Params = PyTree
_NAMED = 4  # layers that a name lists one by one


@partial(jax.tree_util.register_dataclass, data_fields=["parts"], meta_fields=[])
@dataclass(frozen=True)
class Layers:
    """The payloads of a vector's parts, in order.

    Attributes:
        parts: The payloads.
    """

    parts: tuple[Payload, ...]

    def decode(self) -> Vector:
        """The parts one after the other."""
        return jnp.concatenate([part.decode() for part in self.parts])

    def size(self) -> Size:
        """The sum of the parts' sizes."""
        sizes = [part.size() for part in self.parts]
        return Size(sum(size.values for size in sizes), sum(size.indices for size in sizes))

    def validate(self) -> None:
        """Refuse what one of the parts refuses."""
        for part in self.parts:
            part.validate()


def per_layer(params: Params, compressor: Compressor | Callable[[int], Compressor]) -> Compressor:
    """Encode each array of a model by itself, so that no layer is left out for another's larger entries.

    With δ_l the layers' own, ‖C(v) - v‖² ≤ Σ (1 - 1/δ_l) ‖v_l‖², so δ = max δ_l; likewise ω = max ω_l.

    Args:
        params: The model's parameters, or any pytree of arrays or shapes like them.
        compressor: One for all layers, or a function from a layer's number of entries to its compressor.

    Returns:
        The compressor of the whole vector.

    >>> import numpy as np
    >>> from fedlin.compressors import top_k
    >>> layers = {"bias": np.zeros(2), "weights": np.zeros((3, 2))}
    >>> part = per_layer(layers, lambda size: top_k(size // 2))
    >>> part(jax.random.key(0), np.array([0.1, 0.2, 9.0, 8.0, 7.0, 6.0, 5.0, 4.0], np.float32)).tolist()
    [0.0, 0.20000000298023224, 9.0, 8.0, 7.0, 0.0, 0.0, 0.0]
    >>> part.delta(8)
    2.0
    """
    shapes = [getattr(leaf, "shape", None) for leaf in jax.tree.leaves(params)]
    sizes = tuple(filter(None, (prod(shape or ()) for shape in shapes)))  # an empty array has nothing to encode
    if not sizes or None in shapes:
        raise ArgumentError(
            f"params = {shown(params)} is not allowed: give the model's parameters, a pytree of arrays."
        )
    if not isinstance(compressor, Compressor) and not callable(compressor):
        raise ArgumentError(
            f"compressor = {shown(compressor)} is not allowed: give one such as top_k(10), or a function from a "
            "layer's number of entries to its own."
        )
    chosen = tuple(compressor if isinstance(compressor, Compressor) else _chosen(compressor, size) for size in sizes)
    for size, made in zip(sizes, chosen, strict=True):
        if not isinstance(made, Compressor):
            raise ArgumentError(
                f"compressor gives {shown(made)} for a layer of {size} entries: let it give a compressor."
            )
        if made.mechanism is not None:
            raise ArgumentError(
                f"compressor = {made} clips and noises a layer, and a client's whole upload has to be: put it around "
                "this one, as gaussian(clip, noise, compressor=per_layer(...))."
            )
        made.check(size)
    return _per_layer(sizes, chosen)


def _chosen(choose: Callable[[int], Compressor], size: int) -> Compressor:
    try:
        return choose(size)
    except Exception as cause:
        raise ArgumentError(f"compressor = {shown(choose)} fails for a layer of {size} entries: {cause}.") from cause


@cache
def _per_layer(sizes: tuple[int, ...], compressors: tuple[Compressor, ...]) -> Compressor:
    ends = np.cumsum(sizes)

    def encode(key: Key, vector: Vector) -> Layers:
        parts = jnp.split(jnp.asarray(vector), ends[:-1])
        keys = jax.random.split(key, len(sizes))
        return Layers(
            tuple(compressor.encode(k, part) for compressor, k, part in zip(compressors, keys, parts, strict=True))
        )

    def largest(facts: list[Callable[[int], float] | None]) -> Callable[[int], float] | None:
        known = [fact(size) for fact, size in zip(facts, sizes, strict=True) if fact is not None]
        return None if len(known) < len(sizes) else lambda dim: max(known)

    def check(dim: int) -> None:
        if dim != ends[-1]:
            raise ArgumentError(
                f"params have {ends[-1]} entries and the model {dim}: give per_layer the parameters of this model."
            )

    each = ", ".join(f"{size}: {compressor}" for size, compressor in zip(sizes, compressors, strict=True))
    if len(sizes) > _NAMED:
        each = f"{len(sizes)} layers of {ends[-1]} entries, {hashlib.sha256(each.encode()).hexdigest()[:8]}"
    return Compressor(
        f"per_layer({each})",
        encode,
        delta=largest([compressor.delta for compressor in compressors]),
        omega=largest([compressor.omega for compressor in compressors]),
        check=check,
        lossless=all(compressor.lossless for compressor in compressors),
        shared=any(compressor.shared for compressor in compressors),
    )
