"""The protocol of secure sums, with no network: masks cancel to the bit, and a server that cheats learns nothing."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("cryptography", reason="needs cryptography: pip install 'fedlin[secure]'")

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedlin.engines.federation.secure_keys import (
    Attempt,
    Directory,
    SiteSecrets,
    agree,
    public_key,
    read_fields,
    write_names,
)
from fedlin.engines.federation.secure_masks import LARGEST, PIECE, add_mask, normal_stream, scale_exponent, to_signed
from fedlin.engines.federation.secure_opening import open_secrets
from fedlin.engines.federation.secure_shares import join_shares, split_secret, threshold_of, tolerated
from fedlin.engines.federation.secure_site import SecureSite, is_added, own_key, pair_key
from fedlin.engines.federation.secure_sum import unmasked_sum
from fedlin.errors import WireError
from fedlin.identities import SiteIdentity

RNG = np.random.default_rng(0)
RUN, CONTEXT, DIM = b"12345678", b"what all were told", 5
NAMES = ["a", "b", "c", "d"]  # of whom three are the threshold
QUORUM = 3


class Federation:
    """Sites of one attempt, up to the point where uploads are masked."""

    def __init__(self, names: Sequence[str] = NAMES, *, number: int = 1, phases: int = 1, width: int = 8) -> None:
        self.names, self.width = list(names), width
        self.sites = {name: SecureSite(own, len(names), QUORUM) for name, own in SiteIdentity.generate(names).items()}
        self.begin(number, phases)

    def begin(self, number: int, phases: int = 1) -> None:
        self.attempt = Attempt(RUN, 0, number)
        self.offers = {name: site.offer_keys(self.attempt, phases) for name, site in self.sites.items()}
        self.body = Directory.write(threshold_of(len(self.names)), self.offers)
        self.directory = Directory.read(self.body, phases)

    def deal(self) -> None:
        self.dealt = {name: site.deal_shares(self.attempt, self.body) for name, site in self.sites.items()}

    def upload(self, phase: int = 0, members: Sequence[str] | None = None, **contexts: bytes) -> dict[str, Any]:
        """Masked uploads of the members; `plain` holds what is under the masks."""
        members = self.names if members is None else list(members)
        high = 2 ** (8 * self.width)
        self.plain = {n: RNG.integers(0, high, DIM, f"u{self.width}", endpoint=False) for n in members}
        masked = {name: self.plain[name].copy() for name in members}
        for name, words in masked.items():
            context = contexts.get(name, CONTEXT)
            self.sites[name].mask(self.attempt, phase, members, context, f"{name}{phase}".encode(), words)
        return masked

    def envelopes(self, name: str) -> dict[str, bytes]:
        return {sender: dealt[name] for sender, dealt in self.dealt.items()}

    def unmask(self, name: str, survivors: Sequence[str], confirmations: Any = (), phase: int = 0) -> list[bytes]:
        return self.sites[name].unmask(self.attempt, phase, survivors, self.envelopes(name), dict(confirmations))

    def confirm(self, survivors: Sequence[str], phase: int = 0) -> dict[str, bytes]:
        return {name: self.sites[name].confirm(self.attempt, phase, survivors) for name in survivors}


def masked_federation(**options: Any) -> tuple[Federation, dict[str, Any]]:
    federation = Federation(**options)
    federation.deal()
    return federation, federation.upload()


def unmasked(federation: Federation, masked: Any, shares: Any, phase: int = 0) -> list[int]:
    """What the server makes of uploads and shares, where all of these are right."""
    secrets, wrong = open_secrets(federation.directory, phase, NAMES, masked, shares)
    assert not wrong
    return list(unmasked_sum(federation.directory, phase, NAMES, CONTEXT, masked, secrets).tolist())


def modular_sum(vectors: Any, width: int = 8) -> list[int]:
    """Python's whole numbers, which know no overflow."""
    return [sum(map(int, column)) % 2 ** (8 * width) for column in zip(*vectors, strict=True)]


# Shares, masks and scales.


@pytest.mark.parametrize(("threshold", "count"), [(1, 1), (2, 3), (3, 4), (4, 6)])
def test_every_subset_of_shares_tells_the_secret_or_nothing(threshold: int, count: int) -> None:
    secret = RNG.bytes(32)
    shares = dict(enumerate(split_secret(secret, threshold, count), 1))
    for size in range(1, count + 1):
        for chosen in itertools.combinations(shares, size):
            whole = size >= threshold
            try:
                joined = join_shares({number: shares[number] for number in chosen})
            except WireError:
                assert not whole
                continue
            assert (joined == secret) == whole


