"""A server that sends what it likes to whole sites: it learns sums of all uploads it may learn, and nothing else.

Where a refusal is what protects, the attack is played to the end without it: what it tells is the victim's own upload.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="needs cryptography: pip install 'fedlin[secure]'")

import fedlin
from fedlin import Client, privacy
from fedlin.core import Algorithm
from fedlin.engines.federation import secure_client, wire
from fedlin.engines.federation.secure_encoding import SumTerms, mean_upload, shared_noise, sum_terms
from fedlin.engines.federation.secure_keys import Attempt, Directory, Offer
from fedlin.engines.federation.secure_messages import (
    MaskRequest,
    UnmaskRequest,
    read_offered,
    read_table,
    sum_context,
    write_directory,
    write_keys,
)
from fedlin.engines.federation.secure_opening import open_secrets
from fedlin.engines.federation.secure_records import FILE, SumRecords
from fedlin.engines.federation.secure_shares import SHARE, threshold_of, tolerated
from fedlin.engines.federation.secure_sum import unmasked_sum
from fedlin.engines.federation.wire import Header, Kind, Task
from fedlin.errors import ArgumentError, CheckpointError, WireError
from fedlin.identities import SiteIdentity

M, D = 4, 3
RNG = np.random.default_rng(2)
B = RNG.standard_normal((M, D))
PROBLEM = fedlin.problems.quadratic(np.stack([np.eye(D)] * M), B)
NAMES = [f"site-{i}" for i in range(M)]
VICTIM, OTHERS = NAMES[3], NAMES[:3]
IDENTITIES = SiteIdentity.generate(NAMES)
TAU, ETA, BOUND = 2, 0.25, 1e3
X = np.array([1.0, -2.0, 0.5])
FEDAVG = fedlin.fedavg()


class Refused(Exception):  # noqa: N818 - what a site answers
    """A site's refusal, in its words."""


class ActiveServer:
    """Sites, and a server that tells each of them whatever it likes."""

    def __init__(self, algorithm: Algorithm[Any, Any] = FEDAVG, folder: Path | None = None, **options: Any) -> None:
        self.algorithm, self.folder, self.options = algorithm, folder, {"quorum": 3, **options}
        self.start_sites()
        self.run, self.number, self.round = self.sites[VICTIM].handshake.fingerprint + b"run1", 0, 0
        self.greet()

    def start_sites(self) -> None:
        """New processes, as far as memory goes."""
        self.sites = {
            name: Client(
                self.algorithm,
                PROBLEM.client(i),
                identity=IDENTITIES[name],
                sites=M,
                folder=None if self.folder is None else self.folder / name,
                **self.options,
            )
            for i, name in enumerate(NAMES)
        }

    def ask(self, name: str, kind: Kind, rest: bytes, phase: int = 0) -> tuple[Kind, bytes]:
        message = wire.write_message(Header(kind, self.run, self.round, phase), rest)
        header, answer = wire.read_message(self.sites[name].handle("any", message))
        body = bytes(wire.read_reply(answer)[1])
        if header.kind == Kind.REFUSED:
            raise Refused(wire.read_facts(body)["reason"])
        return header.kind, body

    def greet(self, run: bytes | None = None) -> None:
        self.run = run or self.run
        for name, site in self.sites.items():
            self.ask(name, Kind.HELLO, wire.write_facts(site.handshake.facts))
            self.ask(name, Kind.BEGIN, b"")
        self.base = wire.identify(wire.write_message(Header(Kind.BEGIN, self.run, self.round)))

    def open(self) -> None:
        """Keys and shares of a new attempt."""
        self.number += 1
        self.attempt = Attempt(self.run, self.round, self.number)
        offers = {}
        for name in NAMES:
            body = self.ask(name, Kind.KEYS, write_keys(self.attempt))[1]
            offers[name] = Offer.read(read_offered(body)[0], 1)
        body = Directory.write(threshold_of(M), offers)
        self.directory = Directory.read(body, 1)
        self.dealt = {
            name: read_table(self.ask(name, Kind.SHARES, write_directory(self.attempt, body))[1]) for name in NAMES
        }

    def terms(self, **changes: Any) -> SumTerms:
        mechanism = dict(enumerate(self.algorithm.mechanisms)).get(0)
        noise = shared_noise(mechanism, 1.0, threshold_of(M) - tolerated(M, threshold_of(M)))
        return sum_terms(np.zeros(D), np.ones(M), BOUND, noise)._replace(**changes)

    def mask(
        self, terms: SumTerms, etas: Mapping[str, float] | None = None, again: int = 0
    ) -> tuple[dict[str, tuple[Kind, bytes]], bytes]:
        """Everybody's answer, masked where it is one, and what the masks follow from; `again` as for a new answer."""
        request, body = MaskRequest(self.attempt, NAMES, terms), wire.pack(X)
        header, answers = Header(Kind.TASK, self.run, self.round), {}
        for i, name in enumerate(NAMES):
            task = Task(self.base, i, 0, TAU, (etas or {}).get(name, ETA), again)
            message = wire.write_task(header, task, body)
            answers[name] = self.ask(name, Kind.MASK, message[wire.HEADER :] + request.write())
        return answers, sum_context(header, 0, wire.body_digest(body), request)

    def unmask(
        self, masked: Mapping[str, tuple[Kind, bytes]], context: bytes, survivors: Sequence[str], terms: SumTerms
    ) -> Any:
        """Σ w_i u_i over the survivors, all other uploads being said not to have arrived."""
        confirmations = {}
        if list(survivors) != NAMES:
            request = UnmaskRequest(self.attempt, list(survivors)).write()
            confirmations = {name: self.ask(name, Kind.CONFIRM, request)[1] for name in survivors}
        shares = {}
        for name in survivors:
            envelopes = {sender: self.dealt[sender][name] for sender in NAMES}
            asked = UnmaskRequest(self.attempt, list(survivors), confirmations, envelopes).write()
            given = self.ask(name, Kind.UNMASK, asked)[1]
            shares[name] = [given[at : at + SHARE] for at in range(0, len(given), SHARE)]
        words = {name: np.frombuffer(masked[name][1], "<u8") for name in survivors}
        secrets, wrong = open_secrets(self.directory, 0, NAMES, survivors, shares)
        assert not wrong
        total = unmasked_sum(self.directory, 0, NAMES, context, words, secrets)
        return mean_upload(np.zeros(D), total, b"", 1.0, terms)

    def sum(self, survivors: Sequence[str] = NAMES, etas: Any = None, again: int = 0, **changes: Any) -> Any:
        """A whole attempt."""
        self.open()
        terms = self.terms(**changes)
        masked, context = self.mask(terms, etas, again)
        if set(masked) - {name for name, (kind, _) in masked.items() if kind == Kind.MASKED}:
            raise Refused(f"unfit: {masked}")
        return self.unmask(masked, context, survivors, terms)


