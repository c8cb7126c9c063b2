"""The data that the sites of `fedlin federation init` draw."""

import numpy as np

import fedlin


def drawn_problem(sites: int) -> fedlin.problems.Problem:
    """All of it, as one problem with a client for each site."""
    features, targets = [], []
    for seed in range(sites):
        rng = np.random.default_rng(seed)
        features.append(rng.normal(size=(100, 20)))
        targets.append(features[-1] @ rng.normal(size=20) + 0.1 * rng.normal(size=100))
    return fedlin.problems.regression(features, targets)