def test_fewer_shares_than_the_threshold_say_nothing() -> None:
    """Two of three that are needed are uniform, also together, whatever the secret is."""
    for secret in (bytes(32), b"\xff" * 32):
        drawn = [split_secret(secret, 3, 5) for _ in range(4000)]
        pairs = np.array([[int.from_bytes(shares[place]) % 8 for place in (1, 4)] for shares in drawn])
        assert stats.chisquare(np.bincount(pairs @ [8, 1], minlength=64)).pvalue > 1e-3


def test_the_threshold_keeps_both_kinds_of_shares_apart_and_two_uploads_hidden() -> None:
    for sites in range(3, 60):
        threshold = threshold_of(sites)
        colluding = tolerated(sites, threshold)
        honest = sites - colluding
        assert 2 * (threshold - colluding) > honest  # no two disjoint groups of honest sites are enough for both
        assert threshold - colluding >= 2
        assert threshold <= sites
        assert colluding >= sites // 3 - 1
    assert [tolerated(n, threshold_of(n)) for n in (10, 20)] == [3, 7]


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_a_mask_is_the_stream_of_aes_256_whole_or_in_pieces(width: int) -> None:
    """In counter mode, as GCM counts: from 2 on, after a nonce of zeros."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES256
    from cryptography.hazmat.primitives.ciphers.modes import CTR

    key, count = RNG.bytes(32), 2 * PIECE // width + 3
    words = RNG.integers(0, 256, count * width, np.uint8).view(f"<u{width}")
    counted = Cipher(AES256(key), CTR((2).to_bytes(16))).encryptor()
    stream = np.frombuffer(counted.update(bytes(count * width)), f"<u{width}")
    masked = words.copy()
    add_mask(masked, key)
    np.testing.assert_array_equal(masked, words + stream)
    add_mask(masked, key, subtract=True)
    np.testing.assert_array_equal(masked, words)


def test_noise_is_normal_and_a_function_of_its_key() -> None:
    keys = [bytes([number] * 32) for number in range(2)]
    one, other = (normal_stream(key)(20_000) for key in keys)
    for drawn in (one, other):
        assert stats.kstest(drawn, "norm").pvalue > 1e-3
        assert abs(drawn).max() < 8.3
    assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(one.size)
    draw = normal_stream(keys[0])
    np.testing.assert_array_equal(np.concatenate([draw(7), draw(19_993)]), one)


def test_no_sum_within_the_bound_can_overflow() -> None:
    for _ in range(200):
        sites, heaviest, bound = int(RNG.integers(3, 300)), 10 ** RNG.uniform(-9, 9), 10 ** RNG.uniform(-30, 30)
        exponent = scale_exponent(sites, heaviest, bound)
        largest = sites * heaviest * bound * 2.0**exponent
        assert largest * (1 + 1e-12) > LARGEST / 2
        assert largest <= LARGEST * (1 + 1e-12)
        assert largest + sites < 2**63  # each rounded up once
    assert to_signed(np.array([2**64 - 3], np.uint64)).tolist() == [-3]


# The sum.


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_masks_cancel_to_the_bit_whoever_vanishes_after_masking(width: int) -> None:
    for missing in ["", *NAMES]:
        federation, masked = masked_federation(width=width)
        masked.pop(missing, None)
        survivors = list(masked)
        confirmations = federation.confirm(survivors) if missing else {}
        shares = {name: federation.unmask(name, survivors, confirmations) for name in survivors[:3]}
        assert unmasked(federation, masked, shares) == modular_sum([federation.plain[n] for n in survivors], width)


def test_an_upload_that_comes_after_its_key_was_recovered_stays_hidden() -> None:
    """The server takes off all masks that d shares with others, and is left with d's own."""
    federation, masked = masked_federation()
    late, survivors = masked.pop("d"), NAMES[:3]
    shares = {n: federation.unmask(n, survivors, federation.confirm(survivors)) for n in survivors}
    numbers = {name: number for number, name in enumerate(NAMES, 1)}
    key = X25519PrivateKey.from_private_bytes(join_shares({numbers[name]: given[3] for name, given in shares.items()}))
    assert public_key(key) == federation.offers["d"].mask_keys[0]
    context = federation.sites["d"]._present.phases[0].context  # type: ignore[union-attr]
    for other in survivors:
        secret = agree(key, federation.offers[other].mask_keys[0])
        add_mask(late, pair_key(secret, context), subtract=is_added("d", other))
    own = federation.sites["d"]._present.secrets.own_seeds[0]  # type: ignore[union-attr]
    assert not set(late.tolist()) & set(federation.plain["d"].tolist())
    add_mask(late, own_key(own, context), subtract=True)
    assert late.tolist() == federation.plain["d"].tolist()


