"""Sites that give or deal wrong shares: a sum is unmasked where enough are right, and who may be at fault is named."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="needs cryptography: pip install 'fedlin[secure]'")

import fedlin
from fedlin import Client, Policy
from fedlin.engines.federation import wire
from fedlin.engines.federation.secure_keys import Attempt, Directory, SiteSecrets
from fedlin.engines.federation.secure_opening import open_secrets
from fedlin.engines.federation.secure_shares import SHARE, split_secret, threshold_of, tolerated
from fedlin.engines.federation.wire import Header, Kind
from fedlin.identities import SiteIdentity
from fedlin.transports.loopback import Loopback

RNG = np.random.default_rng(3)
ATTEMPT = Attempt(b"12345678", 0, 1)
GAVE, DEALT = "it gave wrong shares", "do not belong together"


class Sharing:
    """The secrets of one phase, and the shares of them that every site would give."""

    def __init__(self, sites: int, missing: Sequence[str] = ()) -> None:
        self.names = [f"site-{number:02d}" for number in range(sites)]
        self.threshold, self.most = threshold_of(sites), tolerated(sites, threshold_of(sites))
        self.arrived = [name for name in self.names if name not in missing]
        drawn = {name: SiteSecrets.draw(1) for name in self.names}
        offers = {name: drawn[name].offer(ATTEMPT, own) for name, own in SiteIdentity.generate(self.names).items()}
        self.directory = Directory.read(Directory.write(self.threshold, offers), 1)
        self.secrets = {
            name: one.own_seeds[0] if name in self.arrived else one.mask_keys[0].private_bytes_raw()
            for name, one in drawn.items()
        }
        dealt = [split_secret(self.secrets[name], self.threshold, sites) for name in self.names]
        self.shares = {giver: [shares[number] for shares in dealt] for number, giver in enumerate(self.names)}

    def spoil(self, giver: str, dealer: str) -> None:
        """Whoever of the two did it."""
        self.shares[giver][self.names.index(dealer)] = b"\0" + RNG.bytes(SHARE - 1)

    def open(self, givers: Sequence[str] | None = None) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
        shares = {name: self.shares[name] for name in givers or self.arrived}
        opened = open_secrets(self.directory, 0, self.names, self.arrived, shares)
        for name, secret in opened.secrets.items():
            assert secret == self.secrets[name]
        return opened.secrets, opened.wrong


@pytest.mark.parametrize(
    ("sites", "liars"),
    [(4, [2]), (5, [0]), (10, [0]), (10, [6]), (10, [9]), (10, [0, 1, 2]), (10, [3, 5, 8]), (20, [0, 1, 2, 3])],
)
def test_sites_that_give_wrong_shares_of_all_are_named_and_in_nobodys_way(sites: int, liars: Sequence[int]) -> None:
    sharing = Sharing(sites)
    for liar in liars:
        for dealer in sharing.names:
            sharing.spoil(sharing.names[liar], dealer)
    secrets, wrong = sharing.open()
    assert secrets == sharing.secrets
    assert set(wrong) == {sharing.names[liar] for liar in liars}
    assert all(GAVE in why for why in wrong.values())


def test_of_one_wrong_share_both_who_gave_and_who_dealt_it_are_named() -> None:
    sharing = Sharing(10, missing=["site-07"])
    sharing.spoil("site-02", "site-05")
    sharing.spoil("site-02", "site-07")  # of its key, since its upload did not arrive
    secrets, wrong = sharing.open()
    assert secrets == sharing.secrets
    assert set(wrong) == {"site-02", "site-05", "site-07"}
    assert (
        wrong["site-05"]
        == "site-02's share of the secret of site-05 is wrong: site-02 gave, or site-05 dealt, a wrong one."
    )


def test_a_site_that_deals_wrong_shares_to_all_is_named() -> None:
    sharing = Sharing(7)
    for giver in sharing.names:
        sharing.spoil(giver, "site-03")
    secrets, wrong = sharing.open()
    assert set(secrets) == set(sharing.names) - {"site-03"}
    assert set(wrong) == {"site-03"}
    assert DEALT in wrong["site-03"]


def test_from_no_more_than_the_threshold_nobody_is_named_for_what_another_may_have_done() -> None:
    sharing = Sharing(4)
    for dealer in sharing.names:
        sharing.spoil("site-01", dealer)
    assert sharing.open(["site-00", "site-01", "site-02"]) == ({}, {})
    assert set(sharing.open()[1]) == {"site-01"}


def test_shares_of_another_number_or_length_are_named_and_left_out() -> None:
    sharing = Sharing(7)
    sharing.shares["site-00"] = sharing.shares["site-00"][:-1]
    sharing.shares["site-01"] = [share[:-1] for share in sharing.shares["site-01"]]
    secrets, wrong = sharing.open()
    assert secrets == sharing.secrets
    assert set(wrong) == {"site-00", "site-01"}


@pytest.mark.parametrize("sites", [4, 7, 10, 13])
def test_honest_sites_are_never_named_but_beside_one_that_is_not(sites: int) -> None:
    """Whatever as many sites do as may be on the server's side, when giving and when dealing."""
    for _ in range(10):
        sharing = Sharing(sites)
        liars = set(RNG.choice(sharing.names, sharing.most, replace=False).tolist())
        share = RNG.uniform(0, 1)
        for giver in sharing.names:
            for dealer in sharing.names:
                if {giver, dealer} & liars and RNG.uniform() < share:
                    sharing.spoil(giver, dealer)
        _, wrong = sharing.open(RNG.permutation(sharing.names).tolist())
        for name, why in wrong.items():
            if GAVE in why:
                assert name in liars
            elif DEALT not in why:
                assert any(liar in why for liar in liars)


def test_a_run_goes_on_and_tells_who_sends_wrong_shares() -> None:
    names = [f"site-{number}" for number in range(5)]
    identities = SiteIdentity.generate(names)
    b = RNG.standard_normal((5, 3))
    problem = fedlin.problems.quadratic(np.stack([np.eye(3)] * 5), b)

    def run(liar: str | None) -> fedlin.FederationResult:
        handlers = {
            name: Client(fedlin.fedlin(), problem.client(i), identity=identities[name], sites=5).handle
            for i, name in enumerate(names)
        }

        def lie(phase: str, payload: bytes) -> bytes:
            assert liar is not None
            reply: bytes = handlers[liar](phase, payload)
            header, rest = wire.read_message(reply)
            if header.kind != Kind.UNMASKED:
                return reply
            fields, body = wire.read_reply(rest)
            wrong = b"".join(b"\0" + RNG.bytes(SHARE - 1) for _ in range(len(body) // SHARE))
            return wire.write_reply(Header(*header), fields, wrong)

        return fedlin.serve(
            fedlin.fedlin(),
            Loopback({name: lie if name == liar else handle for name, handle in handlers.items()}),
            fedlin.Plan(2, 0.2),
            3,
            dim=3,
            policy=Policy.everyone(pause=0.0, norm_bound=1e3),
            secure=True,
        )

    honest, told = run(None), run("site-1")
    np.testing.assert_array_equal(told.x, honest.x)
    faults: list[Any] = [event for event in told.events if event["event"] == "fault"]
    assert {event["client"] for event in faults} == {"site-1"}
    assert all(GAVE in event["why"] for event in faults)
    assert len(faults) == 3  # one a round: it is in force until the round is over
    assert not [event for event in honest.events if event["event"] == "fault"]
