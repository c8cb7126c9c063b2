"""Advice: what it predicts is what happens, and what it suggests runs."""

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fedlin
from fedlin.cli import app
from fedlin.experiments.advise import Advice, Forecast, predicted, recommendation
from fedlin.experiments.build_method import algorithm, steps
from fedlin.experiments.candidates import Candidate, candidates, promised
from fedlin.experiments.config import PlanConfig
from fedlin.problems import least_squares, minibatch, quadratic

EXPERIMENT = """
rounds = 50
targets = [1e-3, 1e-18]
{more}
[problem]
kind = "least_squares"
clients = 5
dim = 20
samples = 30
[plan]
tau = {{ low = 2, high = 9 }}
eta_bar = "tuned"
[[algorithm]]
name = "fedavg"
"""


def advised(folder: Path, *options: str, more: str = "") -> Any:
    file = folder / "experiment.toml"
    file.write_text(EXPERIMENT.format(more=more))
    done = CliRunner().invoke(app, ["advise", str(file), *options])
    assert done.exit_code == 0, done.output
    return done


@pytest.mark.long
def test_predictions_come_true_and_the_suggestion_runs(tmp_path: Path) -> None:
    found = json.loads(advised(tmp_path, "--json", "--by", "rounds", "--check", "20").stdout)
    costs = [forecast["rounds"] for forecast in found["forecasts"]]
    assert costs == sorted(costs)
    # A fit to the last half of a pilot, continued: within a third for methods whose error falls on a line.
    exact = {check["forecast"]["candidate"][0]: check for check in found["checks"]}
    for name in ("fedlin", "gradient_descent"):
        check = exact[name]
        assert check["rounds"] == pytest.approx(check["forecast"]["rounds"], rel=0.33)
        assert check["bytes"] == pytest.approx(check["forecast"]["bytes"], rel=0.33)
    # Theory promises no less than is needed, since the step it asks for is among the smaller ones.
    assert exact["gradient_descent"]["rounds"] <= exact["gradient_descent"]["forecast"]["promised"]
    assert found["checks"][0]["rounds"] == min(check["rounds"] for check in found["checks"])

    told = advised(tmp_path, "--by", "rounds", "--check", "1").stdout
    suggestion = tomllib.loads(told[told.index("[[algorithm]]") :])["algorithm"][0]
    assert algorithm(suggestion["name"], {k: v for k, v in suggestion.items() if k not in ("name", "plan")})
    file = tmp_path / "again.toml"
    text = EXPERIMENT.format(more="").replace("rounds = 50", "rounds = 4000")
    file.write_text(text[: text.index("[[algorithm]]")] + told[told.index("[[algorithm]]") :])
    done = CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert "1 of 1 methods reach gap 1e-18" in done.stdout


def test_missing_clients_and_mini_batches_get_methods_that_bear_them() -> None:
    exact = least_squares(clients=3, dim=10, samples=20)
    some = [one.label for one in candidates(exact, 0.5)]
    assert some[0] == "fedlin(uplink=innovation(identity()))"
    drawn = [one.label for one in candidates(minibatch(exact, 5), 1.0)]
    assert drawn[0] == "fedlin(same_batch=True)"
    assert {one.method for one in candidates(exact, 1.0)} >= {"gradient_descent", "fedlin", "compressed", "scaffnew"}


def test_every_method_of_the_frontier_is_a_candidate_and_its_lines_can_be_read() -> None:
    """On clients that differ in smoothness, where GradSkip has something to skip."""
    problem = quadratic([scale * np.diag([1.0, 9.0]) for scale in (1.0, 1.0, 20.0)], np.ones((3, 2)))
    found = list(candidates(problem, 1.0))
    frontier = {"scaffnew", "gradskip", "compressed_scaffnew", "locodl", "diana", "adiana", "ef21", "fednl", "fedsplit"}
    assert {one.method for one in found} >= frontier
    assert "fednl_pp" in {one.method for one in candidates(problem, 0.5)}
    for one in found:
        told = recommendation(Advice({}, (Forecast(one, 0.5, 1.0, 1.0, 1.0, None),), ()))
        (read,) = tomllib.loads(told[told.index("[[algorithm]]") :])["algorithm"]
        plan = PlanConfig(**read.pop("plan"))
        assert algorithm(read.pop("name"), read)
        if one.tau is not None:
            np.testing.assert_array_equal(steps(plan.tau, 3), np.broadcast_to(one.tau, 3))


def test_theory_s_rounds_are_those_of_its_bound() -> None:
    problem = least_squares(clients=3, dim=10, samples=40)
    kappa, ratio, tau = problem.condition, 1e9, [2, 5, 9]
    rounds = promised(Candidate("fedlin", {}, ""), problem, tau, ratio)
    assert rounds is not None
    certified = fedlin.theory.bounds.certified(problem, tau, int(np.ceil(rounds)), 1.0)
    assert kappa * certified[-1] <= 1 / ratio < kappa * certified[-2]
    assert promised(Candidate("compressed", {"k": 1}, ""), problem, tau, ratio) is None
    descent = promised(Candidate("gradient_descent", {}, ""), problem, tau, ratio)
    assert descent is not None
    assert (1 - 1 / kappa) ** descent == pytest.approx(1 / ratio, rel=1e-6)


def test_a_floor_is_not_taken_for_slow_progress() -> None:
    falling = 0.5 ** np.arange(20.0)
    assert predicted(falling, 1e-12) == 40
    assert predicted(falling + 1e-2, 1e-12) == np.inf
