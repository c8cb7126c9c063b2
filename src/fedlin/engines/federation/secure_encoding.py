"""Uploads as whole numbers modulo 2^b, so that sums under masks are exact, and the mean that a sum of them stands for.

A site sends w_i u_i in fixed point, ⌊w_i u_ij 2^k⌉ modulo 2⁶⁴, with its own weight w_i and one k for all. Entries are
at most the norm bound B, so that k = ⌊log₂(2⁶² / (m w_max B))⌋ lets no sum of m sites overflow: a site refuses to send
a number above 2⁶²/m. Codes of `quantize(levels, bound=...)` are whole numbers already: where weights are multiples of
one unit, w_i/unit times the code is sent in as few bytes as hold the sum. Places that all sites share have no mask.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import gcd, sqrt
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import DTypeLike

from fedlin.core import Array, Mechanism, Message
from fedlin.engines.federation.replies import norm
from fedlin.engines.federation.secure_masks import Words, scale_exponent, to_signed
from fedlin.errors import ArgumentError, NotFiniteError, WireError
from fedlin.layers import Layers
from fedlin.payloads import Dense, Grid, Sparse, array_bytes, is_payload

TAIL = 9.0  # standard deviations that noise is given room for, and beyond which none is drawn
FINEST = 2.0**20  # steps of the fixed point in a standard deviation of noise, at least
_TERMS = struct.Struct("<IdddBd")


class SumTerms(NamedTuple):
    """What server and sites agree on before a sum, the same for every site."""

    sites: int  # m, for which there is room in a sum
    heaviest: float  # the largest weight of a site
    bound: float  # B, the largest norm of an upload
    unit: float  # of which all weights are multiples; 0 where there is none
    width: int  # bytes of a whole number
    noise: float = 0.0  # standard deviation of what each site adds to every entry of w_i u_i, for privacy

    @property
    def exponent(self) -> int:
        """k of the fixed point."""
        return scale_exponent(self.sites, self.heaviest, self.bound + TAIL * self.noise / self.heaviest)

    @property
    def largest(self) -> int:
        """The largest whole number that one site may send."""
        return (1 << 8 * self.width - 2) // self.sites

    def write(self) -> bytes:
        """As bytes."""
        return _TERMS.pack(*self)

    @classmethod
    def read(cls, body: bytes) -> "SumTerms":
        """What `write` wrote."""
        if len(body) != _TERMS.size:
            raise WireError("the terms of a sum cannot be read.")
        terms = cls(*_TERMS.unpack(body))
        reals = np.array([terms.heaviest, terms.bound, terms.unit, terms.noise])
        if not np.all(np.isfinite(reals)) or reals.min() < 0 or reals[:2].min() <= 0:
            raise WireError(f"the terms of a sum are out of range: {terms}.")
        if terms.width not in (1, 2, 4, 8) or not 0 < terms.sites < 1 << 20:
            raise WireError(f"the terms of a sum are out of range: {terms}.")
        return terms


def sum_terms(like: Message, weights: Array, bound: float, noise: float = 0.0, sites: int | None = None) -> SumTerms:
    """The terms for uploads of this structure, from the weights of all sites and how many there is to be room for."""
    terms = SumTerms(sites or weights.size, float(weights.max()), bound, weight_unit(weights), 8, noise)
    return terms._replace(width=least_width(like, terms))


def least_width(like: Message, terms: SumTerms) -> int:
    """The bytes of a whole number: as few as hold the sum of codes, and 8 for everything else."""
    codes = [node.levels for node in _nodes(like) if isinstance(node, Grid)]
    if not (terms.unit and codes and not terms.noise and all(isinstance(node, Grid) for node in _nodes(like))):
        return 8
    needed = terms.sites * terms.heaviest / terms.unit * max(codes)
    return next((width for width in (1, 2, 4) if needed <= 1 << 8 * width - 2), 8)


def check_terms(like: Message, weight: float, terms: SumTerms) -> None:
    """Refuse terms that are not for uploads like these, of a site of this weight; whatever its data is.

    What were found out of them from an upload would tell the server of it.
    """
    if weight > terms.heaviest or (terms.unit and weight != terms.unit * round(weight / terms.unit)):
        raise WireError(f"the terms of the sum leave out this site's weight, {weight:g}.")
    if terms.width != least_width(like, terms):
        raise WireError(f"{terms.width} bytes a number are not what these uploads take.")
    check_noise(terms)


def weight_unit(weights: Array) -> float:
    """What all weights are multiples of: themselves if they are equal, else a whole number; 0 where there is none.

    >>> weight_unit(np.array([0.3, 0.3])), weight_unit(np.array([20.0, 30.0])), weight_unit(np.array([0.5, 1.0]))
    (0.3, 10.0, 0.0)
    """
    if np.all(weights == weights[0]):
        return float(weights[0])
    if np.all(weights == np.rint(weights)) and weights.max() < 2**31:
        return float(gcd(*map(int, weights)))
    return 0.0


def shared_noise(mechanism: Mechanism | None, heaviest: float, honest: int) -> float:
    """The standard deviation of each site's part of the noise, of which `honest` parts are enough for the account.

    Another client in a site's place moves Σ w_i u_i by at most 2·clip·w_max, and the noise is to be z times that.
    """
    if mechanism is None or not mechanism.central:
        return 0.0
    return 2 * mechanism.clip * mechanism.noise * heaviest / sqrt(honest)


def check_noise(terms: SumTerms) -> None:
    """Refuse noise that is not much larger than a step of the fixed point, to which it is rounded."""
    if terms.noise and terms.noise * 2.0**terms.exponent < FINEST:
        raise ArgumentError(
            f"policy.norm_bound = {terms.bound:g} leaves the noise too few bits: give one nearer to the clip."
        )


def check_structure(phase: str, like: Message) -> None:
    """Refuse uploads that say more than their sum, or that would grow under a mask."""
    for node in jax.tree.leaves(like, is_leaf=is_payload):
        for part in node.parts if isinstance(node, Layers) else [node]:
            if isinstance(part, Sparse) and not part.shared:
                raise ArgumentError(
                    f"phase {phase} uploads entries at places of each site's own, which would tell the server of its "
                    "data, and sums need the same places: use rand_k(k, shared=True) in place of top_k(k) or "
                    "rand_k(k)."
                )
            if is_payload(part) and not isinstance(part, Dense | Sparse | Grid):
                raise ArgumentError(
                    f"phase {phase} uploads {type(part).__name__}, which no sum can be taken of without decoding it to "
                    "8 bytes an entry: use quantize(levels, bound=...), rand_k(k, shared=True) or identity()."
                )


def masked_size(like: Message, width: int = 8) -> int:
    """The bytes of an upload of this structure as a site sends it."""
    return width * count_words(like) + clear_size(like)


def count_words(like: Message) -> int:
    """How many whole numbers an upload is."""
    return sum(_length(node) for node in _nodes(like))


def clear_size(like: Message) -> int:
    """The bytes of an upload that go without a mask."""
    return sum(array_bytes(node.indices) for node in _nodes(like) if isinstance(node, Sparse))


def encode_upload(
    upload: Message, weight: float, terms: SumTerms, normals: Callable[[int], Array]
) -> tuple[Words, bytes]:
    """A site's upload as whole numbers before any mask, and the part of it that goes without one.

    `normals` draws standard normal numbers, for noise.

    Raises:
        WireError: It is not finite, or beyond the bound; nothing was sent. The server learns that, and not by how much.
    """
    values = [_values(node) for node in _nodes(upload)]
    length = norm(values)
    if not np.isfinite(length):
        raise NotFiniteError("the upload holds NaN or infinite numbers.")
    if length > terms.bound:
        raise WireError(f"the norm of the upload is beyond the bound of {terms.bound:.3g}.")
    words, first = np.empty(sum(part.size for part in values), f"i{terms.width}"), 0
    scale = np.ldexp(1.0, terms.exponent)
    for node, part in zip(_nodes(upload), values, strict=True):
        if terms.unit and isinstance(node, Grid) and not terms.noise:
            whole = _codes(node) * round(weight / terms.unit)
        else:
            whole = part * (weight * scale)  # to the bit (weight * part) * scale, a power of two
            if terms.noise:
                whole += (terms.noise * scale) * normals(part.size)
        np.rint(whole, out=whole)
        if whole.size and not max(whole.max(), -whole.min()) <= terms.largest:
            raise WireError("the upload is too large for the sum's whole numbers.")
        words[first : first + part.size] = whole
        first += part.size
    clear = b"".join(_little(node.indices).tobytes() for node in _nodes(upload) if isinstance(node, Sparse))
    return words.view(f"u{terms.width}"), clear


def mean_upload(like: Message, sums: Words, clear: bytes, weight: float, terms: SumTerms) -> Message:
    """The decoded mean that a sum stands for, `weight` the sum of the weights in it."""
    total, first, place = to_signed(sums).astype(np.float64), 0, 0

    def take(node: Any) -> Array:
        nonlocal first, place
        if isinstance(node, Layers):
            return np.concatenate([take(part) for part in node.parts])
        length = _length(node)
        mean, first = total[first : first + length], first + length
        if terms.unit and isinstance(node, Grid) and not terms.noise:
            return np.asarray(mean * (terms.unit / weight) * (node.bound / node.levels), node.dtype)
        mean = np.ldexp(mean, -terms.exponent) / weight
        if isinstance(node, Sparse):
            end = place + array_bytes(node.indices)
            indices, place = np.frombuffer(clear[place:end], _little_dtype(node.indices.dtype)), end
            vector = np.zeros(node.dim)
            vector[indices] = mean
            return vector.astype(node.values.dtype)
        if isinstance(node, Grid):
            return mean.astype(node.dtype)
        array = node.values if isinstance(node, Dense) else node
        return mean.astype(array.dtype).reshape(array.shape)

    return jax.tree.map(take, like, is_leaf=is_payload)


def check_clear(like: Message, clear: bytes) -> None:
    """Refuse places that no encoder makes."""
    place = 0
    for node in _nodes(like):
        if isinstance(node, Sparse):
            end = place + array_bytes(node.indices)
            indices: Any = np.frombuffer(clear[place:end], _little_dtype(node.indices.dtype))
            replace(node, indices=indices).validate()
            place = end


def sum_of_weights(weights: Mapping[str, float]) -> float:
    """In the order of the names, so that it is the same to the bit whoever answers first."""
    return sum(weights[name] for name in sorted(weights))


def _nodes(message: Message) -> Iterator[Any]:
    """The arrays and payloads of a message, those of layers one by one."""
    for node in jax.tree.leaves(message, is_leaf=is_payload):
        yield from node.parts if isinstance(node, Layers) else [node]


def _length(node: Any) -> int:
    if isinstance(node, Grid):
        return node.dim
    array = node.values if isinstance(node, Dense | Sparse) else node
    return int(np.prod(array.shape, dtype=np.int64))


def _codes(node: Grid) -> Array:
    return np.asarray(node.symbols().codes - node.levels, np.float64)


def _values(node: object) -> Array:
    """The entries that add up, in double precision."""
    if isinstance(node, Grid):
        return _codes(node) * (node.bound / node.levels)
    array = node.values if isinstance(node, Dense | Sparse) else node
    return np.asarray(array, np.float64).ravel()


def _little(array: Any) -> Array:
    return np.asarray(array).astype(_little_dtype(array.dtype), copy=False)


def _little_dtype(dtype: DTypeLike) -> np.dtype:
    little: np.dtype = np.dtype(dtype).newbyteorder("<")
    return little
