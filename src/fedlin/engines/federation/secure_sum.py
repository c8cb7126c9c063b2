"""The server's part of a secure sum: it adds up masked uploads, and takes off what the sites let it take off."""

from collections.abc import Mapping, Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedlin.engines.federation.secure_keys import Directory, agree, write_fields, write_names
from fedlin.engines.federation.secure_masks import Words, add_mask
from fedlin.engines.federation.secure_site import is_added, own_key, pair_key


def unmasked_sum(
    directory: Directory,
    phase: int,
    members: Sequence[str],
    context: bytes,
    uploads: Mapping[str, Words],
    secrets: Mapping[str, bytes],
) -> Words:
    """The sum of the uploads that arrived, modulo 2^b.

    Args:
        directory: All sites' keys.
        phase: The phase's number.
        members: The sites whose masks are in the uploads, in order.
        context: All that the server sent to every site alike.
        uploads: The masked uploads that arrived.
        secrets: Of each member what `open_secrets` gives.

    Returns:
        Σ u_i over those whose upload arrived.
    """
    context = write_fields([directory.digest, phase.to_bytes(4), write_names(members), context])
    total: Words = np.zeros_like(next(iter(uploads.values())))
    for words in uploads.values():
        total += words
    for name in members:
        if name in uploads:
            add_mask(total, own_key(secrets[name], context), subtract=True)
            continue
        private = X25519PrivateKey.from_private_bytes(secrets[name])
        for other in uploads:  # what each of them had added for the site that is missing
            key = pair_key(agree(private, directory.offers[other].mask_keys[phase]), context)
            add_mask(total, key, subtract=is_added(other, name))
    return total
