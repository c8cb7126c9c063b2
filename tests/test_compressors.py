"""What compressors promise: how far C(v) is from v, what is kept, and how many bytes it takes."""

from fractions import Fraction
from functools import cache
from typing import Any

import hypothesis.extra.numpy as npst
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from fedlin.bit_codes import round_to_powers
from fedlin.compressors import (
    Compressor,
    _pack,
    cast,
    identity,
    index_dtype,
    natural,
    nearest,
    quantize,
    rand_k,
    sign,
    top_k,
)
from fedlin.errors import FedLinError
from fedlin.payloads import Dense, Packed, Sparse, decode, is_payload, size
from fedlin.precision import precision
from quadratics import Array

DIMS = (1, 2, 5)
DRAWS = 4000
quick = settings(derandomize=True, deadline=None, max_examples=40)
costly = settings(derandomize=True, deadline=None, max_examples=12)


@st.composite
def vectors(draw: st.DrawFn) -> Array:
    """Vectors with zeros, ties and entries of very different sizes, none so small that its square is lost."""
    dim = draw(st.sampled_from(DIMS))
    entries = st.one_of(
        st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, -2.0]),
        st.floats(1e-5, 1e5),
        st.floats(-1e5, -1e-5),
    )
    return np.asarray(draw(npst.arrays(np.float64, dim, elements=entries)))


# Entries near enough to each other that a few thousand draws see each of them often.
even_vectors = npst.arrays(
    np.float64, 5, elements=st.one_of(st.just(0.0), st.floats(0.1, 10.0), st.floats(-10.0, -0.1))
)


@st.composite
def vectors_and_k(draw: st.DrawFn) -> tuple[Array, int]:
    v = draw(vectors())
    return v, draw(st.integers(1, v.size))


@cache
def compiled(compressor: Compressor) -> Any:
    return jax.jit(compressor.encode)


def encode(compressor: Compressor, v: Array, seed: int = 0) -> Any:
    with precision(v.dtype):
        return compiled(compressor)(jax.random.key(seed), jnp.asarray(v))


def apply(compressor: Compressor, v: Array, seed: int = 0) -> Array:
    with precision(v.dtype):
        return np.asarray(encode(compressor, v, seed).decode())


@cache
def drawing(compressor: Compressor) -> Any:
    return jax.jit(jax.vmap(compressor, in_axes=(0, None)))


def draws(compressor: Compressor, v: Array) -> Array:
    """C(v) for many keys."""
    with precision(np.float64):
        return np.asarray(drawing(compressor)(jax.random.split(jax.random.key(1), DRAWS), jnp.asarray(v)))


def squared(v: Array) -> float:
    return float(np.sum(v**2))


def assert_mean(samples: Array, expected: Array, scale: float) -> None:
    """The mean is as expected, within six standard errors."""
    error = samples.std(axis=0) / np.sqrt(len(samples))
    assert np.all(np.abs(samples.mean(axis=0) - expected) <= 6 * error + 1e-12 * scale)


# How far C(v) is from v.


@quick
@given(vectors_and_k())
def test_top_k_is_the_best_contraction(case: tuple[Array, int]) -> None:
    """The entries kept are the reference's, and ‖C(v) - v‖² ≤ (1 - 1/δ) ‖v‖²."""
    v, k = case
    kept = apply(top_k(k), v)
    np.testing.assert_array_equal(kept, reference.top_k(v, k))
    delta = top_k(k).delta
    assert delta is not None
    assert delta(v.size) == v.size / k
    assert squared(kept - v) <= (1 - 1 / delta(v.size)) * squared(v) * (1 + 1e-12)


def test_top_k_attains_its_bound() -> None:
    """All entries equal: δ = d/k cannot be smaller."""
    v = np.ones(16)
    assert squared(apply(top_k(4), v) - v) == (1 - 4 / 16) * squared(v)


@quick
@given(vectors())
def test_sign_is_a_contraction(v: Array) -> None:
    """‖C(v) - v‖² = ‖v‖² - ‖v‖₁²/d, which is at most (1 - 1/d) ‖v‖²."""
    error = squared(apply(sign(), v) - v)
    assert error == pytest.approx(squared(v) - np.sum(np.abs(v)) ** 2 / v.size, rel=1e-9, abs=1e-12 * squared(v))
    delta = sign().delta
    assert delta is not None
    assert error <= (1 - 1 / delta(v.size) + 1e-12) * squared(v)


