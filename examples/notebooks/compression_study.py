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
# # When does compression pay?
#
# Fewer entries a message mean fewer bytes a round and, often, more rounds. Which of the two wins depends on the
# problem. Two regressions with 20 clients each: one with features of equal scale, one with features as uneven as real
# ones are. Every method has the step, of a grid, with which it needs the fewest bytes.

# %%
import os
from typing import Any

import numpy as np

import fedlin

ROUNDS = int(os.environ.get("ROUNDS", "400"))
STEPS = 2.0 ** np.arange(-2, 6)
GOAL = 1e-8


def regression(smallest_scale: float) -> fedlin.problems.Problem:
    """Clients that want different models; scales of the features from 1 down to `smallest_scale`."""
    draw = np.random.default_rng(0)
    X = draw.standard_normal((20, 150, 50)) * np.geomspace(1, smallest_scale, 50)
    truth = draw.standard_normal(50) + 3 * draw.standard_normal((20, 50))
    return fedlin.problems.regression(X, np.einsum("inj,ij->in", X, truth))


# %% [markdown]
# `result.bytes` counts what all clients send and get, values and indices. The first round is sent in full.


# %%
def bytes_to_goal(method: fedlin.Algorithm[Any, Any], problem: fedlin.problems.Problem) -> tuple[float, int]:
    """The fewest bytes over the grid of steps, and the rounds they took."""
    tau = fedlin.draw_steps(20, 2, 20, seed=0)
    plans = [fedlin.Plan.scaled(tau, step / problem.smoothness) for step in STEPS]
    best = (float("inf"), 0)
    for run in fedlin.simulate_many(method, problem, plans, ROUNDS):
        reached = np.flatnonzero(run.gap <= GOAL * run.gap[0])
        if run.status == "done" and len(reached):
            best = min(best, (float(run.bytes[reached[0]]), int(reached[0])))
    return best


methods = {"whole messages": fedlin.fedlin()}
for k in (20, 10, 5) if ROUNDS >= 100 else (20,):
    methods[f"{k} of 50 in every message"] = fedlin.compressed(k)
for title, problem in {"equal scales": regression(1.0), "uneven scales": regression(0.14)}.items():
    print(f"{title}:")
    for name, method in methods.items():
        sent, rounds = bytes_to_goal(method, problem)
        cost = f"{sent / 1e6:6.2f} MB in {rounds} rounds" if rounds else "does not get there"
        print(f"  {name:<28} {cost}")

# %% [markdown]
# Where every direction is equally easy, large steps take whole messages to the goal in a few rounds, and there is
# little for compression to save. Where some directions are slow, rounds are many, and small messages win. For your own
# problem, `fedlin advise experiment.toml` measures it.
