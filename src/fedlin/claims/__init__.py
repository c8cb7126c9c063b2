"""The paper's statements, each a file of its own that can be checked.

>>> from fedlin.claims import Setting
>>> Setting(quick=True).pick(1000, 10)
10
"""

from fedlin.claims.check_claims import verdicts
from fedlin.claims.claim import BEYOND, OPEN, Claim, Outcome, Setting, all_claims, find, select

__all__ = ["BEYOND", "OPEN", "Claim", "Outcome", "Setting", "all_claims", "find", "select", "verdicts"]
