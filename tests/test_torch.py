"""PyTorch models as problems: the same numbers as our own problems, the same promises as every other problem."""

import gc
import random
import subprocess
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlin
from compilation import compilations
from fedlin import Checkpoint, Plan, problems, simulate, simulate_many
from fedlin.errors import ArgumentError, CheckpointError, DataError, FedLinError, UnknownError

torch = pytest.importorskip("torch")

from torch.utils.data import Dataset, TensorDataset  # noqa: E402

import fedlin.torch  # noqa: E402
from fedlin.torch import TorchProblem  # noqa: E402
from fedlin.torch.module_rows import ModuleBatches  # noqa: E402
from fedlin.torch.torch_work import Work  # noqa: E402

nn = torch.nn
M, D = 4, 3
LENGTHS = (5, 9, 2, 7)
TAU = np.array([1, 4, 2, 3])
PLAN = Plan(TAU, 0.2)
RANDOM = np.random.default_rng(0)
X = [RANDOM.standard_normal((n, D)) for n in LENGTHS]
Y = [np.where(RANDOM.random(n) < 0.5, -1.0, 1.0) for n in LENGTHS]
LOGISTIC = problems.logistic(X, Y, l2=0.1)


def logistic_loss(outputs: Any, targets: Any) -> Any:
    return nn.functional.softplus(-targets * outputs[:, 0]).mean()


def rows() -> list[Any]:
    return [(torch.tensor(x), torch.tensor(y)) for x, y in zip(X, Y, strict=True)]


def linear(dtype: Any = None) -> Any:
    """aᵀx, started from zero."""
    model = nn.Linear(D, 1, bias=False, dtype=dtype or torch.float64)
    nn.init.zeros_(model.weight)
    return model


def logistic(batch_size: int | None = None, dtype: Any = None) -> TorchProblem:
    return fedlin.torch.problem(linear(dtype), logistic_loss, rows(), batch_size, l2=0.1)