def upload(number: int, eta: float = ETA) -> Any:
    """What a site sends: its model after τ steps of gradient descent on ½‖x‖² - bᵀx."""
    return B[number] + (1 - eta) ** TAU * (X - B[number])


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sites that do not remember in which sums their uploads count."""
    monkeypatch.setattr(SumRecords, "settle", lambda *_: None)


def test_the_server_of_these_tests_learns_the_sum_of_all() -> None:
    np.testing.assert_allclose(ActiveServer().sum(), sum(map(upload, range(M))), rtol=1e-9)


def unchanged(server: ActiveServer) -> None:
    pass


def restarted(server: ActiveServer) -> None:
    server.start_sites()


def in_another_run(server: ActiveServer) -> None:
    """Whose keys are asked for in between."""
    run, base = server.run, server.base
    server.greet(server.sites[VICTIM].handshake.fingerprint + b"run2")
    server.open()
    server.run = run
    for name, site in server.sites.items():
        server.ask(name, Kind.HELLO, wire.write_facts(site.handshake.facts))
    server.base = base


@pytest.mark.parametrize("meanwhile", [unchanged, restarted, in_another_run])
@pytest.mark.parametrize("again", [0, 1])
def test_no_second_sum_with_an_upload_tells_a_difference(
    meanwhile: Any, again: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With and without the victim: also where its upload is asked for as a new answer, and by new processes."""
    for remembers in (False, True):
        with monkeypatch.context() as patch:
            if not remembers:
                forget(patch)
            server = ActiveServer(folder=tmp_path / str(remembers))
            everyone = server.sum()
            meanwhile(server)
            if remembers:
                with pytest.raises(Refused, match="would tell their difference"):
                    server.sum(OTHERS, again=again)
            else:  # the victim's upload
                np.testing.assert_allclose(everyone - server.sum(OTHERS, again=again), upload(3), rtol=1e-9)


def test_what_a_site_remembers_is_on_disk_before_its_share_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ActiveServer(folder=tmp_path)
    server.sum()
    records = SumRecords(tmp_path / VICTIM / server.run.hex())
    assert [one.names for one in records.sums.values()] == [NAMES]
    monkeypatch.setattr("fedlin.engines.federation.secure_records.write_whole", _full_disk)
    server.round += 1
    with pytest.raises(Refused, match="it failed with OSError"):
        server.sum()
    (tmp_path / VICTIM / server.run.hex() / FILE).write_text("{")
    with pytest.raises(CheckpointError, match="in which sums this site's uploads count"):
        SumRecords(tmp_path / VICTIM / server.run.hex())


def _full_disk(*_: Any, **__: Any) -> None:
    raise OSError(28, "no space left on device")


def test_a_site_takes_part_in_sums_over_all_unless_it_agreed_to_fewer() -> None:
    """Else a server that plays the same model twice, in two rounds, learns who is in one of the sums alone."""
    server = ActiveServer(quorum=3)
    everyone = server.sum()
    server.round += 1
    np.testing.assert_allclose(everyone - server.sum(OTHERS), upload(3), rtol=1e-9)  # what a quorum gives away
    server = ActiveServer(quorum=None)
    server.sum()
    server.round += 1
    with pytest.raises(Refused, match="a sum over 3 sites, and 4 are the fewest that this one agrees to"):
        server.sum(OTHERS)
    for quorum in (2, 5):
        with pytest.raises(ArgumentError, match=f"quorum = {quorum} is not allowed"):
            ActiveServer(quorum=quorum)
    with pytest.raises(ArgumentError, match="sites = None is not allowed with an identity"):
        Client(FEDAVG, PROBLEM.client(0), identity=IDENTITIES["site-0"])


