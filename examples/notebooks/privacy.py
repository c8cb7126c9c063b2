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
# # What privacy costs: error against ε
#
# Every upload is clipped and Gaussian noise is added, so that a client's data as a whole is differentially private.
# The account is exact and is known before anything runs. Here a trusted server adds the noise to the mean
# (`where="central"`).

# %%
import os
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import fedlin

ROUNDS = int(os.environ.get("ROUNDS", "30"))
CLIENTS, DIM, DELTA, STEP, CLIP = 1000, 10, 1e-5, 1 / 8, 12.0

draw = np.random.default_rng(0)
curvature = draw.uniform(1, 4, (CLIENTS, DIM))
centre = curvature - 1.5 + 0.3 * draw.standard_normal((CLIENTS, DIM))  # goes with the curvature: averaging is biased
problem = fedlin.problems.quadratic(curvature[:, :, None] * np.eye(DIM), curvature * centre)
plan = fedlin.Plan.scaled(fedlin.draw_steps(CLIENTS, 2, 10), STEP)


# %% [markdown]
# FedLin uploads twice a round, a gradient and a move, and so pays twice; FedAvg (`fedpaq` with the noise as its
# compressor) uploads once.


# %%
def private(name: str, noise: float) -> fedlin.Algorithm[Any, Any]:
    """The method with this noise multiplier on every upload."""
    gradients, moves = (fedlin.privacy.gaussian(clip, noise, where="central") for clip in (CLIP, CLIP * STEP))
    return fedlin.fedlin(uplink=gradients, model_uplink=moves) if name == "FedLin" else fedlin.fedpaq(moves)


# %% [markdown]
# For a given ε, `noise_for` tells the noise of a run of so many rounds.

# %%
budgets = (0.5, 2.0, 8.0, 32.0) if ROUNDS >= 30 else (0.5, 32.0)
errors: dict[str, list[float]] = {}
for name, phases in {"FedLin": 2, "FedAvg": 1}.items():
    errors[name] = []
    for epsilon in budgets:
        method = private(name, fedlin.privacy.noise_for(epsilon, rounds=ROUNDS, delta=DELTA, phases=phases))
        print(name, fedlin.privacy.account(method, ROUNDS, delta=DELTA))
        errors[name].append(fedlin.simulate(method, problem, plan, ROUNDS).distance[-1])

# %%
figure = Figure(figsize=(5, 3.2), layout="constrained")
axes = figure.add_subplot(xscale="log", yscale="log", xlabel=f"ε at δ = {DELTA:g}", ylabel="‖x - x*‖²")
for name, reached in errors.items():
    axes.plot(budgets, reached, marker="o", label=name)
    print(name, ", ".join(f"ε = {epsilon:g}: {error:.1e}" for epsilon, error in zip(budgets, reached, strict=True)))
axes.legend()
figure

# %% [markdown]
# More ε, less error, until FedAvg meets its own bias. `fedlin reproduce open-privacy` does this over many draws and
# numbers of rounds.
