"""What both ends of a link remember."""

from typing import Any

import hypothesis.extra.numpy as npst
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedlin
from fedlin.compressors import Compressor, cast, identity, quantize, rand_k, sign, top_k
from fedlin.core import Central
from fedlin.errors import FedLinError
from fedlin.links import Link, as_link, error_feedback, innovation, plain, shifted
from fedlin.payloads import Dense
from fedlin.precision import precision
from quadratics import Array, assert_close

DIM, ROUNDS = 5, 6
quick = settings(derandomize=True, deadline=None, max_examples=25)
LOSSY = [top_k(2), rand_k(2), rand_k(2, unbiased=True), quantize(4), sign()]
LOSSY += [cast("float16"), cast("float16", top_k(2)), cast("float32", top_k(2))]
compressors = st.sampled_from(LOSSY)
entries = st.one_of(st.sampled_from([0.0, 1.0, -1.0]), st.floats(1e-3, 1e3), st.floats(-1e3, -1e-3))
sequences = npst.arrays(np.float64, (ROUNDS, DIM), elements=entries)


class Trace:
    """A sequence of values sent over a link: messages, estimates and both memories after each."""

    def __init__(self, link: Link, values: Array, first_in_full: bool = False) -> None:
        self.messages: list[Array] = []
        self.estimates: list[Array] = []
        self.senders: list[Any] = []  # arrays, or None where nothing is remembered
        self.receivers: list[Any] = []
        with precision(np.float64):
            like = jnp.zeros(values.shape[1])
            sender, receiver = link.sender(like), link.receiver(like)
            for t, value in enumerate(values):
                now = link.dense if first_in_full and t == 0 else link
                payload, sender = now.send(jax.random.key(t), sender, jnp.asarray(value))
                message = payload.decode()
                estimate, receiver = now.receive(receiver, message)
                self.messages.append(np.asarray(message))
                self.estimates.append(np.asarray(estimate))
                self.senders.append(sender if sender is None else np.asarray(sender))
                self.receivers.append(receiver if receiver is None else np.asarray(receiver))


def apply(compressor: Compressor, v: Array, t: int) -> Array:
    with precision(np.float64):
        return np.asarray(compressor(jax.random.key(t), jnp.asarray(v)))


@quick
@given(compressors, sequences)
def test_plain_remembers_nothing(compressor: Compressor, values: Array) -> None:
    trace = Trace(plain(compressor), values)
    for t, value in enumerate(values):
        np.testing.assert_array_equal(trace.estimates[t], apply(compressor, value, t))
    assert trace.senders == trace.receivers == [None] * ROUNDS


@quick
@given(compressors, sequences)
def test_error_feedback_sends_everything_in_the_end(compressor: Compressor, values: Array) -> None:
    """At all times what was sent and what is remembered add up to what was to be sent."""
    trace = Trace(error_feedback(compressor), values)
    rho, scale = np.zeros(DIM), 1 + np.sum(np.abs(values))
    for t, value in enumerate(values):
        np.testing.assert_allclose(trace.messages[t], apply(compressor, value + rho, t), rtol=1e-12)
        rho = trace.senders[t]
        sent = np.sum(trace.messages[: t + 1], axis=0)
        np.testing.assert_allclose(sent + rho, np.sum(values[: t + 1], axis=0), rtol=0, atol=1e-12 * scale)
        np.testing.assert_array_equal(trace.estimates[t], trace.messages[t])
    assert trace.receivers == [None] * ROUNDS


@quick
@given(sequences, st.sampled_from(["float16", "float32"]))
def test_the_memory_holds_exactly_what_a_cast_lost(values: Array, dtype: str) -> None:
    """To the last bit v + ρ is what arrives and what is remembered: no rounding error goes anywhere else."""
    trace = Trace(error_feedback(cast(dtype, top_k(2))), values)
    rho = np.zeros(DIM)
    for message, memory, value in zip(trace.messages, trace.senders, values, strict=True):
        np.testing.assert_array_equal(message + memory, value + rho)
        np.testing.assert_array_equal(memory, value + rho - message)
        rho = memory


@quick
@given(compressors, sequences)
def test_both_ends_of_an_innovation_remember_the_same(compressor: Compressor, values: Array) -> None:
    """The receiver's estimate is its memory is the sender's, and each moves by C(v - h)."""
    trace = Trace(innovation(compressor), values)
    h = np.zeros(DIM)
    for t, value in enumerate(values):
        expected = h + apply(compressor, value - h, t)
        np.testing.assert_allclose(trace.senders[t], expected, rtol=1e-12, atol=1e-12 * np.max(np.abs(values)))
        np.testing.assert_array_equal(trace.receivers[t], trace.senders[t])
        np.testing.assert_array_equal(trace.estimates[t], trace.senders[t])
        h = trace.senders[t]


