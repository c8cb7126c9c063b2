"""Simulated seconds: against hand computation, against a loop, and FLANP's stages under a clock."""

from typing import Any

import numpy as np
import pytest

import fedlin
from fedlin import Clock, Plan, Stop, cast, innovation, top_k
from fedlin.engines.simulation.run import Run, prepare_run
from fedlin.engines.timing.gradient_counts import gradient_calls, who_answers
from fedlin.errors import FedLinError
from fedlin.problems.problem import Problem
from quadratics import CLIENTS, ETA, TAU, Array, problem

ROUNDS = 6
PRESENT = np.random.default_rng(3).random((ROUNDS, CLIENTS)) < 0.6
PRESENT[:, 1] = True  # somebody answers in every round
RATES = {
    "speed": fedlin.draw_rates(CLIENTS, 50.0, seed=1),
    "up": fedlin.draw_rates(CLIENTS, 300.0, law="lognormal", spread=0.5, seed=2),
    "down": fedlin.draw_rates(CLIENTS, 900.0, law="lognormal", seed=3),
    "latency": np.linspace(0.0, 0.2, CLIENTS),
    "overhead": np.linspace(40.0, 0.0, CLIENTS),
}
CLOCK = Clock(**RATES)


def timed(
    algorithm: Any, instance: Problem | None = None, plan: Plan | None = None, clock: Clock = CLOCK, **options: Any
) -> fedlin.Result:
    instance = problem() if instance is None else instance
    plan = Plan(TAU, ETA) if plan is None else plan
    run = fedlin.simulate(algorithm, instance, plan, ROUNDS, **options)
    shares = {"participation": options["participation"]} if "participation" in options else {}
    return clock.time(run, algorithm, instance, plan, **shares)


def test_two_clients_by_hand() -> None:
    """FedLin, d = 2: 16 bytes each way in both phases; one gradient, then τ_i of them."""
    two = fedlin.problems.quadratic(np.array([np.eye(2), 2 * np.eye(2)]), np.ones((2, 2)))
    clock = Clock(speed=[10.0, 4.0], up=[8.0, 16.0], down=[16.0, 32.0], latency=[0.5, 0.0])
    # client 0: 1 + 1 + calls/10 + 2 seconds a phase; client 1: 0.5 + calls/4 + 1
    first = max(4 + 1 / 10, 1.5 + 1 / 4)
    second = max(4 + 2 / 10, 1.5 + 12 / 4)
    got = timed(fedlin.fedlin(), two, Plan([2, 12], 0.01), clock)
    np.testing.assert_allclose(got.simulated, (first + second) * np.arange(ROUNDS + 1), rtol=1e-14)
    assert second == 4.5  # the slow computer, not the slow line, decides this phase


METHODS = [
    fedlin.fedlin(),
    fedlin.fedlin(uplink=innovation(cast("float16", top_k(2)))),  # its first round sends more
    fedlin.scaffold(),
    fedlin.gradient_descent(),
    fedlin.fedprox(0.5),
]


def by_a_loop(algorithm: Any, present: Array) -> list[float]:
    """Seconds so far, client by client; the gradients of each come from a run in which it is alone."""
    sizes = fedlin.message_sizes(algorithm, problem())
    total = [0.0]
    for t in range(ROUNDS):
        messages = sizes.opening if t == 0 else sizes.later
        seconds = 0.0
        for number, size in enumerate(messages):
            waits = []
            for i in np.flatnonzero(present[t]):
                calls = expected_calls(algorithm.name, number, int(TAU[i]))
                down, up = (getattr(size, way).total + RATES["overhead"][i] for way in ("down", "up"))
                line = down / RATES["down"][i] + up / RATES["up"][i]
                waits.append(2 * RATES["latency"][i] + line + calls / RATES["speed"][i])
            seconds += max(waits)
        total.append(total[-1] + seconds)
    return total


def expected_calls(name: str, phase: int, tau: int) -> int:
    """One gradient, then τ_i, for FedLin; τ_i for the others; one for gradient descent."""
    if name.startswith("fedlin"):
        return 1 if phase == 0 else tau
    return 1 if name == "gradient_descent" else tau


@pytest.mark.parametrize("algorithm", METHODS, ids=lambda a: str(a.name))
@pytest.mark.parametrize("present", [np.ones_like(PRESENT), PRESENT], ids=["all", "some"])
def test_the_clock_is_a_loop_over_phases_and_clients(algorithm: Any, present: Array) -> None:
    got = timed(algorithm, participation=present)
    np.testing.assert_allclose(got.simulated, by_a_loop(algorithm, present), rtol=1e-12)
    assert np.all(np.diff(got.simulated) > 0)


def member(algorithm: Any, plan: Plan, participation: Any = 1.0, seed: int = 0) -> Run:
    return prepare_run(
        algorithm, problem(), plan, 40, seed=seed, x0=None, participation=participation, weights=None, stop=None
    )


