"""Secure sums in a federation: equal to the bit to fixed-point sums without masks, whatever fails on the way."""

import tempfile
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="needs cryptography: pip install 'fedlin[secure]'")

import fedlin
from contract import Row
from faults import CLIENT_FAULTS, SERVER_FAULTS, Fault, Faulty, until_done
from fedlin import Client, Policy, identity, innovation, plain, privacy, quantize, rand_k
from fedlin.core import Algorithm
from fedlin.engines.federation import secure_exchange, secure_site, secure_sum, wire
from fedlin.engines.federation.exchange import Reply
from fedlin.engines.federation.secure_encoding import (
    SumTerms,
    check_terms,
    encode_upload,
    mean_upload,
    shared_noise,
    sum_terms,
)
from fedlin.engines.federation.secure_exchange import sort_masked
from fedlin.engines.federation.secure_masks import add_mask, normal_stream
from fedlin.engines.federation.secure_shares import threshold_of, tolerated
from fedlin.engines.federation.secure_site import SecureSite
from fedlin.engines.federation.wire import Header, Kind, ReplyHeader
from fedlin.errors import ArgumentError, FederationError, WireError
from fedlin.identities import SiteIdentity
from fedlin.payloads import Dense, Grid, Sparse
from fedlin.transports.loopback import Loopback
from method_rows import ROWS

M, D = 4, 3
RNG = np.random.default_rng(1)
SKEW = 0.15 * RNG.standard_normal((M, D, D))
A, B = np.eye(D) + (SKEW + SKEW.transpose(0, 2, 1)) / 2, RNG.standard_normal((M, D))
PROBLEM = fedlin.problems.quadratic(A, B)
PLAN = fedlin.Plan([1, 3, 2, 2], [0.7, 0.25, 0.33, 0.3])
X0 = np.array([1.0, -2.0, 0.5])
NAMES = [f"site-{i}" for i in range(M)]
IDENTITIES = SiteIdentity.generate(NAMES)
QUICK: dict[str, Any] = {"pause": 0.0, "patience": 30.0, "norm_bound": 1e4}
NONE = normal_stream(bytes(32))  # where no noise is drawn


def site(algorithm: Algorithm[Any, Any], number: int, folder: Path | None = None, **options: Any) -> Client:
    own = {"identity": IDENTITIES[NAMES[number]], "sites": M, "quorum": 3, "weight": 1.0 + number, **options}
    return Client(algorithm, PROBLEM.client(number), folder=folder, **own)


def sites(algorithm: Algorithm[Any, Any], **options: Any) -> dict[str, Any]:
    return {name: site(algorithm, i, **options).handle for i, name in enumerate(NAMES)}


def serve(algorithm: Algorithm[Any, Any], transport: Any, rounds: int, **options: Any) -> fedlin.FederationResult:
    settled = {"plan": PLAN, "policy": Policy.everyone(**QUICK), "x0": X0, "seed": 1, "secure": True, **options}
    return fedlin.serve(algorithm, transport, rounds=rounds, **settled)


@cache
def without_masks(algorithm: Algorithm[Any, Any], rounds: int, **options: Any) -> Any:
    """The model of the same run with fixed-point sums and no mask."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (secure_site, secure_sum):
            patch.setattr(module, "add_mask", lambda *_, **__: None)
        return serve(algorithm, Loopback(sites(algorithm)), rounds, **options).x


@pytest.fixture
def checked_sums(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every sum that the server unmasks is compared with that of what the sites had before they masked it."""
    before: dict[tuple[int, str], Any] = {}
    checked: list[int] = []
    mask, unmask = SecureSite.mask, secure_sum.unmasked_sum

    def remember(
        self: SecureSite, attempt: Any, phase: int, members: Any, context: Any, upload: Any, words: Any, terms: bytes
    ) -> None:
        before[phase, self.name] = words.copy()
        mask(self, attempt, phase, members, context, upload, words, terms)

    def compare(directory: Any, phase: int, members: Any, context: Any, uploads: Any, secrets: Any) -> Any:
        total = unmask(directory, phase, members, context, uploads, secrets)
        if vars(secure_sum)["add_mask"] is not add_mask:  # a run without masks
            return total
        expected = [sum(map(int, column)) for column in zip(*(before[phase, name] for name in uploads), strict=True)]
        assert total.tolist() == [entry % 2 ** (8 * total.dtype.itemsize) for entry in expected]
        checked.append(len(uploads))
        return total

    monkeypatch.setattr(SecureSite, "mask", remember)
    monkeypatch.setattr(secure_exchange, "unmasked_sum", compare)
    return checked


