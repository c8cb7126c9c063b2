"""What the playground draws is what the package computes, and what it says of theorems is what they say."""

import runpy
import socket
import sys
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fedlin
from compilation import compilations
from fedlin import theory
from fedlin.cli import app
from fedlin.playground import launch as serve
from fedlin.playground.sliders import CERTIFIED, Sliders
from fedlin.playground.study import figure, plot, study
from fedlin.playground.theorem import nearest

PROBLEM = fedlin.problems.least_squares(clients=10, dim=20, samples=200, alpha=10.0)
TAU = fedlin.draw_steps(10, 1, 20)
FEEDBACK, NOTHING = Sliders(down=25), Sliders(down=25, memory="nothing")
# What the theorems cover, with the plan of each from `fedlin.theory`.
COVERED = {
    "Theorem 1": (Sliders(), theory.strongly_convex(PROBLEM, TAU)),
    "Theorem 7": (NOTHING, theory.server_sparse(PROBLEM, TAU, 4.0)),
    "Theorem 8": (FEEDBACK, theory.server_feedback(PROBLEM, TAU, 4.0)),
    "Theorem 9": (Sliders(up=25), theory.client_feedback(PROBLEM, TAU, 4.0)),
}


@pytest.mark.parametrize("measure", ["gap", "distance"])
def test_the_curves_are_the_runs(measure: str) -> None:
    plan = theory.strongly_convex(PROBLEM, TAU)
    against_rounds, against_bytes = (study(Sliders(measure=measure, axis=axis)) for axis in ("rounds", "bytes"))
    for place, method in enumerate((fedlin.fedlin(), fedlin.fedavg())):
        run = fedlin.simulate(method, PROBLEM, plan, rounds=300)
        rounds, megabytes = (figure(found).panels[0].curves[place] for found in (against_rounds, against_bytes))
        for curve in (rounds, megabytes):
            np.testing.assert_array_equal(curve.y, getattr(run, measure))
        np.testing.assert_array_equal(rounds.x, np.arange(301))
        np.testing.assert_array_equal(megabytes.x, (run.bytes_up + run.bytes_down) / 1e6)


@pytest.mark.parametrize("name", COVERED)
def test_a_theorems_step_is_its_own_and_its_bound_holds(name: str) -> None:
    settings, plan = COVERED[name]
    found = study(settings)
    assert found.theorem.name == name
    np.testing.assert_allclose(found.eta_bar / TAU, plan.eta)
    run = found.runs["FedLin"]
    assert found.bound is not None
    assert len(found.bound) == len(run.gap) == 301
    assert (run.gap <= found.bound * (1 + 1e-9)).all()
    assert figure(found).panels[0].curves[-1].label == f"bound of {name}"
    assert f"what {name} guarantees" in found.explanation


@pytest.mark.parametrize("step", [0.25, 1.0])
@pytest.mark.parametrize("measure", ["gap", "distance"])
def test_theorem_9_covers_smaller_steps_and_both_measures(step: float, measure: str) -> None:
    found = study(Sliders(up=25, step=step, measure=measure))
    assert found.bound is not None
    assert (getattr(found.runs["FedLin"], measure) <= found.bound).all()


@pytest.mark.parametrize("measure", ["gap", "distance"])
def test_the_certified_step_stands_on_the_same_slider(measure: str) -> None:
    found = study(Sliders(step=CERTIFIED, measure=measure))
    np.testing.assert_allclose(found.eta_bar / TAU, fedlin.theory.certified(PROBLEM, TAU).eta)
    assert found.bound is not None
    curve = getattr(found.runs["FedLin"], measure)
    assert (curve <= found.bound * (1 + 1e-9) + 1e-28 * curve[0]).all()  # which rounding keeps it from falling below
    assert "the certified ones" in found.explanation
    assert "what the certified step guarantees" in found.explanation
    # With fewer entries a message it is a number like any other.
    assert not Sliders(step=CERTIFIED, up=50).certified


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (Sliders(step=2.0), "Theorem 1 asks for a step of 1 ×, and this is 2 ×"),
        (Sliders(step=0.5), "Theorem 1 asks for a step of 1 ×, and this is 0.5 ×"),
        (Sliders(up=50, step=2.0), "Theorem 9 asks for a step of at most 1 ×, and this is 2 ×"),
        (Sliders(measure="distance"), "Theorem 1 bounds f(x) - f*, not ‖x - x*‖²"),
        (replace(FEEDBACK, measure="distance"), "Theorem 8 bounds f(x) - f*, not ‖x - x*‖²"),
        (replace(FEEDBACK, messages="gradients and models"), "gradients alone, not models"),
        (replace(FEEDBACK, memory="last value sent"), "goes beyond the paper"),
        (Sliders(up=50, down=50), "no rate for fewer entries on both sides"),
        (Sliders(up=50, memory="nothing"), "clients that forget"),
    ],
)
def test_where_no_theorem_applies_the_page_says_why(settings: Sliders, why: str) -> None:
    assert why in nearest(PROBLEM, settings, TAU).why_not