@quick
@given(vectors(), st.integers(1, 200))
def test_nearest_rounds_each_entry_to_the_nearest_level(v: Array, levels: int) -> None:
    """Half a level off at most, never by more than itself, the largest exact; hence 1 - 1/δ."""
    rounded, largest = apply(nearest(levels), v), np.max(np.abs(v))
    off = np.abs(rounded - v)
    assert np.all(off <= np.minimum(largest / (2 * levels), np.abs(v)) + 1e-14 * largest)
    assert off[np.argmax(np.abs(v))] <= 1e-15 * largest
    if largest > 0:
        steps = rounded / largest * levels
        np.testing.assert_allclose(steps, np.round(steps), rtol=0, atol=1e-12 * levels)
    delta = nearest(levels).delta
    assert delta is not None
    assert squared(off) <= (1 - 1 / delta(v.size) + 1e-12) * squared(v)


def test_nearest_attains_its_bound() -> None:
    """One entry on a level and all others half-way between two: δ cannot be smaller but for ‖v‖² > M²."""
    v = np.append(1e3, np.full(4, 0.5 / 4)) * [1, 1e3, 1e3, 1e3, 1e3]
    assert squared(apply(nearest(4), v) - v) == pytest.approx(4 / (4 * 4**2) * 1e6)


@costly
@given(even_vectors, st.sampled_from([2, 5]))
def test_rand_k_is_a_contraction_in_the_mean(v: Array, k: int) -> None:
    """E‖C(v) - v‖² = (1 - k/d) ‖v‖², and what is kept is kept as it is."""
    delta = rand_k(k).delta
    assert delta is not None
    samples = draws(rand_k(k), v)
    assert np.all((samples == v[None]) | (samples == 0))
    errors = np.sum((samples - v[None]) ** 2, axis=1)
    assert_mean(errors, np.asarray((1 - 1 / delta(v.size)) * squared(v)), squared(v))


def test_rand_k_draws_every_entry_equally_often_and_k_of_them() -> None:
    v = np.ones(5)
    samples = draws(rand_k(2), v)
    np.testing.assert_array_equal(samples.sum(axis=1), 2)
    assert np.all(np.abs(samples.mean(axis=0) - 0.4) < 6 * np.sqrt(0.24 / DRAWS))


@costly
@given(even_vectors, st.sampled_from([rand_k(2, unbiased=True), quantize(1), quantize(4)]))
def test_unbiased_compressors_are_unbiased(v: Array, compressor: Compressor) -> None:
    """E C(v) = v in every entry, and E‖C(v) - v‖² ≤ ω ‖v‖²."""
    assert compressor.omega is not None
    samples = draws(compressor, v)
    scale = float(np.max(np.abs(v)))
    assert_mean(samples, v, scale)
    errors = np.sum((samples - v[None]) ** 2, axis=1)
    slack = 6 * errors.std() / np.sqrt(DRAWS)
    assert errors.mean() <= compressor.omega(v.size) * squared(v) * (1 + 1e-12) + slack


def test_rand_k_attains_omega() -> None:
    """E‖C(v) - v‖² = (d/k - 1) ‖v‖², for every v."""
    v = np.array([1.0, -2.0, 0.5, 3.0, 0.0])
    errors = np.sum((draws(rand_k(2, unbiased=True), v) - v[None]) ** 2, axis=1)
    assert_mean(errors, np.asarray(1.5 * squared(v)), squared(v))
    omega = rand_k(2, unbiased=True).omega
    assert omega is not None
    assert omega(5) == 1.5


def test_plain_rand_k_is_biased() -> None:
    v = np.ones(5)
    assert draws(rand_k(2), v).mean() == pytest.approx(0.4)


