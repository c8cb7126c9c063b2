"""Proposition 1: FedProx, and so FedAvg, is gradient descent on a surrogate of f."""

from fedlin import algorithms, theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common.instances import draws
from fedlin.claims.common.method_faults import any_fault
from fedlin.claims.common.surrogates import Pair, judge, random_clients, shares

STEPS = (1, 2, 7, 50)  # H
PULLS = (0.0, 0.5)  # β


@claim(
    "prop1",
    order=10,
    title="FedProx minimises a surrogate",
    section="Why the others fall short",
    statement="On quadratics a round of FedProx (FedAvg where β = 0) is a step η of gradient descent on f̃, whose "
    "clients have Hessians Q_i A_i with Q_i = Σ_{l<H} (I - η(A_i + βI))^l and the minimisers of f_i. The minimisers of "
    "f̃ and f agree where H = 1 and where clients are identical, not in general.",
    wrong=any_fault(),
)
def check(setting: Setting) -> Outcome:
    """Both trajectories side by side over 50 rounds, for every H and β and steps up to 2/(L + β)."""
    pairs = []
    for draw in draws(setting):
        for identical in (False, True):
            problem = random_clients(draw, identical)
            for steps in STEPS:
                for beta in PULLS:
                    for share in shares(draw):
                        eta = share / (problem.smoothness + beta)
                        surrogate = theory.surrogate.fedprox(problem, steps, eta, beta)
                        name = f"H = {steps}, β = {beta:g}{', identical clients' * identical}"
                        method, same = setting.tested(algorithms.fedprox(beta)), identical or steps == 1
                        pairs.append(Pair(draw, name, method, problem, surrogate, steps, eta, same))
    return judge(pairs, setting)
