"""A secret of 32 bytes in shares, of which `threshold` give it back and fewer say nothing about it.

A. Shamir, How to share a secret, 1979: the shares are the values at 1, 2, … of a polynomial of degree threshold - 1
whose value at 0 is the secret, over the field of the least prime above 2²⁵⁶.
"""

from collections.abc import Mapping
from secrets import randbelow

from fedlin.errors import WireError

PRIME = 2**256 + 297
SECRET, SHARE = 32, 33  # bytes
LEAST = 3  # sites in a sum: of two, each could take its own upload off and know the other's


def threshold_of(sites: int) -> int:
    """The fewest of so many sites that can unmask a sum: more than two thirds of them.

    >>> [threshold_of(sites) for sites in (3, 4, 10, 20)]
    [3, 3, 7, 14]
    """
    return 2 * sites // 3 + 1


def tolerated(sites: int, threshold: int) -> int:
    """How many sites may work together with the server without its learning anything but sums of two honest uploads.

    Of every site it gets shares of one kind from each honest site, and needs `threshold` of a kind: 2t > n + c keeps
    it from getting both. A sum has at least t uploads, and t - c ≥ 2 leaves two that nobody knows.

    >>> [tolerated(sites, threshold_of(sites)) for sites in (3, 4, 10, 20)]
    [1, 1, 3, 7]
    """
    return min(2 * threshold - sites - 1, threshold - 2)


def split_secret(secret: bytes, threshold: int, count: int) -> list[bytes]:
    """Shares 1 to `count` of a secret, of which any `threshold` give it back."""
    assert len(secret) == SECRET
    coefficients = [int.from_bytes(secret), *(randbelow(PRIME) for _ in range(threshold - 1))]
    shares = []
    for point in range(1, count + 1):
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * point + coefficient) % PRIME
        shares.append(value.to_bytes(SHARE))
    return shares


def join_shares(shares: Mapping[int, bytes]) -> bytes:
    """The secret of these shares by number; with fewer than the threshold, or with a wrong one, something else.

    >>> shares = split_secret(bytes(range(32)), 2, 3)
    >>> join_shares({1: shares[0], 3: shares[2]}) == bytes(range(32))
    True
    """
    value = _value(shares, 0)
    if value >= 1 << 8 * SECRET:
        raise WireError("shares of a secret do not belong together.")
    return value.to_bytes(SECRET)


def share_at(shares: Mapping[int, bytes], number: int) -> bytes:
    """The share of another number that belongs to these, which are a threshold of them.

    >>> shares = split_secret(bytes(range(32)), 2, 3)
    >>> share_at({1: shares[0], 3: shares[2]}, 2) == shares[1]
    True
    """
    return _value(shares, number).to_bytes(SHARE)


def _value(shares: Mapping[int, bytes], at: int) -> int:
    """The value at a point of the polynomial through the shares (Lagrange)."""
    value = 0
    for point, share in shares.items():
        above = below = 1
        for other in shares:
            if other != point:
                above, below = above * (at - other) % PRIME, below * (point - other) % PRIME
        value += int.from_bytes(share) * above * pow(below, -1, PRIME)
    return value % PRIME