# Whole numbers for reals.


def test_the_mean_of_fixed_point_numbers_is_that_of_fractions() -> None:
    """To half a step an upload, in exact arithmetic; for dense uploads, shared places and codes."""
    weights = np.array([3.0, 1.0, 0.5])
    like: Any = {"all": Dense(np.zeros(4)), "some": Sparse(np.zeros(2), np.array([1, 4], np.uint8), 5, shared=True)}  # type: ignore[arg-type]
    uploads: list[Any] = [
        {"all": Dense(RNG.standard_normal(4)), "some": Sparse(RNG.standard_normal(2), like["some"].indices, 5, True)}  # type: ignore[arg-type]
        for _ in weights
    ]
    terms = sum_terms(like, weights, 50.0)
    encoded = [encode_upload(one, w, terms, NONE) for one, w in zip(uploads, weights.tolist(), strict=True)]
    assert {clear for _, clear in encoded} == {bytes([1, 4])}
    total = np.asarray(np.sum([words for words, _ in encoded], axis=0, dtype=np.uint64))
    mean = mean_upload(like, total, encoded[0][1], float(weights.sum()), terms)
    exact = [
        sum(Fraction(w) * Fraction(float(v)) for w, v in zip(weights, column, strict=True)) / Fraction(4.5)
        for column in zip(*([*one["all"].values, *one["some"].values] for one in uploads), strict=True)
    ]
    step = Fraction(2) ** -terms.exponent
    found = [*mean["all"], *mean["some"][[1, 4]]]
    assert not mean["some"][[0, 2, 3]].any()
    for value, expected in zip(found, exact, strict=True):
        assert (
            abs(Fraction(float(value)) - expected) <= 3 * step / 2 / Fraction(4.5) + abs(expected) * Fraction(2) ** -51
        )


@pytest.mark.parametrize(
    ("weights", "width"), [([1.0] * 3, 2), ([300.0, 500.0, 400.0], 2), ([3.0, 1e6, 7.0], 4), ([0.5, 1.0, 0.3], 8)]
)
def test_codes_stay_small_and_add_up_exactly(weights: list[float], width: int) -> None:
    import jax

    compressor, vectors = quantize(100, bound=2.0), RNG.uniform(-2, 2, (3, 40))
    with fedlin.precision.precision(np.dtype(np.float64)):
        grids = [compressor.encode(jax.random.key(i), vector) for i, vector in enumerate(vectors)]
        decoded = np.array([np.asarray(grid.decode()) for grid in grids])
        assert abs(decoded - vectors).max() < 2.0 / 100
    terms = sum_terms(grids[0], np.array(weights), 1e3)
    assert terms.width == width
    words = [encode_upload(grid, w, terms, NONE)[0] for grid, w in zip(grids, weights, strict=True)]
    assert words[0].nbytes == 40 * width
    total = np.asarray(np.sum(words, axis=0, dtype=words[0].dtype))
    mean = mean_upload(grids[0], total, b"", sum(weights), terms)
    np.testing.assert_allclose(mean, np.average(decoded, axis=0, weights=weights), rtol=1e-12, atol=1e-14)
    assert isinstance(grids[0], Grid)


