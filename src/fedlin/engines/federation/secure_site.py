"""A site's part of a secure sum: what it reveals of its secrets, to whom and how often.

K. Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning, CCS 2017, for a server that
need not keep to the protocol. In one attempt at a round a site

1. offers fresh keys, signed;
2. checks everybody's offers and deals shares of its secrets, encrypted from site to site;
3. adds masks to its upload of each phase: one of its own, and one with every other site, which the two derive alike and
   add with opposite signs;
4. once uploads are in, gives its share of the own mask of each site whose upload arrived, and of the key of each whose
   upload did not. Never both of one site, never for two sets of sites in one phase or for two sums with one upload,
   and never for fewer sites than the threshold and the quorum. Where uploads are missing it gives nothing before a
   threshold of sites has signed the same set.

Masks follow from the keys and from all that the server sent: with another model, scale or list of sites for one of
them, masks do not cancel, and the server is left with random numbers. Secrets are in the process's memory alone and
those of the last attempt stay until the next: a site that was restarted has left the attempt. Nothing here takes the
same time whatever the secrets are; they serve once, and nobody but the site's own machine could measure it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fedlin.engines.federation.secure_keys import (
    Attempt,
    Directory,
    Offer,
    SiteSecrets,
    agree,
    write_fields,
    write_names,
)
from fedlin.engines.federation.secure_masks import Words, add_mask, derive_key
from fedlin.engines.federation.secure_records import Sum, SumRecords
from fedlin.engines.federation.secure_shares import LEAST, SHARE, split_secret, threshold_of
from fedlin.errors import WireError
from fedlin.identities import Identity

_NONCE = bytes(12)  # a key encrypts one message


def pair_key(secret: bytes, context: bytes) -> bytes:
    """The key of the mask that two sites share."""
    return derive_key(secret, "pair mask", context)


def own_key(seed: bytes, context: bytes) -> bytes:
    """The key of a site's own mask."""
    return derive_key(seed, "own mask", context)


def is_added(one: str, other: str) -> bool:
    """Whether `one` adds the mask it shares with the other, which then takes it off."""
    return one < other


@dataclass
class _MaskedPhase:
    """What a site did in one phase."""

    members: list[str]  # whose masks are in its upload
    context: bytes
    upload: bytes  # names the upload under the mask
    terms: bytes  # of its sum
    survivors: list[str] | None = None  # the set of sites whose sum it helps to unmask


@dataclass
class _SiteAttempt:
    """One attempt, as far as it has come."""

    attempt: Attempt
    secrets: SiteSecrets
    offer: Offer
    directory: Directory | None = None
    shares: dict[str, bytes] | None = None  # what the others dealt to this site, decrypted
    phases: dict[int, _MaskedPhase] = field(default_factory=dict)
    secrets_with: dict[str, bytes] = field(default_factory=dict)  # what shares between this site and another are under