def test_other_methods_send_everything_and_stand_beside_fedlins_bound() -> None:
    whole, fewer = (study(Sliders(method="SCAFFOLD", up=share)) for share in (100, 5))
    assert whole.runs["SCAFFOLD"].bytes[-1] == fewer.runs["SCAFFOLD"].bytes[-1]
    assert list(whole.runs) == ["SCAFFOLD", "FedLin", "FedAvg"]
    assert fewer.bound is not None
    assert (fewer.runs["FedLin"].gap <= fewer.bound * (1 + 1e-9)).all()


def test_each_slider_of_compression_saves_on_its_own_side() -> None:
    for settings, saved, kept in (
        (Sliders(up=25), "bytes_up", "bytes_down"),
        (FEEDBACK, "bytes_down", "bytes_up"),
    ):
        few, whole, _ = study(settings).runs.values()
        assert getattr(few, saved)[-1] < getattr(whole, saved)[-1]
        assert getattr(few, kept)[-1] == getattr(whole, kept)[-1]


def test_the_line_tells_what_the_run_came_to() -> None:
    run = study(Sliders()).runs["FedLin"]
    reached = int(np.argmax(run.gap <= 1e-8))
    assert run.gap[reached - 1] > 1e-8 >= run.gap[reached]
    told = study(Sliders()).summary
    assert told == (
        f"FedLin: f(x) - f* = {run.gap[-1]:.2g} after 300 rounds; 1e-8 reached in round {reached}; "
        f"{(run.bytes_up[-1] + run.bytes_down[-1]) / 1e6:.3g} MB sent."
    )
    assert "1e-8 not reached" in study(Sliders(method="FedAvg")).summary


@pytest.mark.parametrize("step", [64.0, 256.0])
def test_a_run_that_diverges_is_said_to_and_leaves_the_others_visible(step: float) -> None:
    found = study(Sliders(step=step))
    assert "diverged" in found.summary
    shown = np.concatenate([curve.y for curve in figure(found).panels[0].curves])
    assert np.nanmax(shown) <= 1e3 * found.runs["FedLin"].gap[0]


def test_sliders_without_a_shape_compile_nothing() -> None:
    study(Sliders())
    with compilations() as seen:
        found = study(Sliders(step=2.0, alpha=1.0, local_steps=5))
        plot(found)
    assert seen == []


def test_the_page_opens_with_the_defaults() -> None:
    page = pytest.importorskip("fedlin.playground.app", reason="marimo is not installed")
    outputs, names = page.app.run()
    assert names["controls"].value == asdict(Sliders())
    assert study(Sliders()).summary.split(";")[1] in outputs[-1].text


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines marimo would have got."""
    seen: list[list[str]] = []

    def note(name: str, **_: Any) -> None:
        seen.append(list(sys.argv))
        assert name == "marimo"

    monkeypatch.setattr(sys, "argv", ["fedlin"])
    monkeypatch.setattr(runpy, "run_module", note)
    monkeypatch.setattr(serve, "keep_compiled", lambda: None)
    return seen


def test_marimo_serves_this_machine_alone_and_asks_nothing(asked: list[list[str]]) -> None:
    pytest.importorskip("marimo")
    assert CliRunner().invoke(app, ["playground"]).exit_code == 0
    assert CliRunner().invoke(app, ["playground", "--no-browser", "--port", "27199"]).exit_code == 0
    opened, quiet = asked
    for line in asked:
        assert line[:3] == ["marimo", "--yes", "run"]
        assert line[line.index("--host") + 1] == "127.0.0.1"
        assert "--no-token" in line
    assert not {"--headless", "--port"} & set(opened)
    assert "--headless" in quiet
    assert quiet[quiet.index("--port") + 1] == "27199"


def test_without_marimo_the_command_says_what_to_install(
    asked: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "find_spec", lambda name: None)
    told = CliRunner().invoke(app, ["playground"])
    assert told.exit_code == 2
    assert told.stderr == (
        "fedlin: the playground needs marimo, which is not installed: pip install 'fedlin[playground]'.\n"
    )
    assert asked == []


def test_a_taken_port_is_told_before_anything_starts(asked: list[list[str]]) -> None:
    pytest.importorskip("marimo")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = CliRunner().invoke(app, ["playground", "--port", str(port)])
    assert told.exit_code == 2
    assert f"port {port} cannot be used" in told.stderr
    assert asked == []