def test_what_does_not_fit_is_refused_by_the_site() -> None:
    terms = SumTerms(4, 2.0, 10.0, 1.0, 8)
    for vector, why in [
        (np.array([np.nan, 1.0]), "NaN"),
        (np.array([np.inf, 1.0]), "NaN or infinite"),
        (np.array([8.0, 8.0]), "beyond the bound of 10"),
    ]:
        with pytest.raises(WireError, match=why):
            encode_upload(Dense(vector), 1.0, terms, NONE)  # type: ignore[arg-type]
    with pytest.raises(WireError, match="leave out this site's weight, 3"):
        check_terms(np.ones(2), 3.0, terms)
    for sites_, weight, bound in [(4, 2.0, 10.0), (17, 1e-5, 1e9), (3, 123.0, 1.0)]:
        largest = SumTerms(sites_, weight, bound, 0.0, 8)
        edge = np.array(
            [encode_upload(np.array([x]), weight, largest, NONE)[0].view(np.int64)[0] for x in (bound, -bound)]
        )
        assert sites_ * abs(int(edge[0])) <= 2**62
        assert np.sign(sites_ * edge).tolist() == [1, -1]  # the sum of so many of them is what it should be


# Rounds.


def test_a_secure_run_is_the_plain_one_up_to_fixed_point(checked_sums: list[int]) -> None:
    weights = [1.0 + i for i in range(M)]
    result = serve(fedlin.fedlin(), Loopback(sites(fedlin.fedlin())), 6)
    plain_sites = {n: Client(fedlin.fedlin(), PROBLEM.client(i), weight=weights[i]).handle for i, n in enumerate(NAMES)}
    clear = serve(fedlin.fedlin(), Loopback(plain_sites), 6, secure=False)
    np.testing.assert_allclose(result.x, clear.x, rtol=1e-11)
    assert checked_sums == [M] * 12
    assert result.answered == clear.answered
    np.testing.assert_array_equal(result.gradients, clear.gradients)
    assert not [event for event in result.events if event["event"] == "fault"]
    np.testing.assert_array_equal(result.x, without_masks(fedlin.fedlin(), 6))


LINKS = {
    "shared places": fedlin.fedlin(uplink=innovation(rand_k(2, shared=True))),
    "codes": fedlin.fedlin(uplink=innovation(quantize(50, bound=8.0)), model_uplink=plain(identity())),
    "memories of the mean": fedlin.fedlin(uplink=innovation(identity())),
}


