"""Proposition 1: FedProx, and so FedAvg, is gradient descent on a surrogate of f."""

import numpy as np

from fedlin import algorithms, theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common.draws import draws
from fedlin.claims.common.surrogates import Pair, judge, random_clients

STEPS = (1, 2, 7, 50)  # H
PULLS = (0.0, 0.5)  # β


@claim(
    "prop1",
    order=10,
    title="FedProx minimises a surrogate",
    section="Why the others fall short",
    statement="On quadratics a round of FedProx (FedAvg where β = 0) is a step η of gradient descent on f̃, whose "
    "clients have Hessians Q_i A_i with Q_i = Σ_{l<H} (I - η(A_i + βI))^l and the minimisers of f_i.",
)
def check(setting: Setting) -> Outcome:
    """Both trajectories side by side over 50 rounds, for every H and β and a random η ∈ (0, 1/(L+β))."""
    pairs = []
    for draw in draws(setting):
        problem = random_clients(draw)
        share = np.random.default_rng(draw).uniform(0.1, 1)
        for steps in STEPS:
            for beta in PULLS:
                eta = share / (problem.smoothness + beta)
                surrogate = theory.surrogate.fedprox(problem, steps, eta, beta)
                pairs.append(
                    Pair(draw, f"H = {steps}, β = {beta:g}", algorithms.fedprox(beta), problem, surrogate, steps, eta)
                )
    return judge(pairs, setting)
