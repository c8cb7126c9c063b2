"""The secrets that shares give back, also where some shares are wrong, and who is at fault for those.

What a site offered tells its secret from anything else: a digest of what its own mask follows from, and the public key
of its private one. So where the shares of a threshold of sites do not give the secret, other sets of sites are tried;
once one set gives it, every other share either is on the same polynomial or is wrong. That a share is wrong may be the
fault of the site that gave it or of the one that dealt it, and nobody but the two can tell. But a site whose shares are
wrong of more others than can be at fault gave wrong ones itself.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, islice
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedlin.engines.federation.secure_keys import Directory, public_key
from fedlin.engines.federation.secure_shares import SHARE, join_shares, share_at, tolerated
from fedlin.errors import WireError

SETS = 5000  # sets of sites that are tried for one secret, at most: enough for 4 of 20 sites that give wrong shares


class Opened(NamedTuple):
    """What shares gave back."""

    secrets: dict[str, bytes]  # of each member whose shares gave what it had offered
    wrong: dict[str, str]  # what is wrong, by site that is at fault or may be


def open_secrets(
    directory: Directory,
    phase: int,
    members: Sequence[str],
    arrived: Collection[str],
    shares: Mapping[str, Sequence[bytes]],
) -> Opened:
    """Of each member what its own mask follows from if its upload arrived, else its key.

    Args:
        directory: All sites' keys.
        phase: The phase's number.
        members: The sites whose masks are in the uploads, in order.
        arrived: Those whose uploads arrived.
        shares: By site what it gave: one share of every member, in order.
    """
    numbers = {name: number + 1 for number, name in enumerate(directory.names)}
    most = tolerated(len(directory.offers), directory.threshold)  # of sites at fault; more than so many are not all
    secrets: dict[str, bytes] = {}
    givers, wrong, pairs = list[str](), dict[str, str](), list[tuple[str, str]]()
    for name, given in shares.items():
        if len(given) == len(members) and all(len(share) == SHARE for share in given):
            givers.append(name)
        else:
            wrong[name] = "it gave shares of another number or length than was asked for."
    for place, member in enumerate(members):
        for chosen in islice(_sets(givers, directory.threshold), SETS):
            points = {numbers[giver]: shares[giver][place] for giver in chosen}
            try:
                secret = join_shares(points)
            except WireError:
                continue
            if _is_offered(directory, phase, member, secret, own=member in arrived):
                break
        else:
            if place - len(secrets) == most:  # one too many for the fault to be with those who dealt them
                break
            continue
        secrets[member] = secret
        others = (giver for giver in givers if giver not in chosen)
        off = [giver for giver in others if shares[giver][place] != share_at(points, numbers[giver])]
        pairs += [(giver, member) for giver in off]
        givers.sort(key=off.__contains__)  # those of whom a share was wrong come last from now on
    missing = [name for name in members if name not in secrets]
    return Opened(secrets, wrong | _faults(pairs, missing, most))


def _sets(givers: Sequence[str], threshold: int) -> Iterator[Sequence[str]]:
    """Every set of a threshold of them once, those of the first ones first."""
    if len(givers) >= threshold:
        yield givers[:threshold]
    for last in range(threshold, len(givers)):
        for chosen in combinations(givers[:last], threshold - 1):
            yield [*chosen, givers[last]]


def _is_offered(directory: Directory, phase: int, member: str, secret: bytes, *, own: bool) -> bool:
    offer = directory.offers[member]
    if own:
        return hashlib.sha256(secret).digest() == offer.commitments[phase]
    return public_key(X25519PrivateKey.from_private_bytes(secret)) == offer.mask_keys[phase]


def _faults(pairs: Sequence[tuple[str, str]], missing: Sequence[str], most: int) -> dict[str, str]:
    """Who is at fault, or may be, for wrong shares, as pairs of giver and dealer, and for secrets that are missing."""
    of: dict[str, list[str]] = {}
    for giver, dealer in pairs:
        of.setdefault(giver, []).append(dealer)
    faults = {}
    for giver, dealers in of.items():
        if len(dealers) > most:
            faults[giver] = f"it gave wrong shares of the secrets of {', '.join(dealers)}."
    for giver, dealer in pairs:
        if len(of[giver]) <= most:
            why = f"{giver}'s share of the secret of {dealer} is wrong: {giver} gave, or {dealer} dealt, a wrong one."
            faults |= {name: why for name in (giver, dealer) if name not in faults}
    if len(missing) <= most:  # else honest sites are among them, and it is some of those who gave shares
        why = "the shares of its secret do not belong together: it dealt wrong ones, or others gave wrong ones."
        faults |= {name: why for name in missing if name not in faults}
    return faults