@quick
@given(vectors(), st.sampled_from([1, 4]), st.integers(0, 3))
def test_quantize_rounds_to_a_neighbouring_level(v: Array, levels: int, seed: int) -> None:
    """Every entry is a multiple of ‖v‖/s next to v's, with v's sign."""
    step = np.sqrt(squared(v)) / levels
    q = apply(quantize(levels), v, seed)
    assert np.all(np.abs(q - v) <= step * (1 + 1e-9))
    assert np.all(q * v >= 0)
    if step > 0:
        np.testing.assert_allclose(q / step, np.round(q / step), atol=1e-9)


TINY, HUGE = float(np.finfo(np.float64).tiny), float(2.0**1023)
entries = st.one_of(
    st.floats(-HUGE, HUGE, allow_nan=False),  # of every size, those below the least normal number too
    st.floats(-10.0, 10.0),
    st.sampled_from([0.0, -0.0, 1.0, -4.0, TINY, TINY / 3, -5e-324, HUGE, -HUGE]),
)


def powers(v: Array, draw: float) -> Array:
    """Natural compression of v with every entry's draw given."""
    kind = np.finfo(v.dtype)
    with precision(v.dtype):
        codes = np.asarray(round_to_powers(jnp.asarray(v), jnp.full(v.shape, draw, v.dtype)))
    sign, exponent = codes >> kind.nexp, codes & (2**kind.nexp - 1)
    assert np.all(sign <= 1)
    return np.where(exponent == 0, 0, np.ldexp(np.where(sign, -1.0, 1.0), exponent - (kind.maxexp - 1)))


@quick
@given(entries, st.sampled_from([np.float32, np.float64]))
def test_natural_compression_is_unbiased_exactly(entry: float, dtype: Any) -> None:
    """Both outcomes with their exact chances: their mean is v, and their variance at most v²/8."""
    kind = np.finfo(dtype)
    v = np.clip(np.array([entry]), -(2.0 ** (kind.maxexp - 1)), 2.0 ** (kind.maxexp - 1)).astype(dtype)
    step = 2.0**-kind.nmant  # draws are multiples of it, all equally likely
    high, low = (Fraction(float(powers(v, draw)[0])) for draw in (0.0, 1 - step))
    exact = Fraction(float(v[0]))
    if high == low:
        assert exact in (high, low)
        return
    chance = (exact - low) / (high - low)  # of the outcome further from zero
    assert (chance / Fraction(step)).denominator == 1
    assert Fraction(float(powers(v, float(chance))[0])) == low  # as many draws lie below it as the chance says
    assert Fraction(float(powers(v, float(chance) - step)[0])) == high
    variance = chance * (high - exact) ** 2 + (1 - chance) * (low - exact) ** 2
    if abs(exact) >= Fraction(float(kind.tiny)):
        assert abs(high) == 2 * abs(low)
        omega = natural().omega
        assert omega is not None
        assert variance <= Fraction(omega(1)) * exact**2
    else:
        assert (low, abs(high)) == (Fraction(0), Fraction(float(kind.tiny)))


def test_natural_compression_attains_omega() -> None:
    """Halfway in probability, at 4/3 of a power of two: ω = 1/8 cannot be smaller."""
    v = np.full(5, 4 / 3)
    errors = np.sum((draws(natural(), v) - v[None]) ** 2, axis=1)
    assert_mean(errors, np.asarray(squared(v) / 8), squared(v))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_natural_compression_at_the_ends_of_what_a_number_can_be(dtype: Any) -> None:
    """The largest powers stay finite, powers come back as they are, and what is not a number is told by infinity."""
    kind = np.finfo(dtype)
    top = 2.0 ** (kind.maxexp - 1)
    v = np.array([kind.max, -kind.max, top, kind.tiny, -0.5, 0.0, np.inf, -np.inf, np.nan], dtype)
    for seed in range(5):
        got = apply(natural(), v, seed)
        np.testing.assert_array_equal(got[:6], np.array([top, -top, top, kind.tiny, -0.5, 0.0], dtype))
        np.testing.assert_array_equal(np.abs(got[6:]), np.inf)


