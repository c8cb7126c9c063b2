"""A table as hospitals keep them: unequal sites, units from 10⁻³ to 10⁶, missing values, text, three outcomes.

`python tests/helpers/hospital_table.py hospitals.csv` writes it, and an experiment on it as hospitals.toml beside it.
"""

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

STUDY = """
title = "Outcomes at twelve hospitals"
rounds = 300
targets = [1e-3, 1e-4]
[problem]
kind = "softmax"
l2 = 1e-3
data = { file = "hospitals.csv", label = "outcome", client = "hospital" }
test = 0.25
[plan]
tau = 5
eta_bar = "tuned"
[[algorithm]]
name = "fedlin"
[[algorithm]]
name = "fedavg"
"""
SIZES = (1538, 1100, 820, 560, 390, 260, 160, 90, 50, 20, 10, 2)  # rows of each site, 5,000 in all
NUMBERS = {  # mean and standard deviation, in the units of the table
    "age": (61.0, 14.0),
    "bmi": (27.0, 4.5),
    "systolic": (132.0, 18.0),
    "troponin": (0.004, 0.0015),
    "creatinine": (0.09, 0.02),
    "glucose": (5.8, 1.3),
    "platelets": (250_000.0, 60_000.0),
    "red cells": (4_700_000.0, 500_000.0),
    "stay": (6.0, 2.5),
    "pulse": (78.0, 12.0),
}
TEXTS = {
    "sex": ("female", "male"),
    "smoker": ("no", "yes"),
    "ward": ("cardiology", "emergency", "general", "intensive care", "neurology", "oncology", "paediatrics", "surgery"),
    "diagnosis": tuple(f"{letter}{digit}, {kind}" for letter, kind in zip("AIM", ("mild", "fair", "grave"), strict=True)
                       for digit in (10, 20, 30)),
}  # fmt: skip
OUTCOMES = ("home", "rehabilitation", "transferred")
ABSENT = ("", "NA", "?")  # the ways in which a value is missing
SHARE_ABSENT = 0.04


def hospital_rows(seed: int = 0) -> list[dict[str, Any]]:
    """The table, a dictionary a row; the outcome follows a softmax model that all sites share."""
    draw = np.random.default_rng(seed)
    site = np.repeat(np.arange(len(SIZES)), SIZES)
    draw.shuffle(site)
    n = len(site)
    level = 0.5 * draw.standard_normal((len(SIZES), len(NUMBERS)))  # how a site's patients differ
    scores: NDArray[Any] = level[site] + draw.standard_normal((n, len(NUMBERS)))
    columns: dict[str, list[Any]] = {
        "patient": [f"P{number:06d}" for number in draw.permutation(10 * n)[:n]],
        "hospital": [f"{number + 1:02d}" for number in site],
        "country": ["Atlantis"] * n,
    }
    for name, (mean, spread), column in zip(NUMBERS, NUMBERS.values(), scores.T, strict=True):
        columns[name] = [f"{mean + spread * value:.6g}" for value in column]
    hits = [scores]
    for name, words in TEXTS.items():
        chances = draw.dirichlet(np.full(len(words), 2.0), len(SIZES))
        picked = np.array([draw.choice(len(words), p=chances[place]) for place in site])
        columns[name] = [words[number] for number in picked]
        hits.append(np.eye(len(words))[picked])
    X = np.concatenate(hits, axis=1)
    logits = 1.5 * X @ draw.standard_normal((X.shape[1], len(OUTCOMES))) + draw.gumbel(size=(n, len(OUTCOMES)))
    for name in (*NUMBERS, "smoker"):
        for row in np.flatnonzero(draw.random(n) < SHARE_ABSENT):
            columns[name][row] = ABSENT[draw.integers(len(ABSENT))]
    columns["outcome"] = [OUTCOMES[number] for number in logits.argmax(axis=1)]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def write_hospitals(path: Path, seed: int = 0) -> None:
    """The table as a CSV file."""
    rows = hospital_rows(seed)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    table = Path(sys.argv[1])
    write_hospitals(table)
    table.with_suffix(".toml").write_text(STUDY, encoding="utf-8")