@pytest.mark.parametrize("algorithm", LINKS.values(), ids=LINKS)
def test_small_messages_stay_small_and_sum_to_the_bit(algorithm: Algorithm[Any, Any], checked_sums: list[int]) -> None:
    result = serve(algorithm, Loopback(sites(algorithm)), 5)
    np.testing.assert_array_equal(result.x, without_masks(algorithm, 5))
    simulated = fedlin.simulate(algorithm, PROBLEM, PLAN, 5, x0=X0, seed=1, weights=[1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(result.x, simulated.x, rtol=1e-9)
    assert len(checked_sums) == 10
    later = np.diff(result.bytes_up)[-1] / M - 8 * D  # what the gradient takes
    assert (
        later
        == {"shared places": 2 * 8 + 2, "codes": 2 * D, "memories of the mean": 8 * D}[
            next(name for name, one in LINKS.items() if one is algorithm)
        ]
    )


def refused(algorithm: Algorithm[Any, Any]) -> str | None:
    """Why a method cannot do with sums, before any work."""
    policy = Policy(norm_bound=1e6, patience=0.0, cohort=algorithm.cohort)
    try:
        serve(algorithm, Loopback({}), 1, policy=policy)
    except ArgumentError as error:
        return str(error)
    except FederationError:  # nobody is there
        return None
    return None


REFUSED = (
    "top_k",
    "rand_k(2",
    "low_rank",
    "cast",
    "sign",
    "quantize(4)",
    "natural",
    "compressed",
    "fednl",
    "tamuna",
    "nearest",
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_what_cannot_be_summed_is_refused_with_what_serves_instead(row: Row) -> None:
    why = refused(row.complete())
    uplinks = {name: value for name, value in row.arguments.items() if "downlink" not in name}
    asked = f"{row.method}({', '.join(map(str, uplinks.values()))})"
    if "per_layer" in asked:  # made for models of another size
        return
    assert (why is not None) == any(word in asked for word in REFUSED), (asked, why)
    if why is not None:
        instead = "quantize(levels, bound=...)", "rand_k(k, shared=True)", "Policy.everyone()"
        assert any(f"use {one}" in why for one in instead)


@pytest.mark.long
@pytest.mark.parametrize("row", [row for row in ROWS if not row.long], ids=str)
def test_every_method_that_is_not_refused_sums_to_the_bit(row: Row, checked_sums: list[int]) -> None:
    algorithm = row.complete()
    if refused(algorithm):
        pytest.skip("refused")
    plan = fedlin.Plan(2, 0.1)
    if algorithm.clients not in (None, M):
        pytest.skip("made for another number of clients")
    options = {"weight": 1.0, "secret": bytes(16)}
    result = serve(algorithm, Loopback(sites(algorithm, **options)), 4, plan=plan)
    assert checked_sums
    assert result.status == "done"
    if not any(mechanism and mechanism.central for mechanism in algorithm.mechanisms):  # whose noise is drawn here
        simulated = fedlin.simulate(algorithm, PROBLEM, plan, 4, x0=X0, seed=1)
        if not algorithm.mechanisms:
            np.testing.assert_allclose(result.x, simulated.x, rtol=1e-8)


# Faults.


def schedule(seed: int, exchanges: int) -> list[Fault]:
    """Faults of sites and server at moments drawn from a seed; no memory is lost."""
    rng = np.random.default_rng(seed)
    kinds = (*CLIENT_FAULTS, *SERVER_FAULTS)
    count = int(rng.integers(1, 9))
    places = zip(rng.integers(0, exchanges, count), rng.integers(0, M, count), strict=True)
    return [Fault(int(exchange), int(client), str(rng.choice(kinds))) for exchange, client in places]


def with_faults(algorithm: Algorithm[Any, Any], seed: int, rounds: int, policy: Policy) -> fedlin.FederationResult:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        transport = Faulty(lambda i, place: site(algorithm, i, place), M, folder, schedule(seed, 6 * rounds))
        run = lambda: serve(algorithm, transport, rounds, folder=folder / "server", policy=policy)  # noqa: E731
        result: fedlin.FederationResult = until_done(run)
        return result


def check_schedules(seeds: Sequence[int], checked: list[int]) -> None:
    """Everyone: bit for bit the undisturbed run without masks. A quorum: every sum is that of whoever is in it."""
    algorithm, rounds = LINKS["memories of the mean"], 3
    expected = without_masks(algorithm, rounds)
    for seed in seeds:
        policy = Policy.first(3, **QUICK) if seed % 2 else Policy.everyone(**QUICK)
        checked.clear()
        result = with_faults(algorithm, seed, rounds, policy)
        assert result.rounds == rounds
        assert len(checked) >= 2 * rounds
        assert min(checked) >= threshold_of(M)
        if not seed % 2:
            np.testing.assert_array_equal(result.x, expected)


def test_sums_are_exact_whatever_fails(checked_sums: list[int]) -> None:
    check_schedules(range(8), checked_sums)


@pytest.mark.long
@pytest.mark.parametrize("hundred", range(5))
def test_sums_are_exact_in_five_hundred_schedules_of_faults(hundred: int, checked_sums: list[int]) -> None:
    check_schedules(range(100 * hundred, 100 * hundred + 100), checked_sums)


def vanishing(handlers: dict[str, Any], name: str, kinds: Sequence[Kind], rounds: Sequence[int]) -> Any:
    """Handlers of which one is silent to messages of these kinds in these rounds."""

    def through(phase: str, payload: bytes) -> bytes:
        header, _ = wire.read_message(payload)
        if header.kind in kinds and header.round in rounds:
            raise ConnectionError
        return bytes(handlers[name](phase, payload))

    return {**handlers, name: through}


@pytest.mark.parametrize("kind", [Kind.KEYS, Kind.SHARES, Kind.MASK, Kind.CONFIRM, Kind.UNMASK])
def test_a_quorum_goes_on_without_a_site_wherever_it_vanishes(kind: Kind, checked_sums: list[int]) -> None:
    algorithm = LINKS["memories of the mean"]
    seen: list[Kind] = []

    class Counted(Loopback):
        def exchange(self, phase: str, payloads: Any, *rest: Any, **more: Any) -> Any:
            seen.extend({wire.read_message(payload)[0].kind for payload in payloads.values()})
            return super().exchange(phase, payloads, *rest, **more)

    handlers = vanishing(sites(algorithm), "site-0", [kind], [1])
    policy = Policy.within(5.0, at_least=3, **QUICK)
    result = serve(algorithm, Counted(handlers), 3, policy=policy)
    gone = kind in (Kind.KEYS, Kind.SHARES, Kind.MASK)
    assert [len(names) for names in result.answered] == [4, 3 if gone else 4, 4]
    # One more exchange where it vanished after its keys were in others' masks, and none where it had not yet.
    confirmed = seen.count(Kind.CONFIRM)
    assert confirmed == (1 if kind == Kind.MASK else 0)
    assert set(checked_sums) == ({3, 4} if gone else {4})


def test_fewer_than_the_threshold_and_the_round_is_asked_again_with_fresh_keys(checked_sums: list[int]) -> None:
    algorithm, missing, offers = LINKS["memories of the mean"], [3], list[bytes]()
    handlers = sites(algorithm)

    def through(name: str) -> Any:
        def handle(phase: str, payload: bytes) -> bytes:
            header, _ = wire.read_message(payload)
            if header.kind == Kind.UNMASK and name in NAMES[:2] and missing[0] > 0 and header.phase == 1:
                missing[0] -= name == NAMES[1]
                raise ConnectionError
            reply: bytes = handlers[name](phase, payload)
            if header.kind == Kind.KEYS and name == NAMES[0]:
                offers.append(reply)
            return reply

        return handle

    result = serve(algorithm, Loopback({name: through(name) for name in NAMES}), 2)
    np.testing.assert_array_equal(result.x, without_masks(algorithm, 2))
    assert len(offers) == len(set(offers)) == 3  # two rounds, one of them asked twice
    assert len(checked_sums) == 4  # what was unmasked of the first phase is not asked for again


# What is refused, and what is told.


def test_a_site_with_an_identity_sends_no_upload_without_a_mask() -> None:
    client = site(fedlin.fedlin(), 0)
    run = client.handshake.fingerprint + bytes(4)
    for kind in (Kind.TASK, Kind.MASK):
        reply = client.handle("gradient", wire.write_message(Header(kind, run), bytes(100)))
        assert wire.read_message(reply)[0].kind == Kind.REFUSED
    task = wire.write_message(Header(Kind.TASK, run), bytes(100))
    assert b"sends no upload without a mask" in client.handle("gradient", task)


def test_a_server_and_sites_agree_on_secure_sums_before_any_work() -> None:
    unmasked = {n: Client(fedlin.fedlin(), PROBLEM.client(i)).handle for i, n in enumerate(NAMES)}
    with pytest.raises(
        FederationError, match=r"secure True on the server and None here|do not run the same|belongs to"
    ):
        serve(fedlin.fedlin(), Loopback(unmasked), 1)
    with pytest.raises(FederationError, match="secure None on the server and True here"):
        serve(fedlin.fedlin(), Loopback(sites(fedlin.fedlin())), 1, secure=False)


def test_too_few_sites_or_no_bound_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"needs policy\.norm_bound"):
        serve(fedlin.fedlin(), Loopback(sites(fedlin.fedlin())), 1, policy=Policy.everyone())
    two = dict(list(sites(fedlin.fedlin()).items())[:2])
    with pytest.raises(FederationError, match="2 of 2 sites, and a secure sum is over at least 3"):
        serve(fedlin.fedlin(), Loopback(two), 1, plan=fedlin.Plan(1, 0.1))
    with pytest.raises(
        FederationError, match=r"2 of 4 sites, and a secure sum is over at least 3: raise policy\.quorum"
    ):
        serve(fedlin.fedlin(), Loopback(sites(fedlin.fedlin())), 1, policy=Policy.first(2, **QUICK))
    with pytest.raises(ArgumentError, match=r"identity = 3 is not allowed"):
        Client(fedlin.fedlin(), PROBLEM.client(0), identity=3)  # type: ignore[arg-type]


def test_an_upload_that_is_unfit_is_told_and_its_site_quarantined() -> None:
    """A site whose uploads are beyond the bound says so itself, and is kept out after three of them."""
    far = fedlin.problems.quadratic(A[:1], 1e9 * B[:1])
    five = [*NAMES, "site-4"]
    identities = SiteIdentity.generate(five)
    handlers = {
        name: Client(
            fedlin.fedavg(), far if i == 2 else PROBLEM.client(i % M), identity=identities[name], sites=5, quorum=4
        ).handle
        for i, name in enumerate(five)
    }
    result = serve(fedlin.fedavg(), Loopback(handlers), 2, plan=fedlin.Plan(1, 0.1))
    rejected = [event for event in result.events if event["event"] == "rejected"]
    assert [(event["client"], event["attempt"]) for event in rejected] == [("site-2", n) for n in (1, 2, 3)]
    assert "norm" in rejected[0]["why"]
    assert result.absent == {"site-2": "quarantined"}
    assert result.status == "done"


# Privacy.


def test_places_that_no_encoder_makes_are_their_site_s_fault_alone() -> None:
    """Neither the end of the run, nor a reason to reject the others, also where as many sites give them."""
    like: Any = Sparse(np.zeros(2), np.array([1, 4], np.uint8), 5, shared=True)  # type: ignore[arg-type]

    def masked(*places: int) -> Reply:
        return Reply(Kind.MASKED, ReplyHeader(bytes(8), 1), memoryview(bytes(places) + bytes(8 * 2)))

    arrived = sort_masked({"lying": masked(7, 9), "honest": masked(1, 4)}, like, 8)
    assert arrived.words.keys() == {"honest"}
    assert arrived.clear == bytes([1, 4])
    assert arrived.sorted_replies.rejected.keys() == {"lying"}
    assert sort_masked({"lying": masked(4, 4)}, like, 8).words == {}


def test_noise_shared_out_adds_up_to_what_the_account_needs() -> None:
    """The parts of as many honest sites as there must be have z times the sensitivity together."""
    clip, z, weights = 2.0, 1.5, np.array([1.0, 3.0, 2.0, 2.0, 1.0])
    mechanism = privacy.gaussian(clip, z, where="central").mechanism
    threshold = threshold_of(weights.size)
    honest = threshold - tolerated(weights.size, threshold)
    noise = shared_noise(mechanism, 3.0, honest)
    terms = sum_terms(np.zeros(1), weights, 10.0, noise)
    size = 40_000
    words = [encode_upload(np.zeros(size), w, terms, normal_stream(bytes([i] * 32)))[0] for i, w in enumerate(weights)]
    sums = np.sum(words[:honest], axis=0, dtype=np.uint64).view(np.int64) * 2.0**-terms.exponent
    needed = z * 2 * clip * 3.0  # another site of the largest weight moves Σ w_i u_i by 2·clip·w_max
    assert abs(sums.std() / needed - 1) < 4 / np.sqrt(2 * size)
    assert abs(sums.mean()) < 4 * needed / np.sqrt(size)
    assert shared_noise(privacy.gaussian(clip, z).mechanism, 3.0, honest) == 0  # the client's own is in the upload


def test_a_private_run_has_the_sites_noise_and_none_of_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = fedlin.fedpaq(privacy.gaussian(1.0, 0.5, where="central"))
    noisy = serve(algorithm, Loopback(sites(algorithm)), 1)
    again = serve(algorithm, Loopback(sites(algorithm)), 1)
    assert not np.array_equal(noisy.x, again.x)  # drawn by each site, from what it alone knows
    monkeypatch.setattr("fedlin.engines.federation.secure_exchange.shared_noise", lambda *_: 0.0)
    with pytest.raises(FederationError, match="noise of 0 is to be added"):  # and no server can leave it out
        serve(algorithm, Loopback(sites(algorithm)), 1, policy=Policy.everyone(**{**QUICK, "patience": 0.0}))
    monkeypatch.setattr("fedlin.engines.federation.secure_client.shared_noise", lambda *_: 0.0)
    bare = serve(algorithm, Loopback(sites(algorithm)), 1)
    quiet = fedlin.simulate(
        fedlin.fedpaq(privacy.gaussian(1.0, 1e-12)), PROBLEM, PLAN, 1, x0=X0, seed=1, weights=[1.0, 2.0, 3.0, 4.0]
    )
    np.testing.assert_allclose(bare.x, quiet.x, rtol=1e-9)
