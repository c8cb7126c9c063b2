"""Torch modules for all clients at once: as one by one, with passes over rows, layers that draw, and normalisation."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlin
from fedlin import Checkpoint, Plan, simulate
from fedlin.errors import ArgumentError, DataError
from fedlin.transports.loopback import Loopback

torch = pytest.importorskip("torch")

import fedlin.torch  # noqa: E402
from fedlin.torch import TorchProblem  # noqa: E402

nn = torch.nn
CLIENTS = 4
DRAW = torch.Generator().manual_seed(0)


def images(lengths: tuple[int, ...] = (6, 9, 6, 4)) -> list[Any]:
    return [
        (
            torch.randn(n, 1, 8, 8, generator=DRAW, dtype=torch.float64),
            torch.randint(0, 3, (n,), generator=DRAW),
        )
        for n in lengths
    ]


ROWS = images()


def network(*more: Any) -> Any:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), *more, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)]
    return nn.Sequential(*layers).double()


def build(*more: Any, rows: Any = None, **options: Any) -> TorchProblem:
    return fedlin.torch.problem(network(*more), nn.functional.cross_entropy, rows or ROWS, **options)


PLAN = Plan([3, 1, 5, 2], 0.1)
METHODS = {"fedavg": fedlin.fedavg(), "fedlin": fedlin.fedlin(same_batch=True), "fedprox": fedlin.fedprox(0.3)}


@pytest.mark.parametrize(
    "options",
    [{}, {"batch_size": 3}, {"batch_size": 4, "replace": False}, {"batch_size": 3, "replace": False, "last": "drop"}],
    ids=["all rows", "drawn", "short", "drop"],
)
def test_all_clients_at_once_are_the_clients_one_by_one(options: Any) -> None:
    at_once, one_by_one = (build(together=together, **options) for together in (True, False))
    assert at_once.together
    assert not one_by_one.together
    for method in METHODS.values():
        ours, theirs = (simulate(method, f, PLAN, 3).iterates for f in (at_once, one_by_one))
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-13)


def test_a_pass_takes_every_row_once() -> None:
    """The rows are unit vectors and the loss of a row is -⟨row, x⟩, so that the model tells which were taken."""
    rows = [(torch.eye(10, dtype=torch.float64), torch.zeros(10)) for _ in range(2)]
    model = nn.Linear(10, 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(model.weight)

    def taken(size: int, steps: int, last: str = "short") -> Any:
        problem = fedlin.torch.problem(model, lambda o, t: -o.mean(), rows, size, replace=False, last=last)
        return np.round(simulate(fedlin.fedavg(), problem, Plan(steps, 1.0), 1, weights=[1, 0]).x * size, 9)

    np.testing.assert_array_equal(taken(5, 2), np.ones(10))
    np.testing.assert_array_equal(taken(5, 4), 2 * np.ones(10))
    assert sorted(taken(4, 3)) == [1] * 8 + [2] * 2
    assert sorted(taken(4, 2, "drop")) == [0] * 2 + [1] * 8
    drop = fedlin.torch.problem(model, lambda o, t: -o.mean(), rows, 4, replace=False, last="drop")
    assert fedlin.epochs(drop, 3).tolist() == [6, 6]


# Layers that draw.

DROPPING = build(nn.Dropout(0.5), batch_size=4, replace=False)


def test_dropout_draws_anew_with_every_seed_and_repeats_with_the_same() -> None:
    first, again, other = (simulate(fedlin.fedavg(), DROPPING, PLAN, 3, seed=seed).x for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
    plain = simulate(fedlin.fedavg(), build(batch_size=4, replace=False), PLAN, 3, seed=1).x
    assert not np.allclose(first, plain)


def test_a_run_leaves_the_callers_generator_alone() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    simulate(fedlin.fedavg(), DROPPING, PLAN, 2)
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_is_off_where_models_are_measured() -> None:
    quiet = build(nn.Dropout(0.5).eval())
    x = DROPPING.start + 0.1
    assert DROPPING.loss(x) == pytest.approx(quiet.loss(x), rel=1e-13)
    np.testing.assert_allclose(DROPPING.grad(x), quiet.grad(x), rtol=1e-11, atol=1e-14)


def test_a_run_with_dropout_resumes_bit_for_bit(tmp_path: Path) -> None:
    place = Checkpoint(tmp_path / "run.ckpt", every=2)
    whole = simulate(fedlin.scaffold(), DROPPING, PLAN, 5, seed=5)
    simulate(fedlin.scaffold(), DROPPING, PLAN, 4, seed=5, checkpoint=place)
    resumed = simulate(fedlin.scaffold(), DROPPING, PLAN, 5, seed=5, checkpoint=place)
    np.testing.assert_array_equal(resumed.iterates, whole.iterates)


def test_clients_one_by_one_drop_what_a_federation_does() -> None:
    problem = build(nn.Dropout(0.5), batch_size=4, together=False)
    method = fedlin.fedlin()
    sites = {f"site-{i}": fedlin.Client(method, problem.client(i)).handle for i in range(CLIENTS)}
    policy = fedlin.Policy.everyone(pause=0.0, patience=60.0)
    served = fedlin.serve(method, Loopback(sites), rounds=2, plan=PLAN, x0=problem.start, seed=4, policy=policy)
    np.testing.assert_allclose(served.x, simulate(method, problem, PLAN, 2, seed=4).x, rtol=1e-11)


def test_at_the_anchor_the_same_neurons_are_dropped() -> None:
    """With one step FedLin's batch gradients cancel: what is left is the mean of the gradients over all rows."""
    problem = build(nn.Dropout(0.5))
    anchored = simulate(fedlin.fedlin(same_batch=True), problem, Plan(1, 0.1), 1)
    keyed = simulate(fedlin.fedlin(same_batch=True), problem, Plan(1, 0.1), 1, seed=1)
    assert not np.allclose(anchored.x, keyed.x)  # the mean itself has been drawn
    twice = simulate(fedlin.fedlin(same_batch=True), problem, Plan(1, 0.2), 1)
    np.testing.assert_allclose(twice.x - problem.start, 2 * (anchored.x - problem.start), rtol=1e-10)