@quick
@given(vectors_and_k(), st.sampled_from(["float32", "float16"]), st.sampled_from([1.0, 1e-200, 1e200]))
def test_a_cast_keeps_its_bound_at_every_scale(case: tuple[Array, int], dtype: str, scale: float) -> None:
    """‖C(v) - v‖² ≤ (1 - 1/δ) ‖v‖² with rounding counted in δ; nothing overflows and no large entry is lost."""
    v, k = case
    for inner in (identity(), top_k(k)):
        compressor = cast(dtype, inner)
        assert compressor.delta is not None
        got = apply(compressor, v * scale) / scale
        assert squared(got - v) <= (1 - 1 / compressor.delta(v.size)) * squared(v) * (1 + 1e-12)
        kept = apply(inner, v)
        unit = 2.0**-11 if dtype == "float16" else 2.0**-24
        lost = 2.0**-28 * np.max(np.abs(v)) if dtype == "float16" else 0.0
        assert np.all(np.abs(got - kept) <= np.maximum(unit * np.abs(kept), lost) * (1 + 1e-12))


def test_a_cast_attains_its_bound() -> None:
    """Half way between two numbers of the type, rounding errs by u: δ cannot be smaller."""
    v = np.full(4, 1 + 2.0**-11)
    error = squared(apply(cast("float16", top_k(1)), v) - v)
    delta = cast("float16", top_k(1)).delta
    assert delta is not None
    assert error == pytest.approx((1 - 1 / delta(4)) * squared(v), rel=1e-6)
    assert error > squared(apply(top_k(1), v) - v)


def test_a_cast_rounds_once_and_in_every_program() -> None:
    """Just above half way goes up, which rounding to single precision first would miss; compiled or not."""
    v = np.array([1 + 2.0**-11 + 2.0**-40, 1.0])
    expected = [1 + 2.0**-10, 1.0]
    np.testing.assert_array_equal(apply(cast("float16"), v), expected)
    with precision(np.float64):
        np.testing.assert_array_equal(cast("float16")(jax.random.key(0), jnp.asarray(v)), expected)
        together = jax.jit(lambda v: cast("float16")(jax.random.key(0), v) - v)(jnp.asarray(v))
        np.testing.assert_array_equal(together, expected - v)


# Ties, zeros and edges.


def test_ties_go_to_the_lower_index() -> None:
    v = np.array([1.0, -3.0, 3.0, 3.0, -3.0])
    np.testing.assert_array_equal(encode(top_k(3), v).indices, [1, 2, 3])
    np.testing.assert_array_equal(encode(top_k(2), np.zeros(5)).indices, [0, 1])


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("dim", [96, 97])
def test_long_vectors_with_many_ties(dim: int, dtype: type[Any]) -> None:
    """Nine distinct magnitudes among many entries: the reference's choice, whichever way it is computed."""
    v = np.random.default_rng(dim).integers(-8, 9, dim).astype(dtype)
    for k in (1, 40, dim - 1, dim):
        payload = encode(top_k(k), v)
        np.testing.assert_array_equal(np.sort(payload.indices), np.sort(np.argsort(-np.abs(v), kind="stable")[:k]))
    np.testing.assert_array_equal(apply(top_k(40), v), reference.top_k(v, 40))


def test_entries_of_every_size_are_told_apart() -> None:
    """From the smallest subnormal to the largest number, and zeros of both signs."""
    v = np.concatenate([[0.0, -0.0, 5e-324, -1.7e308], np.ldexp(1.0, np.arange(-1000, 1000, 17))])
    largest = np.argsort(-np.abs(v), kind="stable")
    for k in (1, 60, len(v) - 1):
        np.testing.assert_array_equal(np.sort(encode(top_k(k), v).indices), np.sort(largest[:k]))


@pytest.mark.parametrize(
    "compressor",
    [
        identity(),
        top_k(2),
        rand_k(2),
        rand_k(2, unbiased=True),
        quantize(4),
        sign(),
        natural(),
        nearest(3),
        cast("float16"),
    ],
    ids=repr,
)
def test_zero_stays_zero(compressor: Compressor) -> None:
    np.testing.assert_array_equal(apply(compressor, np.zeros(5)), 0)


@quick
@given(vectors())
def test_keeping_everything_is_the_identity(v: Array) -> None:
    for compressor in (identity(), top_k(v.size), rand_k(v.size), rand_k(v.size, unbiased=True)):
        np.testing.assert_array_equal(apply(compressor, v), v)


