"""Bits in every way to count them: what each payload says, what the coder makes, and that nothing is lost in it."""

from math import ceil, comb, log2
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedlin
from fedlin import cast, identity, low_rank, natural, quantize, sign, symmetric, top_k
from fedlin.coding import ArithmeticEncoder, decode_symbols
from fedlin.compressors import Compressor
from fedlin.engines.messages import message_bits
from fedlin.engines.opening import opening_rounds
from fedlin.errors import ArgumentError, UnknownError
from fedlin.matrices import MatrixCompressor
from fedlin.payloads import paper_bits, symbols
from fedlin.precision import precision
from quadratics import CLIENTS, DIM, X0, problem

VECTOR = np.random.default_rng(0).standard_normal(100)


@pytest.mark.parametrize("alphabet", [2, 23, 4096])
def test_the_receiver_reads_what_was_written(alphabet: int) -> None:
    source = np.random.default_rng(alphabet)
    written = (alphabet * source.beta(0.3, 2.0, 3000)).astype(int).tolist()
    encoder = ArithmeticEncoder(alphabet)
    encoder.write(written)
    assert decode_symbols(encoder.finish(), alphabet, len(written)) == written


def test_the_coder_comes_near_the_entropy() -> None:
    """From below no code can come, and what adaptation costs is a few bits a symbol of the alphabet."""
    source = np.random.default_rng(1)
    shares = np.array([0.7, 0.2, 0.06, 0.04])
    written = source.choice(4, 20_000, p=shares)
    encoder = ArithmeticEncoder(4)
    encoder.write(written.tolist())
    counted = np.bincount(written) / len(written)
    entropy = -np.sum(counted * np.log2(counted)) * len(written)
    assert entropy < encoder.bits < 1.003 * entropy + 60


def test_papers_count_floats_and_indices() -> None:
    """Of 100 entries in double precision; each by hand."""
    matrix = np.outer(VECTOR[:9], VECTOR[:9])
    counted: dict[str, tuple[Compressor | MatrixCompressor, Any, int]] = {
        "whole": (identity(), VECTOR, 3200),
        "top": (top_k(5), VECTOR, 5 * (32 + 7)),
        "half": (cast("float16", top_k(5)), VECTOR, 5 * (16 + 7) + 16),
        "dithered": (quantize(11), VECTOR, 32 + 5 * 100),
        "signs": (sign(), VECTOR, 32 + 100),
        "powers": (natural(), VECTOR, 900),
        "rank": (low_rank(2), matrix, 32 * 2 * 9 + 2),
        "triangle": (symmetric(top_k(3)), matrix, 3 * (32 + ceil(log2(45)))),
    }
    for name, (compressor, value, bits) in counted.items():
        with precision(np.float64):  # shapes suffice
            payload = jax.eval_shape(compressor.encode, jax.random.key(0), value)
        assert paper_bits(payload) == bits, name
        assert paper_bits({"two": payload, "vectors": payload}) == 2 * bits, name


def test_a_set_of_places_is_coded_as_a_set() -> None:
    with precision(np.float64):
        payload = jax.tree.map(np.asarray, top_k(5).encode(jax.random.key(0), jnp.asarray(VECTOR)))
    codes, _, other = symbols(payload)
    assert codes.size == 0
    assert other == 5 * 64 + ceil(log2(comb(100, 5)))


def test_codes_are_those_that_travel() -> None:
    """The symbols of a dithered vector stand for its entries."""
    with precision(np.float64):
        payload = jax.tree.map(np.asarray, quantize(11).encode(jax.random.key(0), jnp.asarray(VECTOR)))
        codes, alphabet, _ = symbols(payload)
        np.testing.assert_allclose(payload.scale * (codes - 11) / 11, payload.decode(), rtol=1e-12)
    assert codes.max() < alphabet


def test_a_run_is_counted_as_it_was_sent() -> None:
    """On the wire as `simulate` counts; floats at half of that for doubles; coded codes below their own bits."""
    method, plan = fedlin.diana(quantize(4), 0.5), fedlin.Plan(1, 0.02)
    counts = fedlin.count_bits(method, problem(), plan, 12, seed=3, x0=X0)
    run = fedlin.simulate(method, problem(), plan, 12, seed=3, x0=X0)
    np.testing.assert_array_equal(counts.bits("wire", "up", in_all=True), 8 * run.bytes_up)
    np.testing.assert_array_equal(counts.bits("wire", "both", in_all=True), 8 * run.bytes)
    np.testing.assert_array_equal(counts.bits("floats", "up"), np.arange(13) * (32 + DIM * 4))
    np.testing.assert_array_equal(counts.bits("floats", "down"), np.arange(13) * 32 * DIM)
    coded = counts.bits("coded", "up")
    assert np.all(np.diff(coded) > 64)  # the scale
    assert coded[-1] < counts.bits("wire", "up")[-1]
    assert counts.clients == CLIENTS


