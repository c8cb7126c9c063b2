# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # From a messy table of hospitals to a model you can trust
#
# Twelve hospitals keep a table each, with holes, words, units from 10⁻³ to 10⁶ and between 2 and 1,538 patients. This
# is the way from that table to a model and a report, with nothing done by hand.

# %%
import os
import tempfile
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

import fedlin

ROUNDS = int(os.environ.get("ROUNDS", "300"))
SIZES = (1538, 1100, 820, 560, 390, 260, 160, 90, 50, 20, 10, 2)

# %% [markdown]
# ## The table
#
# Drawn here, so that you can run this page; put your own file in its place.

# %%
draw = np.random.default_rng(0)
site = np.repeat(np.arange(len(SIZES)), SIZES)
n = len(site)
scores = draw.standard_normal((n, 4)) + 0.5 * draw.standard_normal((len(SIZES), 4))[site]
ward = draw.integers(0, 3, n)
units = {"age": (61, 14), "troponin": (0.004, 0.0015), "platelets": (250_000, 60_000), "pulse": (78, 12)}
truth = draw.standard_normal((4, 3))
outcome = (1.5 * scores @ truth + 0.8 * np.eye(3)[ward] + draw.gumbel(size=(n, 3))).argmax(axis=1)
lines = ["patient;hospital;" + ";".join(units) + ";ward;outcome"]
for row in range(n):
    cells = [f"{mean + spread * value:.6g}" for (mean, spread), value in zip(units.values(), scores[row], strict=True)]
    cells[draw.integers(4)] = "NA" if draw.random() < 0.1 else cells[draw.integers(4)]
    words = (["surgery", "general", "cardiology"][ward[row]], ["home", "rehabilitation", "transferred"][outcome[row]])
    lines.append(";".join([f"P{row:05d}", f"{site[row] + 1:02d}", *cells, *words]))
folder = Path(tempfile.mkdtemp())
file = folder / "hospitals.csv"
file.write_text("\r\n".join(lines), encoding="utf-8-sig")
print("\n".join(lines[:4]))

# %% [markdown]
# ## Read and prepare it
#
# `read_table` finds separator, encoding and missing values. `prepare` does what a federation can do: every hospital
# sends a summary of its columns, the server merges them, and every hospital prepares its own rows. A quarter of every
# hospital's rows is held out.

# %%
table = fedlin.data.read_table(file, label="outcome", client="hospital")
prepared = fedlin.data.prepare(table, test=0.25)
print(*prepared.notes, sep="\n")
print(f"{prepared.bytes_up:,} bytes up, {prepared.bytes_down:,} down")

# %% [markdown]
# ## Learn
#
# Hospitals count by their rows, so that one of 2 patients does not weigh as much as one of 1,538.

# %%
names = sorted(set(table.y))
labels = [np.array([names.index(word) for word in y]) for y in prepared.train.y]
problem = fedlin.problems.softmax(
    prepared.train.X, labels, l2=prepared.preparation.penalties(1e-3, len(names)), classes=len(names)
).weighted([len(y) for y in labels])
plan = fedlin.Plan.scaled(5, 4 / problem.smoothness)
result = fedlin.simulate(fedlin.fedlin(), problem, plan, ROUNDS)
result

# %% [markdown]
# ## As good as all rows in one place?

# %%
X, y = np.concatenate(prepared.test.X), np.concatenate(prepared.test.y)
ours = np.mean(np.array(names)[(X @ result.x.reshape(X.shape[1], -1)).argmax(axis=1)] == y)
all_rows, all_labels = np.concatenate(prepared.train.X), np.concatenate(prepared.train.y)
pooled = LogisticRegression(C=1 / (1e-3 * len(all_labels)), max_iter=2000, fit_intercept=False)
theirs = pooled.fit(all_rows, all_labels).score(X, y)
print(f"accuracy on held-out patients: {ours:.4f} federated, {theirs:.4f} with all rows in one place")

# %% [markdown]
# ## The same from a file, with a report
#
# `fedlin run hospitals.toml` prepares, tunes, compares and writes a page with accuracy, calibration and the worst
# hospital.

# %%
study = f"""
title = "Outcomes at twelve hospitals"
rounds = {ROUNDS}
targets = [1e-2]
[problem]
kind = "softmax"
l2 = 1e-3
data = {{ file = "hospitals.csv", label = "outcome", client = "hospital" }}
test = 0.25
[plan]
tau = 5
eta_bar = "tuned"
[[algorithm]]
name = "fedlin"
[[algorithm]]
name = "fedavg"
"""
(folder / "hospitals.toml").write_text(study, encoding="utf-8")
print(f"fedlin run {folder / 'hospitals.toml'}")