@pytest.mark.parametrize(
    ("algorithm", "plan", "participation"),
    [
        (fedlin.scaffnew(), Plan(5, 0.01), 1.0),  # throws a coin for its number of steps
        (fedlin.fedlin(same_batch=True), Plan(TAU, ETA), 0.5),
        (fedlin.fedsplit(steps=3, start="model"), Plan(1, 0.01), 0.5),
        (fedlin.fedavg(), Plan(np.arange(1, 40 * CLIENTS + 1).reshape(40, CLIENTS) % 7 + 1, 1e-3), 0.5),
    ],
    ids=["coin", "anchor", "inner steps", "changing"],
)
def test_calls_are_those_of_the_run(algorithm: Any, plan: Plan, participation: float) -> None:
    """Counted without running, for every client: their sum is what the run counted, round by round."""
    run = fedlin.simulate(algorithm, problem(), plan, 40, seed=5, participation=participation)
    ready = member(algorithm, plan, participation, seed=5)
    opening, later = gradient_calls(ready, 40)
    calls = np.concatenate([opening.sum(axis=1), later.sum(axis=1)])
    np.testing.assert_array_equal((calls * who_answers(ready, 40)).sum(axis=1), np.diff(run.gradients))


def test_faster_machines_never_take_longer() -> None:
    """Twice the speed or bandwidth, or half the latency or overhead, of any one client."""
    for name, factor in (("speed", 2.0), ("up", 2.0), ("down", 2.0), ("latency", 0.5), ("overhead", 0.5)):
        for i in range(CLIENTS):
            better = {**RATES, name: np.where(np.arange(CLIENTS) == i, factor, 1.0) * RATES[name]}
            slow, fast = (timed(fedlin.fedlin(), clock=clock).simulated[-1] for clock in (CLOCK, Clock(**better)))
            assert fast <= slow
    twice = {name: 2 * RATES[name] for name in ("speed", "up", "down")}
    everything = Clock(**twice, latency=RATES["latency"] / 2, overhead=RATES["overhead"])
    assert timed(fedlin.fedlin(), clock=everything).simulated[-1] == pytest.approx(
        timed(fedlin.fedlin()).simulated[-1] / 2
    )


def test_a_result_keeps_its_simulated_seconds(tmp_path: Any) -> None:
    got = timed(fedlin.fedlin())
    assert got.plot(x="simulated").get_xlabel() == "simulated seconds"
    assert got.to_dataframe()["simulated"].tolist() == got.simulated.tolist()
    got.save(tmp_path / "run.npz")
    np.testing.assert_array_equal(fedlin.Result.load(tmp_path / "run.npz").simulated, got.simulated)


def test_a_clock_refuses_another_run() -> None:
    run = fedlin.simulate(fedlin.fedlin(), problem(), Plan(TAU, ETA), ROUNDS)
    with pytest.raises(FedLinError, match="another run"):
        CLOCK.time(run, fedlin.fedlin(), problem(), Plan(TAU + 1, ETA))
    with pytest.raises(FedLinError, match="another run"):
        CLOCK.time(run, fedlin.fedlin(), problem(), Plan(TAU, ETA), participation=0.5)


def test_drawn_rates_follow_their_law() -> None:
    """Seconds are exponential with mean 1/rate, so a share 1 - 1/e is below it; a lognormal rate has median `rate`."""
    seconds = 1 / fedlin.draw_rates(20000, 4.0, seed=1)
    assert seconds.mean() == pytest.approx(1 / 4, rel=0.03)
    assert np.mean(seconds < 1 / 4) == pytest.approx(1 - np.exp(-1), abs=0.02)
    rates = fedlin.draw_rates(20000, 4.0, law="lognormal", spread=0.5, seed=1)
    assert np.median(rates) == pytest.approx(4, rel=0.03)
    assert np.std(np.log(rates)) == pytest.approx(0.5, rel=0.03)


# FLANP.

M, D, SAMPLES, NOISE = 16, 10, 40, 1.0


def alike(seed: int) -> Problem:
    """Least squares whose clients all draw rows from one law, as FLANP's theory asks."""
    source = np.random.default_rng(seed)
    X = source.standard_normal((M, SAMPLES, D))
    y = X @ source.standard_normal(D) + NOISE * source.standard_normal((M, SAMPLES))
    return fedlin.problems.regression(X, y, reduction="mean")


@pytest.mark.parametrize("seed", range(3))
def test_flanp_takes_fewer_seconds_to_the_accuracy_of_all_data(seed: int) -> None:
    """With exponential speeds, against all clients from the start; and it goes on to x* itself."""
    instance = alike(seed)
    plan, clock = Plan(5, 0.2 / instance.smoothness), Clock(fedlin.draw_rates(M, 100.0, seed=seed))
    accuracy = D * NOISE**2 / SAMPLES  # of one client's data: E f(x_i) - f* ≈ d σ²/(2s)
    end = Stop(distance=1e-20)
    staged = fedlin.flanp(fedlin.fedlin(), instance, plan, clock, 2000, accuracy=accuracy, stop=end)
    run = fedlin.simulate(fedlin.fedlin(), instance, plan, 2000, stop=end)
    whole = clock.time(run, fedlin.fedlin(), instance, plan)
    assert staged.status == whole.status == "stopped"
    reached = [r.simulated[np.argmax(r.gap <= accuracy / M)] for r in (staged, whole)]
    assert reached[0] < 0.8 * reached[1]
    assert staged.distance[-1] <= 1e-20