def test_any_threshold_of_sites_unmasks_and_fewer_do_not() -> None:
    federation, masked = masked_federation()
    everyone = {name: federation.unmask(name, NAMES) for name in NAMES}
    for givers in itertools.permutations(NAMES, 3):
        shares = {name: everyone[name] for name in givers}
        assert unmasked(federation, masked, shares) == modular_sum(federation.plain.values())
    for few in itertools.permutations(NAMES, 2):
        shares = {name: everyone[name] for name in few}
        assert open_secrets(federation.directory, 0, NAMES, masked, shares) == ({}, {})


def test_a_site_that_vanishes_in_a_later_phase_leaves_its_earlier_upload_hidden() -> None:
    """Its key of the later phase is recovered, and is no key of the earlier one, whose own mask is known by then."""
    federation = Federation(phases=2)
    federation.deal()
    first, plain = federation.upload(0), federation.plain
    shares = {name: federation.unmask(name, NAMES) for name in NAMES}
    assert unmasked(federation, first, shares) == modular_sum(plain.values())
    later = federation.upload(1)
    del later["d"]
    survivors = NAMES[:3]
    confirmations = federation.confirm(survivors, 1)
    shares = {name: federation.unmask(name, survivors, confirmations, 1) for name in survivors}
    assert unmasked(federation, later, shares, 1) == modular_sum([federation.plain[name] for name in survivors])
    keys = [secret for offer in federation.offers.values() for secret in offer.mask_keys]
    assert len(set(keys)) == 8


def test_who_is_missing_in_a_phase_is_in_no_later_one() -> None:
    federation = Federation(phases=2)
    federation.deal()
    federation.upload(0)
    survivors = NAMES[:3]
    federation.unmask("a", survivors, federation.confirm(survivors))
    with pytest.raises(WireError, match="a sum over a, b, c, d is not allowed in phase 1"):
        federation.upload(1)


def test_what_the_server_sees_of_an_upload_is_uniform() -> None:
    """Over 10,000 messages of one and the same upload, every byte of it; and two uploads look alike."""
    federation = Federation()
    federation.deal()
    seen = np.empty((2, 5000, DIM), np.uint64)
    plain = np.zeros((2, DIM), np.uint64)
    plain[1] = np.arange(DIM) * 2**61
    secrets = federation.sites["a"]._present.secrets  # type: ignore[union-attr]
    for number in range(seen.shape[1]):
        for kind in range(2):
            # The attempt anew, as far as its masks go: fresh keys of this site, and one upload.
            federation.sites["a"]._present.secrets = SiteSecrets.draw(1)  # type: ignore[union-attr]
            federation.sites["a"]._present.phases.clear()  # type: ignore[union-attr]
            words = plain[kind].copy()
            federation.sites["a"].mask(federation.attempt, 0, NAMES, CONTEXT, b"", words)
            seen[kind, number] = words
    assert secrets is not federation.sites["a"]._present.secrets  # type: ignore[union-attr]
    counts = np.apply_along_axis(np.bincount, 0, seen.reshape(-1, DIM).view(np.uint8), minlength=256)
    places = np.asarray(stats.chisquare(counts).pvalue)
    assert counts.shape == (256, DIM * 8)
    assert places.min() > 1e-3 / places.size  # every byte of every entry
    assert stats.kstest(places, "uniform").pvalue > 1e-3  # and no place too even either
    both = [np.bincount(seen[kind].view(np.uint8).ravel(), minlength=256) for kind in range(2)]
    assert stats.chi2_contingency(both).pvalue > 1e-3
    entries = (seen.reshape(-1, DIM) / 2.0**64).ravel()
    assert stats.kstest(entries, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(seen[1].T / 2.0**64) - np.eye(DIM)).max() < 0.07


# A server that does not keep to the protocol.


def test_a_server_that_asks_for_both_kinds_of_unmasking_is_refused() -> None:
    """First as if d's upload had arrived, then as if not: nobody gives the second share, so that no upload opens."""
    federation, masked = masked_federation()
    for name in NAMES:
        federation.unmask(name, NAMES)
    without = NAMES[:3]
    with pytest.raises(
        WireError, match="this site helps with the sum over a, b, c, d in this phase, and with no other"
    ):
        federation.confirm(without)
    with pytest.raises(WireError, match="sites confirm who is missing, and 3 are needed"):
        federation.unmask("a", without)
    # Nor the other way round, nor to different sites: who confirmed one set does not sign another.
    other, _ = masked_federation()
    confirmations = other.confirm(without)
    with pytest.raises(WireError, match="helps with the sum over a, b, c in this phase"):
        other.unmask("a", NAMES)
    with pytest.raises(WireError, match="did not sign"):
        other.unmask("d", ["b", "c", "d"], confirmations)
    assert masked


