"""The contract of every public method, the rows of `method_rows` held to the checks of `contract`."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fedlin
from contract import SHORT, Check, Row, assert_ends, each_check, run
from fedlin.problems.problem import Problem
from method_rows import ROWS
from quadratics import CLIENTS, TAU, X0, A, Array, B, assert_close, problem


@each_check(ROWS)
def test_contract(check: Check, row: Row) -> None:
    check(row)


def test_every_public_method_has_a_row() -> None:
    assert {row.method for row in ROWS} == set(fedlin.algorithms.__all__)
    assert set(fedlin.algorithms.__all__) <= set(fedlin.__all__)


@pytest.mark.parametrize("method", fedlin.algorithms.__all__)
def test_a_factory_keeps_the_name_and_the_words_of_what_it_wraps(method: str) -> None:
    made = getattr(fedlin.algorithms, method)
    assert made.__name__ == method
    assert f"{method}(" in made.__doc__  # its doctest


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_a_share_of_the_clients_is_drawn_anew_every_round(method: str) -> None:
    """Half of seven is four; each of them sends, and over many rounds everyone is drawn."""
    row = next(row for row in ROWS if row.method == method)
    result, whole = run(row, 200, participation=0.5), run(row, 200)
    np.testing.assert_array_equal(result.bytes_up * CLIENTS, whole.bytes_up * 4)
    calls = np.diff(result.gradients)
    assert len(set(calls.tolist())) > 10  # τ_i all differ, so other cohorts take other numbers of steps
    assert np.mean(calls) == pytest.approx(4 * TAU.mean(), rel=0.05)


# Ways to choose clients around a method: what they do to it, one row each.


@dataclass(frozen=True)
class Choosing:
    way: str  # a public function of a method, a problem, a plan and a clock
    row: Row  # the method in it, and where that ends
    options: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.way}({self.row})"

    def run(self, rounds: int, order: Array | None = None, **rest: Any) -> fedlin.Result:
        """On the usual problem, its clients and their machines renumbered if told."""
        chosen = np.arange(CLIENTS) if order is None else order
        instance = fedlin.problems.quadratic(A[chosen], B[chosen])
        steps = self.row.plan(problem())
        eta = steps.eta[chosen] if steps.eta.ndim else steps.eta
        plan, clock = fedlin.Plan(steps.tau[chosen] if steps.tau.ndim else steps.tau, eta), fedlin.Clock(SPEED[chosen])
        given = {"seed": 1, "x0": X0, **self.options, **rest}
        result: fedlin.Result = getattr(fedlin, self.way)(self.row.algorithm(), instance, plan, clock, rounds, **given)
        return result


def in_stages(instance: Problem) -> fedlin.Plan:
    return fedlin.theory.flanp(instance, TAU)


SPEED = np.array([3.0, 50.0, 1.0, 20.0, 9.0, 70.0, 5.0])
CHOOSING = [
    Choosing("flanp", Row(fedlin.gradient_tracking, {}, "converges", in_stages), {"accuracy": 1.0}),
    Choosing("flanp", Row(fedlin.fedavg, {}, "stalls"), {"accuracy": 1.0, "first": 2}),
]
every_choice = pytest.mark.parametrize("choosing", CHOOSING, ids=str)


def test_every_way_to_choose_clients_has_a_row_and_steps_of_its_own() -> None:
    takes = ["algorithm", "problem", "plan", "clock"]
    public = {name: getattr(fedlin, name) for name in fedlin.__all__ if inspect.isfunction(getattr(fedlin, name))}
    ways = {name for name, thing in public.items() if list(inspect.signature(thing).parameters)[:4] == takes}
    assert ways == {choosing.way for choosing in CHOOSING}
    assert ways <= set(fedlin.theory.__all__)


@every_choice
def test_choosing_clients_does_not_change_where_a_method_ends(choosing: Choosing) -> None:
    assert_ends(choosing.row, choosing.run(choosing.row.rounds))


@every_choice
def test_a_seed_decides_who_is_chosen(choosing: Choosing) -> None:
    first, again = choosing.run(SHORT), choosing.run(SHORT)
    np.testing.assert_array_equal(first.iterates, again.iterates)
    np.testing.assert_array_equal(first.simulated, again.simulated)


@every_choice
def test_who_is_chosen_does_not_depend_on_the_order_of_the_clients(choosing: Choosing) -> None:
    renumbered = choosing.run(SHORT, np.array([3, 0, 6, 1, 5, 2, 4]))
    expected = choosing.run(SHORT)
    assert_close(renumbered.iterates, expected.iterates, 1e-12)
    np.testing.assert_array_equal(renumbered.bytes_up, expected.bytes_up)


@every_choice
def test_only_those_who_are_chosen_send(choosing: Choosing) -> None:
    """Bytes of a round are those one client sends, as often as there are clients: from `first` to all of them."""
    sent = np.diff(choosing.run(choosing.row.rounds).bytes_down)
    counts = fedlin.theory.staged.stages(CLIENTS, choosing.options.get("first", 1))
    sizes = fedlin.message_sizes(choosing.row.algorithm(), problem())
    each = {sum(m.down.total for m in part) for part in sizes}  # the first round of a stage may send more
    assert set(sent.tolist()) <= {count * size for count in counts for size in each}
    assert sent[0] in {counts[0] * size for size in each}
    assert sent[-1] == CLIENTS * sum(m.down.total for m in sizes.later)