@quick
@given(vectors())
def test_keeping_one_entry_keeps_the_largest(v: Array) -> None:
    expected = np.zeros_like(v)
    expected[np.argmax(np.abs(v))] = v[np.argmax(np.abs(v))]
    np.testing.assert_array_equal(apply(top_k(1), v), expected)


@pytest.mark.parametrize("compressor", [top_k(6), rand_k(6), rand_k(6, unbiased=True)], ids=repr)
def test_more_entries_than_there_are_is_refused(compressor: Compressor) -> None:
    compressor.check(6)
    with pytest.raises(FedLinError, match="k = 6 is more than the model's 5 entries"):
        compressor.check(5)


@pytest.mark.parametrize("value", [0, -1, 1.5, 2.0, True, "3", None])
def test_a_count_that_is_no_count_is_refused(value: Any) -> None:
    """Even where an equal count was made before."""
    top_k(2), rand_k(2), quantize(2), top_k(1), rand_k(1), quantize(1)
    for factory in (top_k, rand_k, quantize):
        with pytest.raises(FedLinError, match="whole number of at least 1"):
            factory(value)


# Bytes.


@pytest.mark.parametrize(
    ("dim", "dtype"),
    [(1, np.uint8), (256, np.uint8), (257, np.uint16), (65536, np.uint16), (65537, np.uint32)],
)
def test_indices_take_the_smallest_type_that_counts_to_d(dim: int, dtype: type[np.unsignedinteger[Any]]) -> None:
    """And the last entry still comes back where it was."""
    assert index_dtype(dim) == dtype
    v = np.zeros(dim)
    v[-1] = 7.0
    payload = encode(top_k(1), v)
    assert payload.indices.dtype == dtype
    assert payload.indices.tolist() == [dim - 1]
    assert size(payload) == (8, np.dtype(dtype).itemsize)
    np.testing.assert_array_equal(apply(top_k(1), v), v)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("compressor", "values", "fixed", "indices"),
    [
        (identity(), 20, 0, 0),
        (top_k(3), 3, 0, 3),
        (rand_k(3), 3, 0, 3),
        (rand_k(3, unbiased=True), 3, 0, 3),
        (cast("float32"), 0, 80 + 2, 0),  # the exponent takes two bytes
        (cast("float16"), 0, 40 + 2, 0),
        (cast("float16", top_k(3)), 0, 6 + 2, 3),
        (cast("float32", rand_k(3)), 0, 12 + 2, 3),
        (sign(), 1, 3, 0),  # 20 bits
        (quantize(1), 1, 5, 0),  # 20 · 2 bits, the codes -1, 0, 1
        (quantize(3), 1, 8, 0),  # 20 · 3 bits: seven codes
        (quantize(4), 1, 10, 0),  # 20 · 4 bits: nine codes
        (nearest(3), 1, 8, 0),
        (quantize(127), 1, 20, 0),  # 255 codes in a byte
        (quantize(128), 1, 23, 0),  # 257 codes in nine bits
    ],
    ids=repr,
)
def test_bytes_are_exact(compressor: Compressor, values: int, fixed: int, indices: int, dtype: type[Any]) -> None:
    """`values` numbers in the vector's precision, `fixed` bytes of codes: what the arrays themselves hold."""
    v = np.linspace(-1, 1, 20).astype(dtype)
    payload = encode(compressor, v)
    width = np.dtype(dtype).itemsize
    assert size(payload) == (values * width + fixed, indices)
    assert size(payload).total == sum(leaf.nbytes for leaf in jax.tree.leaves(payload))
    assert apply(compressor, v).dtype == dtype