class SecureSite:
    """One site, which takes part in one attempt at a time.

    Args:
        identity: What it signs with, and checks others by.
        sites: How many sites the federation has.
        quorum: The fewest sites of a sum that it helps to unmask; None: all.
        folder: Where it remembers, with a folder for each run.
    """

    def __init__(
        self, identity: Identity, sites: int = LEAST, quorum: int | None = None, folder: Path | None = None
    ) -> None:
        self.identity = identity
        self.sites = max(LEAST, sites)
        self.least = self.sites if quorum is None else quorum
        self.folder = folder
        self._present: _SiteAttempt | None = None
        self._records: dict[bytes, SumRecords] = {}  # by run

    @property
    def name(self) -> str:
        """The site's name."""
        return self.identity.name

    def records(self, run: bytes) -> SumRecords:
        """What is remembered of a run, whatever other runs came in between."""
        if run not in self._records:
            self._records[run] = SumRecords(None if self.folder is None else self.folder / run.hex())
        return self._records[run]

    def offer_keys(self, attempt: Attempt, phases: int) -> Offer:
        """Fresh keys for an attempt, which ends every earlier one."""
        if self._present is not None:
            last = self._present.attempt
            if attempt.run == last.run and attempt.number <= last.number:
                raise WireError(f"attempt {attempt.number} is not newer than {last.number}: keys are used once.")
        secrets = SiteSecrets.draw(phases)
        self._present = _SiteAttempt(attempt, secrets, secrets.offer(attempt, self.identity))
        return self._present.offer

    def deal_shares(self, attempt: Attempt, body: bytes | memoryview) -> dict[str, bytes]:
        """This site's shares for every site of the directory in `body`, encrypted to each."""
        present = self._of(attempt)
        phases = len(present.secrets.mask_keys)
        directory = Directory.read(body, phases)
        if present.directory is not None:
            raise WireError("shares of this attempt were dealt already, and are dealt once.")
        self._check_directory(present, directory)
        present.directory = directory
        secrets = [*(key.private_bytes_raw() for key in present.secrets.mask_keys), *present.secrets.own_seeds]
        each = [split_secret(secret, directory.threshold, len(directory.offers)) for secret in secrets]
        return {
            name: self._envelope(present, name, sender=True).encrypt(
                _NONCE, b"".join(shares[number] for shares in each), None
            )
            for number, name in enumerate(directory.names)
        }

    def _check_directory(self, present: _SiteAttempt, directory: Directory) -> None:
        sites = len(directory.offers)
        needed = threshold_of(max(sites, self.sites))
        if not needed <= directory.threshold <= sites:
            raise WireError(
                f"a threshold of {directory.threshold} of {sites} sites is not allowed: this site takes part from "
                f"{needed} on, and there must be as many."
            )
        self._check_number(sites, directory)
        if directory.offers.get(self.name) != present.offer:
            raise WireError(f"the keys that are said to be {self.name}'s are not: somebody exchanged them.")
        keys = [key for offer in directory.offers.values() for key in (offer.share_key, *offer.mask_keys)]
        if len(set(keys)) != len(keys):
            raise WireError("two sites are said to have the same key: somebody exchanged one.")
        others = {name: offer for name, offer in directory.offers.items() if name != self.name}
        for name, offer in others.items():
            self.identity.check(name, offer.certificate, offer.statement(present.attempt, name), offer.signature)

    def mask(
        self,
        attempt: Attempt,
        phase: int,
        members: Sequence[str],
        context: bytes,
        upload: bytes,
        words: Words,
        terms: bytes = b"",
    ) -> None:
        """Add this site's masks to its upload of a phase, in place.

        Args:
            attempt: The attempt.
            phase: The phase's number.
            members: The sites whose sum it is to be; those of an earlier phase whose uploads arrived.
            context: All that every site must have been sent alike.
            upload: Names the upload under the mask.
            words: The upload as whole numbers.
            terms: Those of its sum: noise, scale and weights.
        """
        present = self._of(attempt)
        directory = self._dealt(present)
        if phase >= len(present.secrets.mask_keys):
            raise WireError(f"no keys were offered for phase {phase}.")
        earlier = [present.phases[number].survivors for number in sorted(present.phases) if number < phase]
        allowed = directory.names if not earlier or earlier[-1] is None else earlier[-1]
        if self.name not in members or not set(members) <= set(allowed):
            raise WireError(f"a sum over {', '.join(members)} is not allowed in phase {phase} of this attempt.")
        self._check_number(len(members), directory)
        if phase in present.phases:
            raise WireError(f"an upload was masked already in phase {phase} of this attempt, and masks are used once.")
        context = write_fields([directory.digest, phase.to_bytes(4), write_names(members), context])
        present.phases[phase] = _MaskedPhase(list(members), context, upload, terms)
        add_mask(words, own_key(present.secrets.own_seeds[phase], context))
        private = present.secrets.mask_keys[phase]
        for other in members:
            if other != self.name:
                secret = agree(private, directory.offers[other].mask_keys[phase])
                add_mask(words, pair_key(secret, context), subtract=not is_added(self.name, other))

    def directory(self, attempt: Attempt) -> Directory:
        """Who takes part in this attempt."""
        return self._dealt(self._of(attempt))

    def confirm(self, attempt: Attempt, phase: int, survivors: Sequence[str]) -> bytes:
        """A signature of the set of sites whose uploads are said to have arrived; one set a phase."""
        self._choose(self._masked(attempt, phase), attempt, survivors)
        return self.identity.sign(_confirmation(attempt, phase, survivors))

    def unmask(
        self,
        attempt: Attempt,
        phase: int,
        survivors: Sequence[str],
        envelopes: Mapping[str, bytes],
        confirmations: Mapping[str, bytes],
    ) -> list[bytes]:
        """Of each member of the phase the share of its own mask if its upload arrived, else of its key."""
        masked, present = self._masked(attempt, phase), self._of(attempt)
        directory = self._dealt(present)
        if list(survivors) != masked.members:
            statement = _confirmation(attempt, phase, survivors)
            for name, signature in confirmations.items():
                if name not in masked.members:
                    raise WireError(f"{name} takes no part in this phase, and cannot confirm who does.")
                self.identity.check(name, directory.offers[name].certificate, statement, signature)
            if len(confirmations) < directory.threshold:
                raise WireError(
                    f"{len(confirmations)} sites confirm who is missing, and {directory.threshold} are needed."
                )
        self._choose(masked, attempt, survivors)
        shares = self._open(present, envelopes)
        phases = len(present.secrets.mask_keys)
        arrived = set(survivors)
        places = {name: phase + (phases if name in arrived else 0) for name in masked.members}
        if missing := [name for name in places if name not in shares]:
            raise WireError(f"the shares of {', '.join(missing)} were not delivered.")
        self.records(attempt.run).settle(masked.upload, Sum(list(survivors), masked.terms))
        return [shares[name][place * SHARE : (place + 1) * SHARE] for name, place in places.items()]

    def _choose(self, masked: _MaskedPhase, attempt: Attempt, survivors: Sequence[str]) -> None:
        """Settle on the set of sites whose sum is unmasked; this site never helps with another one."""
        present = self._of(attempt)
        directory = self._dealt(present)
        if self.name not in survivors or not set(survivors) <= set(masked.members):
            raise WireError(f"uploads of {', '.join(survivors)} cannot be those that arrived.")
        self._check_number(len(survivors), directory)
        if masked.survivors is not None and masked.survivors != list(survivors):
            raise WireError(
                f"this site helps with the sum over {', '.join(masked.survivors)} in this phase, and with no other one."
            )
        self.records(attempt.run).check(masked.upload, Sum(list(survivors), masked.terms))
        masked.survivors = list(survivors)

    def _check_number(self, sites: int, directory: Directory) -> None:
        """Refuse sums over fewer sites than the threshold, or than this site's owner agreed to."""
        fewest = max(directory.threshold, self.least)
        if sites < fewest:
            raise WireError(
                f"it would be a sum over {sites} sites, and {fewest} are the fewest that this one agrees to."
            )

    def _open(self, present: _SiteAttempt, envelopes: Mapping[str, bytes]) -> dict[str, bytes]:
        """What the others dealt to this site; decrypted once an attempt."""
        if present.shares is None:
            shares = {}
            for name, envelope in envelopes.items():
                if name not in self._dealt(present).offers:
                    raise WireError(f"{name} is no site of this attempt.")
                try:
                    shares[name] = self._envelope(present, name, sender=False).decrypt(_NONCE, envelope, None)
                except InvalidTag as cause:
                    raise WireError(f"{name}'s shares are not those it dealt to {self.name}.") from cause
                if len(shares[name]) != 2 * len(present.secrets.mask_keys) * SHARE:
                    raise WireError(f"{name} dealt shares of another length.")
            present.shares = shares
        return present.shares

    def _envelope(self, present: _SiteAttempt, other: str, *, sender: bool) -> ChaCha20Poly1305:
        """What encrypts shares between this site and another, in one direction, under one directory."""
        directory = self._dealt(present)
        names = (self.name, other) if sender else (other, self.name)
        if other not in present.secrets_with:
            present.secrets_with[other] = agree(present.secrets.share_key, directory.offers[other].share_key)
        context = write_fields([directory.digest, *(name.encode() for name in names)])
        return ChaCha20Poly1305(derive_key(present.secrets_with[other], "shares", context))

    def _of(self, attempt: Attempt) -> _SiteAttempt:
        if self._present is None or self._present.attempt != attempt:
            raise WireError(f"{self.name} takes no part in attempt {attempt.number}: it is over, or never began here.")
        return self._present

    def _dealt(self, present: _SiteAttempt) -> Directory:
        if present.directory is None:
            raise WireError("no shares of this attempt were dealt yet.")
        return present.directory

    def _masked(self, attempt: Attempt, phase: int) -> _MaskedPhase:
        masked = self._of(attempt).phases.get(phase)
        if masked is None:
            raise WireError(f"{self.name} masked no upload in phase {phase} of this attempt.")
        return masked


def _confirmation(attempt: Attempt, phase: int, survivors: Sequence[str]) -> bytes:
    return attempt.statement("arrived", phase.to_bytes(4), write_names(survivors))
