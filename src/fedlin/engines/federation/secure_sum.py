"""The server's part of a secure sum: it adds up masked uploads, and takes off what the sites let it take off."""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedlin.engines.federation.secure_keys import Directory, agree, public_key, write_fields, write_names
from fedlin.engines.federation.secure_masks import Words, add_mask
from fedlin.engines.federation.secure_shares import SHARE, join_shares
from fedlin.engines.federation.secure_site import is_added, own_key, pair_key
from fedlin.errors import WireError


def unmasked_sum(
    directory: Directory,
    phase: int,
    members: Sequence[str],
    context: bytes,
    uploads: Mapping[str, Words],
    shares: Mapping[str, Sequence[bytes]],
) -> Words:
    """The sum of the uploads that arrived, modulo 2^b.

    Args:
        directory: All sites' keys.
        phase: The phase's number.
        members: The sites whose masks are in the uploads, in order.
        context: All that the sites were told alike.
        uploads: The masked uploads that arrived.
        shares: Of a threshold of sites, what each gave: one share of every member, in order.

    Returns:
        Σ u_i over those whose upload arrived.
    """
    context = write_fields([directory.digest, phase.to_bytes(4), write_names(members), context])
    numbers = {name: number + 1 for number, name in enumerate(directory.names)}
    givers = list(shares)[: directory.threshold]
    if len(givers) < directory.threshold:
        raise WireError(f"{len(givers)} sites gave shares, and {directory.threshold} are needed.")
    for name in givers:
        if len(shares[name]) != len(members) or any(len(share) != SHARE for share in shares[name]):
            raise WireError(f"{name} gave shares of another number or length than was asked for.")
    total: Words = sum(uploads.values(), np.zeros_like(next(iter(uploads.values()))))
    for place, name in enumerate(members):
        secret = join_shares({numbers[giver]: shares[giver][place] for giver in givers})
        if name in uploads:
            if hashlib.sha256(secret).digest() != directory.offers[name].commitments[phase]:
                raise WireError(f"the shares of {name}'s own mask do not belong together.")
            add_mask(total, own_key(secret, context), subtract=True)
            continue
        private = X25519PrivateKey.from_private_bytes(secret)
        if public_key(private) != directory.offers[name].mask_keys[phase]:
            raise WireError(f"the shares of {name}'s key do not belong together.")
        for other in uploads:  # what each of them had added for the site that is missing
            key = pair_key(agree(private, directory.offers[other].mask_keys[phase]), context)
            add_mask(total, key, subtract=is_added(other, name))
    return total