def test_two_different_sets_never_both_reach_the_threshold() -> None:
    """Whatever the server tells to whom: with no site on its side it gets both kinds of no site."""
    for split in itertools.product([True, False], repeat=4):
        federation, _ = masked_federation()
        both = {True: set[str](), False: set[str]()}
        for name, whole in zip(NAMES, split, strict=True):
            try:
                federation.unmask(name, NAMES) if whole else federation.sites[name].confirm(
                    federation.attempt, 0, NAMES[:3]
                )
                both[whole].add(name)
            except WireError:
                assert not whole
                assert name == "d"  # who is told that it is missing, and is not
        assert min(len(both[True]), len(both[False])) < threshold_of(4)


def test_a_site_knows_that_its_own_upload_arrived_and_who_was_to_send_one() -> None:
    federation, _ = masked_federation()
    with pytest.raises(WireError, match="uploads of b, c, d cannot be those that arrived"):
        federation.sites["a"].confirm(federation.attempt, 0, ["b", "c", "d"])
    with pytest.raises(WireError, match="uploads of a, b, c, x cannot be those that arrived"):
        federation.sites["a"].confirm(federation.attempt, 0, ["a", "b", "c", "x"])


def test_a_site_that_offers_another_s_keys_as_its_own_is_refused() -> None:
    """b is on the server's side, and signs what c offers: masks of a with both would be the same."""
    federation = Federation()
    for copied in ({"mask_keys": federation.offers["c"].mask_keys}, {"share_key": federation.offers["c"].share_key}):
        offer = federation.offers["b"]._replace(**copied)
        signature = federation.sites["b"].identity.sign(offer.statement(federation.attempt, "b"))
        body = Directory.write(3, {**federation.offers, "b": offer._replace(signature=signature)})
        with pytest.raises(WireError, match="two sites are said to have the same key"):
            federation.sites["a"].deal_shares(federation.attempt, body)


def test_who_takes_no_part_in_a_phase_cannot_confirm_who_does() -> None:
    """g is on the server's side, and signs in a phase without it what one site too few has signed."""
    federation = Federation("abcdefg")
    federation.deal()
    federation.upload(members="abcdef")
    survivors = list("abcde")
    confirmations = federation.confirm(survivors)
    signed = federation.attempt.statement("arrived", bytes(4), write_names(survivors))
    confirmations["g"] = federation.sites["g"].identity.sign(signed)
    with pytest.raises(WireError, match="g takes no part in this phase"):
        federation.unmask("a", survivors, {name: confirmations[name] for name in "bcdeg"})
    assert federation.unmask("a", survivors, {name: confirmations[name] for name in survivors})


def test_a_server_that_swaps_keys_is_refused() -> None:
    federation = Federation()
    forged = SiteSecrets.draw(1).offer(federation.attempt, SiteIdentity.generate(["b"])["b"])
    body = Directory.write(3, {**federation.offers, "b": forged})
    with pytest.raises(WireError, match="b shows a key that is not the one known here"):
        federation.sites["a"].deal_shares(federation.attempt, body)
    # Nor under b's own certificate, with b's signature of other keys, or b's keys in another's name.
    known = forged._replace(certificate=federation.offers["b"].certificate)
    mixed = federation.offers["b"]._replace(mask_keys=forged.mask_keys)
    for offers in ({"b": known}, {"b": mixed}, {"b": federation.offers["c"]._replace(share_key=bytes(32))}):
        body = Directory.write(3, {**federation.offers, **offers})
        with pytest.raises(WireError, match=r"b did not sign this|b shows a key|same key"):
            federation.sites["a"].deal_shares(federation.attempt, body)
    body = Directory.write(3, {**federation.offers, "a": federation.offers["a"]._replace(share_key=bytes(32))})
    with pytest.raises(WireError, match="the keys that are said to be a's are not"):
        federation.sites["a"].deal_shares(federation.attempt, body)
    stranger = SiteSecrets.draw(1).offer(federation.attempt, SiteIdentity.generate(["e"])["e"])
    with pytest.raises(WireError, match="e shows a key that is not the one known here"):
        federation.sites["a"].deal_shares(federation.attempt, Directory.write(4, {**federation.offers, "e": stranger}))


