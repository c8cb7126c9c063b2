# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Why FedLin: the paper's story in four runs
#
# Two clients disagree: $f_1 = \frac12 (x - 3)^2$ and $f_2 = (x - 50)^2$. What both want together is
# $x^* = 103/3$. This file is a notebook (open it with Jupytext) and a plain script.

# %%
import os

import numpy as np
from matplotlib.figure import Figure

import fedlin

ROUNDS = int(os.environ.get("ROUNDS", "300"))
problem = fedlin.problems.quadratic(np.array([[[1.0]], [[2.0]]]), np.array([[3.0], [100.0]]))
print("x* =", problem.minimizer[0])

# %% [markdown]
# ## FedAvg: faster with larger steps, and then wrong
#
# A larger step brings it to its limit sooner, and its limit further from $x^*$. Theory knows the limit: on quadratics
# FedAvg descends on another function (Proposition 1 of the paper), whose minimiser `fedlin.theory.surrogate` gives.

# %%
for eta in (0.1, 0.01):
    result = fedlin.simulate(fedlin.fedavg(), problem, fedlin.Plan(tau=5, eta=eta), ROUNDS)
    limit = fedlin.theory.surrogate.fedprox(problem, 5, eta).minimizer
    print(
        f"η = {eta}: FedAvg is {abs(result.x - problem.minimizer)[0]:.2e} from x*, its own limit "
        f"{abs(limit - problem.minimizer)[0]:.2e}"
    )

# %% [markdown]
# ## FedLin: a second exchange a round, and no compromise
#
# Each client subtracts its own gradient at the round's model and adds everyone's mean:
# $x \leftarrow x - \eta_i(\nabla f_i(x) - \nabla f_i(\bar x) + g)$. At $x^*$ this is zero on every client, so the
# run ends there. Theorem 1 gives steps and a bound for machines of any speed.

# %%
plan = fedlin.theory.strongly_convex(problem, tau=[5, 50])
linear = fedlin.simulate(fedlin.fedlin(), problem, plan, ROUNDS)
bound = fedlin.theory.bounds.strongly_convex(problem, ROUNDS, linear.gap[0])
assert (linear.gap <= bound * (1 + 1e-9) + 1e-25).all()
print(f"FedLin: gap {linear.gap[-1]:.1e} after {ROUNDS} rounds, promised {bound[-1]:.1e}")

# %% [markdown]
# ## With compressed gradients
#
# On a larger problem, clients send 10 of 100 entries. With error feedback the run stops at a floor, as Theorem 9 says;
# sending what changed since the last round, it does not.

# %%
large = fedlin.problems.least_squares(clients=20, dim=100, samples=500, alpha=10.0, seed=0)
steps = fedlin.Plan.scaled(fedlin.draw_steps(20, 2, 100, seed=0), eta_bar=5e-4)
figure = Figure(figsize=(6, 3.5), layout="constrained")
axes = figure.add_subplot()
for name, method in {
    "FedAvg": fedlin.fedavg(),
    "FedLin": fedlin.fedlin(),
    "FedLin, error feedback": fedlin.fedlin(uplink=fedlin.error_feedback(fedlin.top_k(10))),
    "FedLin, changes": fedlin.fedlin(uplink=fedlin.innovation(fedlin.top_k(10))),
}.items():
    run = fedlin.simulate(method, large, steps, min(ROUNDS, 200))
    run.plot("distance", ax=axes, label=name)
    print(f"{name}: ‖x - x*‖² = {run.distance[-1]:.1e}")
axes.legend()
figure