@pytest.mark.long
@pytest.mark.parametrize(
    "method",
    [fedlin.marina(fedlin.rand_k(2, unbiased=True), 0.4), fedlin.tamuna(CLIENTS, 4, 2)],
    ids=["sizes change", "some of the clients"],
)
def test_rounds_that_differ_are_counted_as_they_are(method: fedlin.Algorithm[Any, Any]) -> None:
    plan, share = fedlin.Plan(1, 0.02), (method.cohort or CLIENTS) / CLIENTS
    counts = fedlin.count_bits(method, problem(), plan, 12, seed=3, x0=X0)
    run = fedlin.simulate(method, problem(), plan, 12, seed=3, x0=X0, participation=share)
    np.testing.assert_allclose(counts.bits("wire", "up", in_all=True), 8 * run.bytes_up, rtol=1e-12)
    np.testing.assert_allclose(counts.bits("wire", "both", in_all=True), 8 * run.bytes, rtol=1e-12)


def test_the_rounds_counted_are_those_of_the_run() -> None:
    """The opening too, and a method that asks twice a round."""
    method = fedlin.fedlin(uplink=fedlin.innovation(top_k(2)))
    counts = fedlin.count_bits(method, problem(), fedlin.Plan(2, 0.01), 3)
    sizes = fedlin.message_sizes(method, problem()).sums()
    expected = 8 * np.cumsum([0, sizes[0][0], sizes[1][0], sizes[1][0]])
    np.testing.assert_array_equal(counts.bits("wire", "up"), expected)


METHODS = {
    "sparse": fedlin.fedlin(uplink=fedlin.innovation(top_k(2))),
    "dithered": fedlin.adiana(quantize(4), 0.5, 0.5, strong_convexity=0.1),
    "powers": fedlin.locodl(fedlin.natural(), 0.5, 0.5, strong_convexity=0.1),
    "matrices": fedlin.fednl(fedlin.low_rank(1, fedlin.cast("float16")), strong_convexity=0.1),
}


@pytest.mark.parametrize("name", METHODS)
def test_bits_that_follow_from_shapes_are_those_of_the_messages(name: str) -> None:
    counts = fedlin.count_bits(METHODS[name], problem(), fedlin.Plan(1, 0.01), 2)
    opening, later = message_bits(METHODS[name], problem())
    for place, direction in enumerate(("up", "down")):
        np.testing.assert_array_equal(
            counts.bits("floats", direction), np.cumsum([0, opening[place], later[place]]), err_msg=name
        )


def test_a_result_takes_the_bits_that_a_reader_chooses() -> None:
    """A whole count, or the first rounds continued; then plots and comparisons have them."""
    method, plan = METHODS["sparse"], fedlin.Plan(2, 0.01)
    run = fedlin.simulate(method, problem(), plan, 6)
    whole, part = (fedlin.count_bits(method, problem(), plan, rounds) for rounds in (6, 2))
    for way in ("wire", "floats"):
        counted = whole.on(run, way, in_all=True)
        np.testing.assert_array_equal(counted.bits, whole.bits(way, in_all=True))
        np.testing.assert_array_equal(part.on(run, way, in_all=True).bits, counted.bits)
    np.testing.assert_array_equal(whole.on(run, "wire", "both", in_all=True).bits, 8 * run.bytes)
    assert whole.on(run, "floats").plot(x="bits").get_xlabel() == "bits"
    target = run.gap[-1]
    compared = fedlin.compare({"FedLin": whole.on(run, "floats", "up")}, target)
    assert compared.to_dataframe()["bits"].tolist() == [whole.bits("floats", "up")[-1]]
    assert "bits" not in fedlin.compare({"FedLin": run}, target).to_dataframe()
    with pytest.raises(UnknownError, match="count_bits"):
        run.bits  # noqa: B018
    with pytest.raises(ArgumentError, match="two or more"):
        fedlin.count_bits(method, problem(), plan, 1).on(run)


def test_rounds_of_two_sizes_are_continued_each_by_its_own() -> None:
    """By the run's coins, whichever kind the last counted round was of."""
    method, plan = fedlin.marina(fedlin.rand_k(2, unbiased=True), 0.4), fedlin.Plan(1, 1e-3)
    problem = fedlin.problems.least_squares(clients=2, dim=20, samples=30)
    result = fedlin.simulate(method, problem, plan, 40, seed=5)
    opens = opening_rounds(method, 5, 0, 40)
    assert 10 < opens.sum() < 25
    seen = np.flatnonzero(~opens)[0] + 1  # the first count that has both kinds
    for rounds in range(seen, seen + 8):
        counts = fedlin.count_bits(method, problem, plan, int(rounds), seed=5)
        for way, per in (("wire", 64), ("floats", 32)):
            indices = {"wire": 8 * 2, "floats": 5 * 2}[way]
            up = np.cumsum([0, *np.where(opens, 20 * per, 2 * per + indices)])
            np.testing.assert_array_equal(counts.on(result, way, "up").bits, up)
        np.testing.assert_array_equal(counts.on(result, "wire", in_all=True).bits, 8 * result.bytes)


def test_bits_of_rounds_in_full_say_nothing_of_others() -> None:
    method, plan = fedlin.marina(fedlin.rand_k(2, unbiased=True), 0.9), fedlin.Plan(1, 1e-3)
    problem = fedlin.problems.least_squares(clients=2, dim=20, samples=30)
    seed = next(one for one in range(9) if opening_rounds(method, one, 0, 3).all())
    result = fedlin.simulate(method, problem, plan, 60, seed=seed)
    with pytest.raises(ArgumentError, match=r"3 rounds were counted of a run of 60.*count more"):
        fedlin.count_bits(method, problem, plan, 3, seed=seed).on(result)