# What cannot be computed together.


class Choosing(nn.Module):  # type: ignore[misc,name-defined]
    """Looks at a number to decide what to do, which a batch of clients cannot."""

    def forward(self, x: Any) -> Any:
        return x if x.sum().item() > 0 else 2 * x


def test_a_module_that_cannot_be_batched_is_asked_client_by_client() -> None:
    problem = build(Choosing())
    assert not problem.together
    result = simulate(fedlin.fedavg(), problem, PLAN, 3, measure_every=3)
    assert result.loss[-1] < result.loss[0]


def test_rows_of_different_shapes_are_taken_client_by_client() -> None:
    rows = [(torch.randn(4, n, generator=DRAW), torch.randn(4, generator=DRAW)) for n in (3, 5)]

    class Mean(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(()))

        def forward(self, x: Any) -> Any:
            return self.weight * x.mean(1)

    problem = fedlin.torch.problem(Mean(), nn.functional.mse_loss, rows, 2)
    assert not problem.together
    assert simulate(fedlin.fedavg(), problem, Plan(2, 0.1), 2).status == "done"


def test_too_many_clients_for_the_device_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that fits two clients at a time gives what one that fits all does."""
    from fedlin.torch.module_gradients import ModuleSlopes

    plain = ModuleSlopes.__call__
    refused = []

    def narrow(self: Any, x: Any, rows: Any, seeds: Any = None) -> Any:
        if len(rows.targets) > 2:
            refused.append(len(rows.targets))
            raise torch.OutOfMemoryError
        return plain(self, x, rows, seeds)

    wide = simulate(fedlin.scaffold(), build(batch_size=3), PLAN, 2).iterates
    problem = build(batch_size=3)
    monkeypatch.setattr(ModuleSlopes, "__call__", narrow)
    np.testing.assert_allclose(simulate(fedlin.scaffold(), problem, PLAN, 2).iterates, wide, rtol=1e-11)
    assert refused == [4]


# Normalisation.


def test_group_norm_takes_the_place_of_batch_norm() -> None:
    model = network(nn.BatchNorm2d(4))
    with torch.no_grad():
        model[1].weight.mul_(3)
    changed: Any = fedlin.torch.with_group_norm(model, groups=2)
    assert isinstance(model[1], nn.BatchNorm2d)
    assert (changed[1].num_groups, changed[1].weight.dtype) == (2, torch.float64)
    assert torch.equal(changed[1].weight, model[1].weight)
    problem = fedlin.torch.problem(changed, nn.functional.cross_entropy, ROWS, 3)
    result = simulate(fedlin.fedlin(), problem, PLAN, 3, measure_every=3)
    assert result.loss[-1] < result.loss[0]
    changed.load_state_dict(problem.state_dict(result.x))


def test_frozen_statistics_stay_and_the_rest_is_learned() -> None:
    model = network(nn.BatchNorm2d(4))
    model(ROWS[0][0])  # gives it statistics
    frozen = fedlin.torch.with_frozen_batch_norm(model)
    problem = fedlin.torch.problem(frozen, nn.functional.cross_entropy, ROWS)
    state = problem.state_dict(simulate(fedlin.fedavg(), problem, PLAN, 2).x)
    assert torch.equal(state["1.running_mean"], model[1].running_mean)
    assert not torch.equal(state["1.weight"], model[1].weight)
    outputs = problem.module(problem.start)(ROWS[0][0])
    assert torch.equal(outputs, model.eval()(ROWS[0][0]))


BAD: dict[str, Callable[[], object]] = {
    "no module": lambda: fedlin.torch.with_group_norm("model"),  # type: ignore[arg-type]
    "no statistics": lambda: fedlin.torch.with_frozen_batch_norm(nn.BatchNorm2d(3, track_running_stats=False)),
    "no groups": lambda: fedlin.torch.with_group_norm(nn.BatchNorm2d(3), groups=0),
}


@pytest.mark.parametrize("name", BAD)
def test_mistakes_are_told(name: str) -> None:
    with pytest.raises(ArgumentError):
        BAD[name]()


# Metrics.


def test_metrics_are_those_of_the_module() -> None:
    """In evaluation mode, whatever the module drops while it trains, and over rows in blocks."""

    def accuracy(model: Any, batch: Any) -> Any:
        assert not model.training
        return (model(batch[0]).argmax(1) == batch[1]).double().mean()

    problem, test = DROPPING, ROWS[0]
    result = simulate(fedlin.fedavg(), problem, PLAN, 3, metrics={"accuracy": accuracy}, test=test, every=2)
    assert np.flatnonzero(~np.isnan(result.accuracy)).tolist() == [0, 2, 3]
    for t in (0, 2, 3):
        module = problem.module(result.iterates[t]).eval()
        inputs, targets = (torch.as_tensor(part) for part in test)
        assert result.accuracy[t] == (module(inputs).argmax(1) == targets).double().mean().item()
    assert result.training_loss.shape == (4,)
    assert np.all(np.isfinite(result.training_loss[1:]))
    with pytest.raises(DataError, match="the metric rows has shape"):
        simulate(fedlin.fedavg(), problem, PLAN, 3, metrics={"rows": lambda m, b: m(b[0])}, test=test)