def test_a_server_that_drops_chosen_sites_is_refused() -> None:
    federation, _ = masked_federation()
    with pytest.raises(WireError, match="a sum over 2 sites, and 3 are the fewest"):
        federation.confirm(["a", "b"])
    with pytest.raises(WireError, match="a sum over 1 sites, and 3 are the fewest"):
        federation.sites["a"].mask(federation.attempt, 0, ["a"], CONTEXT, b"", np.zeros(1, np.uint64))
    for threshold, offers in [(2, federation.offers), (2, {n: federation.offers[n] for n in "ab"})]:
        federation.begin(federation.attempt.number + 1)
        offers = {name: federation.offers[name] for name in offers}
        with pytest.raises(WireError, match=f"a threshold of {threshold} of {len(offers)} sites is not allowed"):
            federation.sites["a"].deal_shares(federation.attempt, Directory.write(threshold, offers))
    larger = SecureSite(SiteIdentity.generate(NAMES)["a"], 5)
    offers = {**federation.offers, "a": larger.offer_keys(federation.attempt, 1)}
    with pytest.raises(WireError, match="takes part from 4 on"):
        larger.deal_shares(federation.attempt, Directory.write(3, offers))
    with pytest.raises(WireError, match="a sum over 4 sites, and 5 are the fewest"):  # all, unless it agreed to fewer
        larger.deal_shares(federation.attempt, Directory.write(4, offers))


def test_a_server_that_sums_an_upload_with_and_without_a_site_is_refused() -> None:
    """In two attempts, whose difference would be d's upload."""
    federation, _ = masked_federation()
    for name in NAMES:
        federation.unmask(name, NAMES)
    federation.begin(2)
    federation.deal()
    federation.upload()
    with pytest.raises(WireError, match="would tell their difference"):
        federation.confirm(NAMES[:3])


def test_a_server_that_replays_an_attempt_is_refused() -> None:
    federation, _ = masked_federation()
    site, attempt, body = federation.sites["a"], federation.attempt, federation.body
    envelopes = federation.envelopes("a")
    for number in (1, 0):
        with pytest.raises(WireError, match=f"attempt {number} is not newer than 1"):
            site.offer_keys(Attempt(RUN, 0, number), 1)
    with pytest.raises(WireError, match="dealt already"):
        site.deal_shares(attempt, body)
    with pytest.raises(WireError, match="masks are used once"):
        site.mask(attempt, 0, NAMES, CONTEXT, b"", np.zeros(DIM, np.uint64))
    federation.begin(2)
    for replayed in (
        lambda: site.deal_shares(attempt, body),
        lambda: site.mask(attempt, 0, NAMES, CONTEXT, b"", np.zeros(DIM, np.uint64)),
        lambda: site.confirm(attempt, 0, NAMES),
        lambda: site.unmask(attempt, 0, NAMES, envelopes, {}),
    ):
        with pytest.raises(WireError, match="a takes no part in attempt 1: it is over"):
            replayed()
    offers = {**federation.offers, "b": Directory.read(body, 1).offers["b"]}
    with pytest.raises(WireError, match="b did not sign this"):  # keys of the attempt before
        federation.sites["a"].deal_shares(federation.attempt, Directory.write(3, offers))


def test_sites_that_were_told_different_things_leave_the_server_with_random_numbers() -> None:
    """Another model for one site, so that the others' uploads were known: masks do not cancel."""
    federation = Federation()
    federation.deal()
    masked = federation.upload(a=b"another model")
    shares = {name: federation.unmask(name, NAMES) for name in NAMES}
    total = unmasked(federation, masked, shares)
    assert not set(total) & set(modular_sum(federation.plain.values()))


def test_envelopes_open_for_whom_they_are_meant_and_under_one_list_of_keys() -> None:
    federation, _ = masked_federation()
    envelopes = federation.envelopes("b")  # b's
    with pytest.raises(WireError, match="shares are not those it dealt to a"):
        federation.sites["a"].unmask(federation.attempt, 0, NAMES, envelopes, {})
    with pytest.raises(WireError, match="the shares of d were not delivered"):
        federation.sites["c"].unmask(
            federation.attempt, 0, NAMES, {n: e for n, e in federation.envelopes("c").items() if n != "d"}, {}
        )


@pytest.mark.parametrize("body", [b"\1", b"\xff\xff\xff\xff", b"\2\0\0\0a", bytes(3)])
def test_fields_that_are_cut_off_are_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        read_fields(body)
    with pytest.raises(WireError):
        Directory.read(body, 1)