@pytest.mark.parametrize(("dtype", "bits"), [(np.float32, 9), (np.float64, 12)])
@pytest.mark.parametrize("dim", [1, 7])
def test_natural_compression_sends_signs_and_exponents_alone(dim: int, dtype: type[Any], bits: int) -> None:
    v = np.linspace(-3, 1, dim).astype(dtype)
    payload = encode(natural(), v)
    assert size(payload) == (-(-dim * bits // 8), 0)
    assert size(payload).total == sum(leaf.nbytes for leaf in jax.tree.leaves(payload))
    assert apply(natural(), v).dtype == dtype


def test_bytes_of_a_message_add_up_from_shapes_alone() -> None:
    def message(v: Any) -> Any:
        return {"g": top_k(2).encode(None, v), "x": v, "tau": v[0]}  # type: ignore[arg-type]

    with precision(np.float64):
        shapes = jax.eval_shape(message, jnp.zeros(20))
        assert size(shapes) == size(message(jnp.zeros(20))) == (16 + 160 + 8, 2)


# Payloads.

ALL = [identity(), top_k(2), rand_k(2), rand_k(2, unbiased=True), quantize(4), sign(), natural(), nearest(4)]
ALL += [cast("float32"), cast("float16", top_k(2)), cast("float16", rand_k(2))]


@pytest.mark.parametrize("compressor", ALL, ids=repr)
def test_payloads_travel_through_vmap_and_jit(compressor: Compressor) -> None:
    """A batch encoded and decoded in one program is each vector encoded and decoded alone."""
    batch = np.random.default_rng(2).standard_normal((3, 5))
    with precision(np.float64):
        keys = jax.random.split(jax.random.key(4), 3)
        payloads = jax.jit(jax.vmap(compressor.encode))(keys, batch)
        assert is_payload(payloads)
        together = jax.jit(jax.vmap(decode))(payloads)
        for i in range(3):
            alone = compressor.encode(keys[i], jnp.asarray(batch[i]))
            mine = jax.tree.map(lambda leaf, i=i: leaf[i], payloads)
            assert str(jax.tree.structure(mine)) == str(jax.tree.structure(alone))
            np.testing.assert_array_equal(together[i], alone.decode())
            np.testing.assert_array_equal(together[i], compressor(keys[i], jnp.asarray(batch[i])))


def test_decode_leaves_what_is_no_payload_alone() -> None:
    with precision(np.float64):
        v = jnp.arange(5.0)
        message = decode((top_k(1).encode(None, v), v, {"a": Dense(v)}))  # type: ignore[arg-type]
        np.testing.assert_array_equal(message[0], [0, 0, 0, 0, 4.0])
        assert message[1] is v
        np.testing.assert_array_equal(message[2]["a"], v)


@quick
@given(st.sampled_from([2, 5, 9]), st.just(7), st.data())
def test_packed_codes_come_back(bits: int, dim: int, data: st.DataObject) -> None:
    """Every code of `bits` bits, in ⌈d · bits / 8⌉ bytes."""
    codes = data.draw(npst.arrays(np.int32, dim, elements=st.integers(0, 2**bits - 1)))
    levels = 2 ** (bits - 1)
    with precision(np.float64):
        packed = _pack(jnp.asarray(float(levels), jnp.float64), jnp.asarray(codes), bits, levels)
        assert isinstance(packed, Packed)
        assert packed.codes.nbytes == -(-dim * bits // 8)
        np.testing.assert_array_equal(packed.decode(), codes - levels)


def test_a_sparse_payload_is_its_places() -> None:
    with precision(np.float64):
        payload = encode(top_k(2), np.array([0.0, 5.0, 0.0, -7.0]))
        assert isinstance(payload, Sparse)
        np.testing.assert_array_equal(payload.values, [-7.0, 5.0])
        np.testing.assert_array_equal(payload.indices, [3, 1])


# Names.


def test_equal_arguments_give_the_same_object() -> None:
    assert top_k(3) is top_k(3)
    assert top_k(3) is top_k(np.int64(3))  # type: ignore[arg-type]
    assert top_k(3) is not top_k(4)
    assert rand_k(3) is rand_k(3, unbiased=False)
    assert rand_k(3) is not rand_k(3, unbiased=True)
    assert quantize(3) is quantize(3)
    assert sign() is sign()
    assert natural() is natural()
    assert cast("float16") is cast("float16", identity())
    assert identity() is identity()


@pytest.mark.parametrize("compressor", ALL, ids=repr)
def test_a_name_is_what_made_it(compressor: Compressor) -> None:
    made = {f.__name__: f for f in (identity, top_k, rand_k, quantize, sign, natural, nearest, cast)}
    assert eval(repr(compressor), made) is compressor
