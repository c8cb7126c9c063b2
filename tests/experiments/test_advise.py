"""Advice: what it predicts is what happens, and what it suggests runs."""

import json
import os
import tomllib
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fedlin
from fedlin.claims.common.entrants import ENTRANTS
from fedlin.cli import app
from fedlin.engines.simulation.run import prepare_run
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


def invoke(file: Path, *options: str) -> Any:
    """The command, without the variable that it sets for good: this process goes on after it."""
    same = {"XLA_FLAGS": os.environ.get("XLA_FLAGS", "")}
    return CliRunner().invoke(app, ["advise", str(file), *options], env=same)


def advised(folder: Path, *options: str, more: str = "") -> Any:
    file = folder / "experiment.toml"
    file.write_text(EXPERIMENT.format(more=more))
    done = invoke(file, *options)
    assert done.exit_code == 0, done.output
    return done


@pytest.mark.long
def test_predictions_come_true_and_the_suggestion_runs(tmp_path: Path) -> None:
    found = json.loads(advised(tmp_path, "--json", "--by", "rounds", "--check", "20").stdout)
    costs = [forecast["rounds"] for forecast in found["forecasts"]]
    assert costs == sorted(costs)
    # A fit to the last half of a pilot, continued: within a third for methods whose error falls on a line.
    checked = [(Candidate(*check["forecast"]["candidate"]), check) for check in found["checks"]]
    exact = {tried.method: check for tried, check in checked if not tried.arguments and not tried.certified}
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


def test_seconds_follow_from_the_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of the clock's formula, whatever is sent."""
    half = dict.fromkeys(("downlink", "model_uplink", "model_downlink"), "cast('float16')")
    tried = [Candidate("fedlin", {}, ""), Candidate("fedlin", {"uplink": "innovation(cast('float16'))", **half}, "")]
    monkeypatch.setattr("fedlin.experiments.advise.candidates", lambda problem, participation: tried)
    options = ("--json", "--by", "seconds", "--check", "2", "--mbit", "0.008", "--latency", "5")  # 1000 bytes a second
    for overhead in (0, 4000):
        found = json.loads(advised(tmp_path, *options, "--overhead", str(overhead)).stdout)
        for one in (*found["forecasts"], *found["checks"]):
            sent = one["bytes"] / 5 + one["rounds"] * 4 * overhead  # by one of five clients, in four messages a round
            assert one["seconds"] == pytest.approx(one["rounds"] * 2 * 2 * 5 + sent / 1000)
        costs = [one["seconds"] for one in found["forecasts"]]
        assert costs == sorted(costs)


WELL = """
import jax.numpy as jnp
import numpy as np
import fedlin

def loss(params, batch):
    move = params["x"] - jnp.mean(batch["rows"], axis=0)
    return 1 - jnp.exp(-move @ move)

def well():
    rows = np.array([[[0.4, 0.1]], [[0.6, -0.1]], [[0.5, 0.0]]])
    return fedlin.problems.from_loss(loss, {"x": np.zeros(2)}, {"rows": rows}, smoothness=2.0)
"""


def test_a_loss_as_the_target_is_not_reached_where_gradients_are_small_and_models_useless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A well in a plain: a step that is far too long throws models onto the plain, where the gradient vanishes."""
    tried = [Candidate("gradient_descent", {}, "", tau=1), Candidate("fedlin", {}, "")]
    monkeypatch.setattr("fedlin.experiments.advise.candidates", lambda problem, participation: tried)
    (tmp_path / "well.py").write_text(WELL)
    well: Any = run_path(str(tmp_path / "well.py"))["well"]()
    ends = {}
    for measure, target in (("grad_norm", 1e-3), ("loss", 0.05)):
        file = tmp_path / f"{measure}.toml"
        head = f'rounds = 50\nmeasure = "{measure}"\ntargets = {target}\n[problem]\npython = "well.py:well"\n'
        file.write_text(f'{head}[plan]\ntau = 2\neta_bar = "tuned"\n[[algorithm]]\nname = "fedlin"\n')
        done = invoke(file, "--json", "--by", "rounds", "--check", "1")
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout)
        for one in found["forecasts"]:
            name = one["candidate"][0]
            plan = fedlin.Plan(1, one["step"]) if name == "gradient_descent" else fedlin.Plan.scaled(2, one["step"])
            run = fedlin.simulate(algorithm(name, {}), well, plan, int(one["rounds"]), measure_every=1)
            ends[measure, name] = run.loss[-1]
        assert found["checks"][0]["rounds"] == found["forecasts"][0]["rounds"]
    assert ends["grad_norm", "gradient_descent"] > 0.9
    assert max(ends["loss", name] for name in ("gradient_descent", "fedlin")) <= 0.05


def test_seconds_need_a_speed(tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").write_text(EXPERIMENT.format(more=""))
    done = invoke(tmp_path / "experiment.toml", "--by", "seconds")
    assert done.exit_code == 2
    assert "--mbit" in done.output


def test_missing_clients_and_mini_batches_get_methods_that_bear_them() -> None:
    exact = least_squares(clients=3, dim=10, samples=20)
    some = [one.label for one in candidates(exact, 0.5)]
    assert some[0] == "fedlin(uplink=innovation(identity()))"
    drawn = [one.label for one in candidates(minibatch(exact, 5), 1.0)]
    assert drawn[0] == "fedlin(same_batch=True)"
    assert {one.method for one in candidates(exact, 1.0)} >= {"gradient_descent", "fedlin", "compressed", "scaffnew"}


@pytest.mark.parametrize("share", [0.3, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("clients", [3, 5])
def test_every_candidate_is_allowed_the_run_it_is_for(share: float, clients: int) -> None:
    exact = least_squares(clients=clients, dim=10, samples=20)
    found = list(candidates(exact, share))
    for one in found:
        plan = fedlin.Plan(one.tau or 2, 0.01)
        method = algorithm(one.method, one.arguments)
        prepare_run(method, exact, plan, 3, seed=0, x0=None, participation=share, weights=None, stop=None)
    assert ("tamuna" in {one.method for one in found}) == (share < 1 and round(share * clients) > 1)
    assert ("marina" in {one.method for one in found}) == (share == 1)


def test_every_method_of_the_frontier_is_a_candidate_and_its_lines_can_be_read() -> None:
    """On clients that differ in smoothness, where GradSkip has something to skip."""
    problem = quadratic([scale * np.diag([1.0, 9.0]) for scale in (1.0, 1.0, 20.0)], np.ones((3, 2)))
    found = list(candidates(problem, 1.0))
    built = {algorithm(one.method, one.arguments) for share in (1.0, 0.7) for one in candidates(problem, share)}
    known = {method.recipe.build.__name__ for method in built if method.recipe is not None}
    shown = {
        variant.method.recipe.build.__name__
        for entrant in ENTRANTS.values()
        for variant in entrant.variants(problem).values()
        if variant.method.recipe is not None
    }
    # FedAvg rests on a floor, and `narrow` is how messages of other methods are rounded.
    assert shown - known == {"fedavg", "narrow"}
    assert known >= {"marina", "tamuna", "momentum", "fednl_pp", "fedlin_newton"}
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