def network(seed: int = 0) -> Any:
    """Two layers that share one weight, a fixed bias, and a buffer of whole numbers."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, D), nn.Linear(D, 1)).double()
    model[2].weight = model[0].weight
    model[2].bias.requires_grad_(False)
    model.register_buffer("steps", torch.tensor([3]))
    return model


def square(outputs: Any, targets: Any) -> Any:
    return ((outputs[:, 0] - targets) ** 2).mean()


EXACT = logistic()
BATCHES = logistic(batch_size=2)
NETWORK = fedlin.torch.problem(network(), square, rows())


# The same numbers as problems of our own.


def test_loss_and_gradient_are_those_of_logistic_regression() -> None:
    x = np.arange(D) - 0.5
    assert EXACT.loss(x) == pytest.approx(LOGISTIC.loss(x), rel=1e-13)
    np.testing.assert_allclose(EXACT.grad(x), LOGISTIC.grad(x), rtol=1e-12)


@pytest.mark.parametrize(
    ("algorithm", "layout"),
    [
        (fedlin.fedlin(), "client"),
        (fedlin.fedlin(uplink=fedlin.top_k(2)), "auto"),
        (fedlin.fedprox(0.5), "step"),
        (fedlin.scaffold(), "auto"),
    ],
    ids=["fedlin", "compressed", "fedprox", "scaffold"],
)
def test_runs_are_those_of_logistic_regression(algorithm: Any, layout: str) -> None:
    ours = simulate(algorithm, EXACT, PLAN, 12, layout=layout)
    theirs = simulate(algorithm, LOGISTIC, PLAN, 12)
    np.testing.assert_allclose(ours.iterates, theirs.iterates, atol=1e-14)
    np.testing.assert_allclose(ours.loss, theirs.loss, rtol=1e-13)
    np.testing.assert_array_equal(ours.gradients, theirs.gradients)
    np.testing.assert_array_equal(ours.bytes, theirs.bytes)


def test_float32_stays_float32() -> None:
    small = logistic(dtype=torch.float32)
    result = simulate(fedlin.fedlin(), small, PLAN, 12)
    assert result.x.dtype == small.dtype == np.float32
    assert small.state_dict(result.x)["weight"].dtype == torch.float32
    np.testing.assert_allclose(result.x, simulate(fedlin.fedlin(), EXACT, PLAN, 12).x, rtol=1e-5)


def test_local_work_in_one_call_is_the_loop_over_gradients() -> None:
    looped = fedlin.torch.problem(network(), square, rows())
    looped.objective = replace(looped.objective, descend=None)
    for algorithm in (fedlin.fedlin(), fedlin.fedprox(2.0)):
        one, many = (simulate(algorithm, f, Plan(TAU, 0.05), 5).iterates for f in (NETWORK, looped))
        np.testing.assert_allclose(one, many, rtol=1e-12)


def test_noise_of_ours_goes_around_a_torch_problem() -> None:
    ours = simulate(fedlin.fedavg(), problems.noisy(EXACT, 0.01), PLAN, 5, seed=3)
    theirs = simulate(fedlin.fedavg(), problems.noisy(LOGISTIC, 0.01), PLAN, 5, seed=3)
    np.testing.assert_allclose(ours.x, theirs.x, rtol=1e-11)


@pytest.mark.parametrize("participation", [0.5, np.array([[1, 0, 1, 0], [0, 1, 1, 1]] * 4)], ids=["drawn", "given"])
def test_partial_participation(participation: Any) -> None:
    ours, theirs = (
        simulate(fedlin.fedlin(), f, PLAN, 8, seed=1, participation=participation) for f in (EXACT, LOGISTIC)
    )
    np.testing.assert_allclose(ours.x, theirs.x, rtol=1e-11)


def test_weights_of_clients() -> None:
    ours, theirs = (simulate(fedlin.fedlin(), f, PLAN, 5, weights=LENGTHS) for f in (EXACT, LOGISTIC))
    np.testing.assert_allclose(ours.x, theirs.x, rtol=1e-11)


@pytest.mark.parametrize("problem", [EXACT, BATCHES], ids=["exact", "batches"])
def test_members_of_a_batch_are_the_single_runs(problem: TorchProblem) -> None:
    plans = [Plan(TAU, eta) for eta in (0.05, 0.1, 0.2)]
    together = simulate_many(fedlin.fedlin(), problem, plans, 6, seeds=[0, 1, 2])
    for seed, (plan, result) in enumerate(zip(plans, together, strict=True)):
        np.testing.assert_allclose(result.x, simulate(fedlin.fedlin(), problem, plan, 6, seed=seed).x, rtol=1e-12)


# Mini-batches.


def by_hand(key: Any, client: int, x: Any, steps: int, eta: float) -> Any:
    """Local steps over two rows drawn each, in NumPy."""
    for picked in ModuleBatches(2).draw(key, LENGTHS[client], steps):
        a, y = X[client][picked], Y[client][picked]
        x = x - eta * (-(y / (1 + np.exp(y * (a @ x)))) @ a / len(y) + 0.1 * x)
    return x


def test_local_steps_take_the_rows_their_key_draws() -> None:
    keys = torch.tensor([[7, 11], [8, 1], [9, 2], [10, 3]])
    zero, none = torch.zeros(1, D, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)
    work = Work(zero, none, none, zero, torch.tensor([5, 1, 0, 7]), none + 0.3)
    found, _ = BATCHES._host.descend(torch.arange(M), keys, work)
    for client, steps in enumerate((5, 1, 0, 7)):
        expected = by_hand(keys[client].tolist(), client, np.zeros(D), steps, 0.3)
        np.testing.assert_allclose(found[client], expected, rtol=1e-12)


def test_draws_are_uniform_and_a_function_of_key_and_step() -> None:
    draws = ModuleBatches(40).draw([1, 2], 5, 500)
    np.testing.assert_array_equal(draws[:4], ModuleBatches(40).draw([1, 2], 5, 4))
    assert len({tuple(d) for d in draws}) == 500
    np.testing.assert_allclose(np.bincount(np.ravel(draws)) / 20000, 0.2, atol=0.01)


def test_estimates_are_unbiased() -> None:
    x, client = torch.ones(1, D, dtype=torch.float64), torch.tensor([1])
    keys = torch.from_numpy(np.random.default_rng(0).integers(0, 2**32, (4000, 2)))
    mean = BATCHES._host.estimate(client, x, keys, torch.zeros(1, dtype=torch.int32)).grads.mean(0)
    np.testing.assert_allclose(mean, EXACT._host.exact(client, x).grads[0], atol=0.02)


def test_same_batch_reaches_the_minimiser_and_plain_batches_do_not() -> None:
    plan = Plan(8, 0.2)
    anchored, plain = (
        simulate(fedlin.fedlin(same_batch=same), BATCHES, plan, 60, iterates=False, measure_every=60).grad_norm[-1]
        for same in (True, False)
    )
    assert anchored < 1e-8 < 1e-3 < plain


def test_mini_batches_repeat_with_the_seed_alone() -> None:
    first, again, other = (simulate(fedlin.fedavg(), BATCHES, PLAN, 6, seed=seed).x for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
    # Another layout is another program, in which some processors round a last bit otherwise.
    by_client = simulate(fedlin.fedavg(), BATCHES, PLAN, 6, seed=1, layout="client").x
    np.testing.assert_allclose(by_client, first, rtol=1e-12)


# Checkpoints.


@pytest.mark.parametrize("problem", [NETWORK, BATCHES], ids=["exact", "batches"])
def test_a_resumed_run_is_the_whole_run_bit_for_bit(problem: TorchProblem, tmp_path: Path) -> None:
    plan, place = Plan(TAU, 0.05), Checkpoint(tmp_path / "run.ckpt", every=3)
    whole = simulate(fedlin.scaffold(), problem, plan, 10, seed=5)
    simulate(fedlin.scaffold(), problem, plan, 6, seed=5, checkpoint=place)
    resumed = simulate(fedlin.scaffold(), problem, plan, 10, seed=5, checkpoint=place)
    np.testing.assert_array_equal(resumed.iterates, whole.iterates)
    np.testing.assert_array_equal(resumed.columns.get("loss", 0), whole.columns.get("loss", 0))


OTHERS: dict[str, Callable[[], TorchProblem]] = {
    "loss": lambda: fedlin.torch.problem(network(), lambda o, t: (o[:, 0] - t).abs().mean(), rows()),
    "rows": lambda: fedlin.torch.problem(network(), square, [*rows()[:3], rows()[0]]),
    "layer": lambda: fedlin.torch.problem(_with(network(), "1", nn.ReLU()), square, rows()),
    "fixed value": lambda: fedlin.torch.problem(_with(network(), "steps", torch.tensor([4])), square, rows()),
    "l2": lambda: fedlin.torch.problem(network(), square, rows(), l2=0.5),
    "batch size": lambda: fedlin.torch.problem(network(), square, rows(), 2),
}


def _with(model: Any, name: str, value: Any) -> Any:
    setattr(model, name, value)
    return model


@pytest.mark.parametrize("other", OTHERS)
def test_a_checkpoint_of_another_model_is_refused(other: str, tmp_path: Path) -> None:
    plan, path = Plan(TAU, 0.05), tmp_path / "run.ckpt"
    simulate(fedlin.fedavg(), NETWORK, plan, 2, checkpoint=path)
    with pytest.raises(CheckpointError, match="another problem"):
        simulate(fedlin.fedavg(), OTHERS[other](), plan, 4, x0=NETWORK.start, checkpoint=path)
    rebuilt = fedlin.torch.problem(network(), square, rows())
    simulate(fedlin.fedavg(), rebuilt, plan, 4, checkpoint=path)


# Models.


def test_a_flat_model_and_a_state_dict_are_each_others_inverse() -> None:
    x = np.random.default_rng(1).standard_normal(NETWORK.dim)
    state = NETWORK.state_dict(x)
    np.testing.assert_array_equal(NETWORK.flatten(state), x)
    model = network(seed=9)
    model.load_state_dict(state)
    losses = [square(model(a), b).item() for a, b in rows()]
    assert NETWORK.loss(x) == pytest.approx(np.mean(losses), rel=1e-13)


def test_a_shared_weight_counts_once_and_what_is_fixed_stays() -> None:
    assert NETWORK.dim == D * D + D + D + 1
    x = simulate(fedlin.fedlin(), NETWORK, Plan(TAU, 0.05), 5).x
    state, first = NETWORK.state_dict(x), network()
    assert torch.equal(state["0.weight"], state["2.weight"])
    assert torch.equal(state["2.bias"], first[2].bias)
    assert torch.equal(state["steps"], torch.tensor([3]))
    assert not torch.equal(state["0.weight"], first[0].weight)


def test_the_users_model_is_left_alone_and_may_change() -> None:
    model = linear()
    problem = fedlin.torch.problem(model, logistic_loss, rows(), l2=0.1)
    simulate(fedlin.fedlin(), problem, PLAN, 2)
    assert model.weight.grad is None
    assert torch.equal(model.weight, torch.zeros(1, D, dtype=torch.float64))
    with torch.no_grad():
        model.weight.fill_(7.0)
    np.testing.assert_array_equal(problem.start, 0)
    assert problem.loss(np.zeros(D)) == pytest.approx(np.log(2))


def test_a_dataset_is_the_pair_it_holds() -> None:
    class Own(Dataset[Any]):
        def __init__(self, client: int) -> None:
            self.client = client

        def __len__(self) -> int:
            return LENGTHS[self.client]

        def __getitem__(self, row: int) -> Any:
            return X[self.client][row], Y[self.client][row]

    wrapped = [TensorDataset(*rows()[0]), *(Own(i) for i in range(1, M))]
    problem = fedlin.torch.problem(linear(), logistic_loss, wrapped, l2=0.1)
    np.testing.assert_array_equal(problem.grad(np.ones(D)), EXACT.grad(np.ones(D)))


def test_gradients_are_taken_whatever_the_callers_mode() -> None:
    model, data, expected = linear(), rows(), EXACT.grad(np.ones(D))
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            problem = fedlin.torch.problem(model, logistic_loss, data, l2=0.1)
            np.testing.assert_array_equal(problem.grad(np.ones(D)), expected)


def test_evaluation_mode_makes_batch_norm_and_dropout_plain_functions() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(D, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1)).double().eval()
    problem = fedlin.torch.problem(model, square, rows(), 2)
    result = simulate(fedlin.fedlin(same_batch=True), problem, Plan(TAU, 0.05), 5, measure_every=5)
    assert result.loss[-1] < result.loss[0]
    state = problem.state_dict(result.x)
    assert torch.equal(state["1.running_mean"], model[1].running_mean)
    assert torch.equal(state["1.num_batches_tracked"], torch.tensor(0))


def test_rows_are_freed_with_their_problem() -> None:
    problem = logistic()
    simulate(fedlin.fedavg(), problem, PLAN, 1)
    host = weakref.ref(problem._host)
    del problem
    gc.collect()
    assert host() is None


def test_a_second_run_compiles_nothing() -> None:
    simulate(fedlin.fedlin(), EXACT, PLAN, 3)
    with compilations() as seen:
        simulate(fedlin.fedlin(), EXACT, Plan(TAU, 0.1), 4, seed=8)
    assert seen == []


@pytest.mark.slow
def test_large_models_on_one_core_do_not_wait_for_themselves() -> None:
    """Calls hand over more than JAX copies at once, while torch runs with its default threads."""
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "import torch, fedlin, fedlin.torch\n"
        "rows = [(torch.randn(4, 500), torch.randn(4, 400)) for _ in range(8)]\n"
        "problem = fedlin.torch.problem(torch.nn.Linear(500, 400), torch.nn.functional.mse_loss, rows)\n"
        "print(fedlin.simulate(fedlin.fedlin(), problem, fedlin.Plan(2, 0.1), 10).status)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout.strip() == "done", done.stderr


# Mistakes.

NOTHING: Any = "model"
TRAINED = nn.Sequential(nn.Linear(D, 2), nn.BatchNorm1d(2), nn.Linear(2, 1)).double()


class Counting(nn.Module):  # type: ignore[misc,name-defined]
    """Counts its forward passes, or adds noise of a generator of its own to them."""

    def __init__(self, noisy: bool) -> None:
        super().__init__()
        self.inner, self.noisy = linear(), noisy
        self.source = random.Random(0)
        self.register_buffer("passes", torch.tensor(0))

    def forward(self, inputs: Any) -> Any:
        if self.noisy:
            return self.inner(inputs) + self.source.random()
        self.passes += 1
        return self.inner(inputs)


BAD: dict[str, tuple[Callable[[], object], type[FedLinError], str]] = {
    "no module": (lambda: fedlin.torch.problem(NOTHING, square, rows()), ArgumentError, "torch.nn.Module"),
    "nothing to learn": (
        lambda: fedlin.torch.problem(linear().requires_grad_(False), square, rows()),
        ArgumentError,
        "nothing to learn",
    ),
    "mixed precisions": (
        lambda: fedlin.torch.problem(nn.Sequential(linear(), nn.Linear(1, 1)), square, rows()),
        ArgumentError,
        "float32, float64",
    ),
    "half precision": (
        lambda: fedlin.torch.problem(linear(torch.float16), square, rows()),
        ArgumentError,
        "float16",
    ),
    "no shape yet": (
        lambda: fedlin.torch.problem(nn.LazyLinear(1), square, rows()),
        ArgumentError,
        "no shape yet",
    ),
    "batch norm": (
        lambda: fedlin.torch.problem(TRAINED, square, rows()),
        ArgumentError,
        "1 is BatchNorm1d.*with_group_norm",
    ),
    "changing buffer": (
        lambda: fedlin.torch.problem(Counting(noisy=False), square, rows()),
        ArgumentError,
        "buffer passes",
    ),
    "random forward": (
        lambda: fedlin.torch.problem(Counting(noisy=True), square, rows()),
        ArgumentError,
        "asked again with the same seed.*default generator",
    ),
    "short client": (
        lambda: fedlin.torch.problem(linear(), square, rows(), 4, replace=False, last="drop"),
        DataError,
        "client 2 has 2 rows and batch_size = 4",
    ),
    "replace": (lambda: fedlin.torch.problem(linear(), square, rows(), 2, replace="no"), ArgumentError, "replace"),  # type: ignore[arg-type]
    "last": (lambda: fedlin.torch.problem(linear(), square, rows(), 2, last="half"), ArgumentError, "last = 'half'"),
    "precision": (lambda: fedlin.torch.problem(linear(), square, rows(), precision="low"), ArgumentError, "precision"),
    "no clients": (lambda: fedlin.torch.problem(linear(), square, []), DataError, "at least one"),
    "one dataset": (lambda: fedlin.torch.problem(linear(), square, rows()[0][0]), DataError, "one torch Dataset"),
    "no pair": (lambda: fedlin.torch.problem(linear(), square, [(1, 2, 3)]), DataError, "client 0 is tuple"),
    "no rows": (
        lambda: fedlin.torch.problem(linear(), square, [*rows(), (torch.empty(0, D), torch.empty(0))]),
        DataError,
        "client 4 has no rows",
    ),
    "uneven pair": (
        lambda: fedlin.torch.problem(linear(), square, [(torch.ones(3, D), torch.ones(2))]),
        DataError,
        "client 0 has inputs",
    ),
    "missing value": (
        lambda: fedlin.torch.problem(linear(), square, [(torch.full((2, D), torch.nan), torch.ones(2))]),
        DataError,
        "client 0's inputs have entries that are NaN",
    ),
    "wrong width": (
        lambda: fedlin.torch.problem(linear(), square, [*rows(), (torch.ones(2, D + 1), torch.ones(2))]),
        DataError,
        r"client 4's rows, inputs \(2, 4\)",
    ),
    "loss per row": (
        lambda: fedlin.torch.problem(linear(), lambda o, t: (o[:, 0] - t) ** 2, rows()),
        DataError,
        r"shape \(5,\)",
    ),
    "infinite loss": (
        lambda: fedlin.torch.problem(linear(), lambda o, t: square(o, t) / 0, rows()),
        DataError,
        "inf at the model's own",
    ),
    "sum with batches": (
        lambda: fedlin.torch.problem(linear(), lambda o, t: ((o[:, 0] - t) ** 2).sum(), rows(), 2),
        DataError,
        "mean over rows",
    ),
    "batch size": (lambda: fedlin.torch.problem(linear(), square, rows(), 0), ArgumentError, "batch_size = 0"),
    "regularisation": (lambda: fedlin.torch.problem(linear(), square, rows(), l2=-1.0), ArgumentError, "l2 = -1"),
    "minibatch around it": (lambda: problems.minibatch(EXACT, 2), UnknownError, "batch_size="),
    "smoothness": (lambda: EXACT.smoothness, UnknownError, "give step sizes yourself"),
    "another state dict": (lambda: NETWORK.flatten(linear().state_dict()), DataError, "do not share"),
    "fixed entry": (
        lambda: NETWORK.flatten({**NETWORK.state_dict(NETWORK.start), "steps": torch.tensor([8])}),
        DataError,
        "steps cannot differ",
    ),
    "torn weights": (
        lambda: NETWORK.flatten({**NETWORK.state_dict(NETWORK.start), "0.weight": torch.ones(D, D)}),
        DataError,
        "weight cannot differ",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_mistakes_are_told_before_any_work(name: str) -> None:
    call, error, words = BAD[name]
    with compilations() as seen, pytest.raises(error, match=words):
        call()
    assert seen == []


def test_an_epoch_is_as_many_batches_as_rows_fill() -> None:
    assert fedlin.epochs(logistic(batch_size=4), 2).tolist() == [3, 5, 1, 4]