@quick
@given(sequences)
def test_links_of_the_identity_reproduce_the_value(values: Array) -> None:
    """Plain and feedback exactly; differences up to the rounding of h + (v - h)."""
    for link in (plain(identity()), error_feedback(identity())):
        np.testing.assert_array_equal(Trace(link, values).estimates, values)
    for link in (innovation(identity()), shifted(identity(), 0.3)):
        np.testing.assert_allclose(
            Trace(link, values).estimates, values, rtol=0, atol=1e-14 * (1 + np.max(np.abs(values)))
        )


@quick
@given(compressors, sequences, st.sampled_from([0.1, 0.5, 1.0]))
def test_shifted_follows_diana(compressor: Compressor, values: Array, alpha: float) -> None:
    """m = C(v - h), v̂ = h + m, h ← h + αm at both ends (Mishchenko et al., Algorithm 1)."""
    trace = Trace(shifted(compressor, alpha), values)
    h, tolerance = np.zeros(DIM), 1e-12 * (1 + np.max(np.abs(values)))
    for t, value in enumerate(values):
        m = apply(compressor, value - h, t)
        np.testing.assert_allclose(trace.messages[t], m, rtol=0, atol=tolerance)
        np.testing.assert_allclose(trace.estimates[t], h + m, rtol=0, atol=tolerance)
        np.testing.assert_allclose(trace.senders[t], h + alpha * m, rtol=0, atol=tolerance)
        np.testing.assert_array_equal(trace.receivers[t], trace.senders[t])
        h = trace.senders[t]


def test_shifted_with_alpha_one_is_an_innovation() -> None:
    values = np.random.default_rng(0).standard_normal((ROUNDS, DIM))
    np.testing.assert_array_equal(
        Trace(shifted(top_k(2), 1.0), values).estimates, Trace(innovation(top_k(2)), values).estimates
    )


def test_an_innovation_catches_up_with_a_value_that_stays() -> None:
    """TOP-2 of what is missing delivers five entries exactly in three rounds; plain never does."""
    values = np.tile([5.0, -4.0, 3.0, -2.0, 1.0], (3, 1))
    np.testing.assert_array_equal(Trace(innovation(top_k(2)), values).estimates[-1], values[-1])
    np.testing.assert_array_equal(Trace(plain(top_k(2)), values).estimates[-1], [5.0, -4.0, 0.0, 0.0, 0.0])


# A server with many clients.

RULES = [plain, error_feedback, innovation, lambda c: shifted(c, 0.4)]


@pytest.mark.parametrize("rule", RULES, ids=["plain", "error_feedback", "innovation", "shifted"])
def test_receiving_the_mean_is_the_mean_of_what_is_received(rule: Any) -> None:
    """One memory, fed with mean messages, stands for one a client."""
    clients = [np.random.default_rng(i).standard_normal((ROUNDS, DIM)) for i in range(4)]
    traces = [Trace(rule(top_k(2)), values) for values in clients]
    link = rule(top_k(2))
    with precision(np.float64):
        memory = link.receiver(jnp.zeros(DIM))
        for t in range(ROUNDS):
            mean = np.mean([trace.messages[t] for trace in traces], axis=0)
            estimate, memory = link.receive(memory, jnp.asarray(mean))
            assert_close(np.asarray(estimate), np.mean([trace.estimates[t] for trace in traces], axis=0), 1e-14)
            if memory is not None:
                assert_close(np.asarray(memory), np.mean([trace.receivers[t] for trace in traces], axis=0), 1e-14)


@pytest.mark.parametrize("link", [innovation(top_k(2)), shifted(top_k(2), 0.4)], ids=repr)
def test_the_absent_do_not_move_the_memory(link: Link) -> None:
    """With two of four answering, the server's memory stays the mean of all four senders'."""
    rng = np.random.default_rng(3)
    with precision(np.float64):
        key, number = jax.random.key(0), jnp.asarray(0.5)
        half = Central(number, key, key, number, number)
        senders = [link.sender(jnp.zeros(DIM)) for _ in range(4)]
        memory = link.receiver(jnp.zeros(DIM))
        for t in range(ROUNDS):
            before = memory
            messages = []
            for i in rng.permutation(4)[:2]:
                value = jnp.asarray(rng.standard_normal(DIM))
                payload, senders[i] = link.send(jax.random.key(t), senders[i], value)
                messages.append(np.asarray(payload.decode()))
            mean = np.mean(messages, axis=0)
            estimate, memory = link.receive(memory, jnp.asarray(mean), half)
            assert_close(np.asarray(memory), np.mean(np.asarray(senders), axis=0), 1e-13)
            if link.name.startswith("shifted"):  # unbiased over who answers: the mean shift and the answers' mean
                assert_close(np.asarray(estimate), np.asarray(before) + mean, 1e-14)
            else:
                assert_close(np.asarray(estimate), np.asarray(memory), 1e-14)


# What a link is.