def test_flanp_is_stages_of_the_fastest() -> None:
    """1, 2, 4, ... clients in the order of their speed, each stage until its own gradient is small enough."""
    instance, accuracy = alike(0), 0.25
    speed = fedlin.draw_rates(M, 100.0, seed=4)
    plan = Plan(5, 0.2 / instance.smoothness)
    run = fedlin.flanp(fedlin.fedlin(), instance, plan, Clock(speed), 300, accuracy=accuracy)
    sent = np.diff(run.bytes_up) // (2 * D * 8)  # clients that answered, two messages each
    assert np.all(np.diff(sent) >= 0)
    assert set(sent.tolist()) <= {1, 2, 4, 8, 16}
    assert sent[-1] == M
    order = np.argsort(-speed)
    for count in (2, 4, 8):
        last = int(np.flatnonzero(sent <= count)[-1]) + 1  # the model with which the next stage begins
        own = instance.weighted(np.isin(np.arange(M), order[:count]))
        norms = [float(own.measure(x)["grad_norm"]) ** 2 for x in (run.iterates[last - 1], run.iterates[last])]
        limit = 2 * instance.polyak_lojasiewicz * accuracy / count
        assert norms[1] <= limit
        assert norms[0] > limit or sent[last - 1] < count
    np.testing.assert_allclose(run.gap, [instance.gap(x) for x in run.iterates], rtol=1e-12)
    assert len(run.simulated) == run.rounds + 1 == 301
    first = int(np.sum(sent == 1))
    short = fedlin.flanp(fedlin.fedlin(), instance, plan, Clock(speed), first, accuracy=accuracy)
    assert (short.rounds, short.status) == (first, "done")  # the first stage's end is not the run's


@pytest.mark.parametrize("seed", range(3))
def test_flanp_takes_no_more_rounds_than_its_theory_says(seed: int) -> None:
    """Every stage begins within 6V/n of its own minimum, and is done within the rounds that `staged` allows it."""
    instance, accuracy = alike(seed), 0.5  # twice what one client's data err by in the mean: V is to bound it
    speed = fedlin.draw_rates(M, 100.0, seed=seed)
    order = np.argsort(-speed)
    plan, end = fedlin.theory.flanp(instance, 5), Stop(grad_norm=np.sqrt(2 * instance.strong_convexity * accuracy / M))
    run = fedlin.flanp(fedlin.gradient_tracking(), instance, plan, Clock(speed), 5000, accuracy=accuracy, stop=end)
    assert run.status == "stopped"
    counts = fedlin.theory.staged.stages(M)
    taken = {each * n: n for n in counts for each in (5, 6)}  # five steps each, one gradient more as a stage begins
    answered = np.array([taken[int(calls)] for calls in np.diff(run.gradients)])
    subsets = {n: instance.weighted(np.isin(np.arange(M), order[:n])) for n in counts}
    allowed = fedlin.theory.staged.rounds(instance, accuracy, subsets[1].gap(run.iterates[0]))
    begun = 0
    for (count, own), most in zip(subsets.items(), allowed, strict=True):
        took = int(np.sum(answered == count))
        assert took <= most
        if count > 1 and took:
            assert own.gap(run.iterates[begun]) <= 6 * accuracy / count
        begun += took
    assert begun == run.rounds


def test_flanp_from_everyone_is_the_method_itself() -> None:
    instance, plan, clock = problem(), Plan(TAU, ETA), CLOCK
    staged = fedlin.flanp(fedlin.fedlin(), instance, plan, clock, ROUNDS, accuracy=1.0, first=CLIENTS)
    plain = timed(fedlin.fedlin())
    np.testing.assert_allclose(staged.iterates, plain.iterates, rtol=1e-12)
    np.testing.assert_allclose(staged.simulated, plain.simulated, rtol=1e-12)
    np.testing.assert_array_equal(staged.bytes_up, plain.bytes_up)


def test_a_plan_that_changes_goes_on_where_the_last_stage_ended() -> None:
    instance = alike(1)
    tau = np.random.default_rng(0).integers(1, 6, (60, M))
    plan, clock = Plan.scaled(tau, 1.0 / instance.smoothness), Clock(fedlin.draw_rates(M, 100.0))
    run = fedlin.flanp(fedlin.fedlin(), instance, plan, clock, 60, accuracy=0.25, first=4)
    sent = np.diff(run.bytes_up) // (2 * D * 8)
    order = np.argsort((tau + 1).sum(axis=0) / clock.speed)
    expected = [np.sum(tau[t, order[: sent[t]]] + 1) for t in range(run.rounds)]
    np.testing.assert_array_equal(np.diff(run.gradients), expected)