def test_steps_of_next_to_nothing_for_all_others_are_refused() -> None:
    """They would upload the server's own model, and leave the victim's in the sum."""
    tiny = dict.fromkeys(OTHERS, 1e-30)
    total = ActiveServer().sum(etas=tiny)
    np.testing.assert_allclose(total - 3 * X, upload(3), rtol=1e-9)
    server = ActiveServer(steps=(TAU, ETA))
    with pytest.raises(Refused, match=r"eta = 1e-30 were asked for, and 2 and 0\.25 were agreed"):
        server.sum(etas=tiny)
    np.testing.assert_allclose(server.sum(), sum(map(upload, range(M))), rtol=1e-9)


def test_bounds_that_change_do_not_tell_the_norm_of_an_upload(tmp_path: Path) -> None:
    server = ActiveServer(folder=tmp_path)
    server.open()
    low = server.terms(bound=1e-3)
    answers, _ = server.mask(low)
    assert {kind for kind, _ in answers.values()} == {Kind.UNFIT}
    for i, (_, body) in enumerate(answers.values()):
        assert f"{np.linalg.norm(upload(i)):.2f}"[:3] not in wire.read_facts(body)["reason"]
    server.start_sites()
    server.open()
    with pytest.raises(Refused, match=r"norm bound of this run is 0\.001, and 1 was said"):
        server.mask(server.terms(bound=1.0))


@pytest.mark.parametrize("changes", [{"width": 4}, {"width": 1, "heaviest": 1e15}, {"heaviest": 0.5}, {"unit": 0.3}])
def test_terms_that_fit_no_upload_are_refused_whatever_the_data(changes: dict[str, Any]) -> None:
    """Whether an upload fits into fewer bits would tell how large it is."""
    server = ActiveServer()
    server.open()
    with pytest.raises(Refused, match=r"bytes a number are not what|leave out this site's weight"):
        server.mask(server.terms(**changes))


PRIVATE = fedlin.fedpaq(privacy.gaussian(10.0, 5.0, where="central"))


def test_noise_of_two_strengths_on_one_upload_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ActiveServer(PRIVATE)
    noise = server.terms().noise
    once = server.sum()
    with pytest.raises(Refused, match="with other noise, scale or weights"):
        server.sum(noise=2 * noise)
    np.testing.assert_array_equal(server.sum(), once)  # asked again as it was, it says nothing new
    # Where sites drew the same numbers for both strengths and forgot the first, two sums would be two equations.
    forget(monkeypatch)
    monkeypatch.setattr(secure_client, "derive_key", lambda secret, *_: (secret * 2)[:32])
    server = ActiveServer(PRIVATE)
    clear = 2 * server.sum() - server.sum(noise=2 * noise)
    moves = sum(upload(i) - X for i in range(M))
    np.testing.assert_allclose(clear, moves, rtol=1e-6)
    assert np.linalg.norm(once - moves) > 10


def test_noise_on_another_upload_of_the_same_task_is_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Eight bytes name the state a task goes on from: a server may find two, and two uploads with the same message."""
    server = ActiveServer(PRIVATE, tmp_path)
    once, before = server.sum(), sum(map(upload, range(M)))
    for name in NAMES:
        shutil.rmtree(tmp_path / name / server.run.hex())  # it is computed anew, here from other data
    monkeypatch.setitem(globals(), "B", 2 * B)
    monkeypatch.setitem(globals(), "PROBLEM", fedlin.problems.quadratic(np.stack([np.eye(D)] * M), B))
    server.start_sites()
    server.greet()
    moved = server.sum() - once
    assert np.linalg.norm(moved - (sum(map(upload, range(M))) - before)) > 1


def test_noise_is_for_as_many_honest_sites_as_the_site_knows_of() -> None:
    """A server that says there are a million sites does not get away with a millionth of the variance."""
    server = ActiveServer(PRIVATE)
    server.open()
    for sites in (M, 1_000_000):
        with pytest.raises(Refused, match="is to be added, and"):
            server.mask(server.terms(noise=server.terms().noise / 100, sites=sites))


def test_keys_of_another_round_are_refused() -> None:
    server = ActiveServer()
    server.open()
    server.round += 1
    with pytest.raises(Refused, match="takes no part in attempt 1"):
        server.mask(server.terms())
    site = server.sites[VICTIM]._secure.site  # type: ignore[union-attr]
    signed = server.directory.offers[NAMES[0]]
    for place in ({"round": 1}, {"run": b"another1"}, {"number": 2}):
        statement = signed.statement(server.attempt._replace(**place), NAMES[0])
        with pytest.raises(WireError, match="did not sign"):
            site.identity.check(NAMES[0], signed.certificate, statement, signed.signature)