@pytest.mark.parametrize("rule", RULES, ids=["plain", "error_feedback", "innovation", "shifted"])
def test_dense_sends_in_full_and_keeps_the_memories(rule: Any) -> None:
    """The first value arrives exactly, and the lossy link goes on from where it left the memories."""
    values = np.random.default_rng(5).standard_normal((ROUNDS, DIM))
    link = rule(top_k(2))
    assert link.dense == rule(identity())
    with precision(np.float64):
        payload, _ = link.dense.send(jax.random.key(0), link.sender(jnp.zeros(DIM)), jnp.asarray(values[0]))
        assert isinstance(payload, Dense)
    trace = Trace(link, values, first_in_full=True)
    np.testing.assert_array_equal(trace.estimates[0], values[0])
    assert np.max(np.abs(trace.estimates[1] - values[1])) > 1e-3
    if link.name.startswith("error_feedback"):
        np.testing.assert_array_equal(trace.senders[0], 0)
    if link.name.startswith("innovation"):
        np.testing.assert_array_equal(trace.senders[0], values[0])
    if link.name.startswith("shifted"):
        np.testing.assert_allclose(trace.senders[0], 0.4 * values[0], rtol=1e-15)


@pytest.mark.parametrize(
    ("link", "lossless", "tracks"),
    [
        (plain(identity()), True, False),
        (error_feedback(identity()), True, False),
        (innovation(identity()), True, True),
        (shifted(identity(), 0.5), False, True),  # its first estimates are exact, but its shift lags
        (plain(top_k(2)), False, False),
        (error_feedback(top_k(2)), False, False),
        (innovation(top_k(2)), False, True),
        (shifted(top_k(2), 0.5), False, True),
    ],
    ids=repr,
)
def test_lossless_and_tracks(link: Link, lossless: bool, tracks: bool) -> None:
    assert link.lossless is lossless
    assert link.tracks is tracks
    assert (link.receiver(np.zeros(DIM)) is not None) is tracks  # type: ignore[arg-type]
    assert link.remembers is not link.name.startswith("plain")


def test_a_link_of_a_user_s_own_is_taken_to_lose_something_and_to_remember_what_either_end_does() -> None:
    sent = plain(top_k(2))
    bare = Link("own", sent.send, sent.receive)
    assert not bare.lossless
    assert not bare.remembers
    assert Link("own", sent.send, sent.receive, sender=lambda x: 0 * x).remembers
    assert Link("own", sent.send, sent.receive, receiver=lambda x: 0 * x).remembers


def test_equal_arguments_give_the_same_link() -> None:
    assert plain(top_k(3)) is plain(top_k(3))
    assert error_feedback(top_k(3)) is error_feedback(top_k(3))
    assert innovation(sign()) is innovation(sign())
    assert shifted(sign(), 0.5) is shifted(sign(), 0.5)
    assert shifted(sign(), 0.5) is not shifted(sign(), 0.4)
    assert plain(top_k(3)) != error_feedback(top_k(3))


@pytest.mark.parametrize(
    "link", [plain(top_k(3)), error_feedback(sign()), innovation(quantize(4)), shifted(rand_k(2, unbiased=True), 0.25)]
)
def test_a_name_is_what_made_it(link: Link) -> None:
    made = {f.__name__: f for f in (plain, error_feedback, innovation, shifted, top_k, sign, quantize, rand_k)}
    assert eval(repr(link), made) is link


def test_a_bare_compressor_is_its_error_feedback() -> None:
    assert as_link(top_k(3), "uplink") is error_feedback(top_k(3))
    assert as_link(identity(), "uplink") is plain(identity())
    assert as_link(innovation(top_k(3)), "uplink") is innovation(top_k(3))
    with pytest.raises(FedLinError, match="uplink = 3 is neither a link nor a compressor"):
        as_link(3, "uplink")  # type: ignore[arg-type]


@pytest.mark.parametrize("alpha", [0.0, -0.1, 1.1, float("nan"), True, "a"])
def test_a_shift_that_cannot_follow_is_refused(alpha: Any) -> None:
    shifted(top_k(2), 1.0)  # which a cache must not mistake for True
    with pytest.raises(FedLinError, match="alpha"):
        shifted(top_k(2), alpha)


def test_a_dimension_the_compressor_cannot_serve_is_refused() -> None:
    with pytest.raises(FedLinError, match="k = 6"):
        innovation(top_k(6)).check(5)


def test_half_precision_on_the_wire_still_ends_at_the_minimiser() -> None:
    """TOP-10 of changes in float16, on the paper's least squares: ‖x̄ - x*‖² ≤ 1e-20, for 2.8 times fewer bytes up."""
    problem = fedlin.problems.least_squares(clients=20, dim=100, samples=500, alpha=10.0, seed=0)
    plan = fedlin.Plan.scaled(fedlin.draw_steps(20, 2, 100, seed=0), 5e-4)
    methods = [fedlin.fedlin(uplink=innovation(c)) for c in (top_k(10), cast("float16", top_k(10)))]
    full, half = (fedlin.simulate(method, problem, plan, 300) for method in methods)
    assert half.distance[-1] <= 1e-20
    gradients = [np.diff(run.bytes_up)[-1] / 20 - 800 for run in (full, half)]  # the model takes 800 bytes
    assert gradients == [90, 32]
