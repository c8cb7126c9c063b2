"""The files `fedlin federation init` writes: a run that works as it is, to be changed line by line."""

from collections.abc import Sequence

SETTINGS = """\
# A federation of fedlin: the same file at the server and at every site.

[run]
rounds = 200
dim = 20                 # entries of the model; every site's problem has as many
seed = 0
dtype = "float64"        # or "float32"
# stop = 1e-10           # end once a round moves the model by no more than this

[algorithm]              # any method of fedlin, with its arguments
name = "fedlin"
uplink = "innovation(top_k(10))"   # sites send 10 of 20 entries of what changed in their gradients

[policy]
timeout = 60.0           # seconds one exchange may take
patience = 3600.0        # seconds a round is asked again before the run gives up
# quorum = 2             # go on with the first 2 answers; everyone is waited for unless given

[sites]                  # local steps and step size of each; slower machines take fewer steps
{sites}
"""

CLIENT = '''\
"""{name}'s part in the federation: its data and its loss. This file and what it reads stay on {name}'s machine."""

import numpy as np

import fedlin

ROWS, DIM = 100, 20
WEIGHT = float(ROWS)  # how much this site counts, here by its rows


def problem() -> fedlin.problems.Problem:
    """Replace the two drawn arrays by your own data, and the problem by your own loss."""
    rng = np.random.default_rng({seed})
    features = rng.normal(size=(ROWS, DIM))
    targets = features @ rng.normal(size=DIM) + 0.1 * rng.normal(size=ROWS)
    return fedlin.problems.regression([features], [targets])
'''


def settings_text(sites: Sequence[str]) -> str:
    """A `federation.toml`; the first site takes most local steps, as if its machine were the fastest."""
    steps = {site: 2 + 3 * (len(sites) - position) for position, site in enumerate(sites)}
    lines = [f"{site} = {{ tau = {tau}, eta = {0.03 / tau:.4g} }}" for site, tau in steps.items()]
    return SETTINGS.format(sites="\n".join(lines))


def client_text(name: str, seed: int) -> str:
    """A `client.py` with drawn data of its own."""
    return CLIENT.format(name=name, seed=seed)
