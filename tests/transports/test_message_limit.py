"""A message that is too long is dropped while it arrives, and its sender's other messages are not."""

import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from fedlin.transports import message_limit
from fedlin.transports.message_limit import AGAIN, LIMIT, READ_TIMEOUT, Part, PartCounter, read_limit, write_limit

TOO_LONG, TOO_MUCH = "it is longer than 1,000 bytes", "more than 2,000 bytes of its messages are under way"


def part(counter: PartCounter, length: int, message: str = "1", sender: str = "south", **says: Any) -> str | None:
    return counter.check(sender, Part(length, message, **{"final": False, **says}), limit=1000)


@pytest.mark.parametrize("message", ["", "1"])
def test_what_a_message_says_of_its_length_is_believed_where_it_is_too_long(message: str) -> None:
    assert part(PartCounter(), 10, message, declared=1001) == TOO_LONG
    assert part(PartCounter(), 1001, message, declared=10) == TOO_LONG
    assert part(PartCounter(), 1000, message, declared=1000) is None


def test_parts_are_counted_whatever_they_say() -> None:
    """A message that was dropped stays dropped; the sender's other messages and other senders' go on."""
    counter = PartCounter()
    answers = [part(counter, 400, number=number, declared=10) for number in range(5)]
    assert answers == [None, None, TOO_LONG, TOO_LONG, TOO_LONG]
    assert part(counter, 1000, "2", final=True) is None
    assert part(counter, 1000, sender="north") is None
    assert part(counter, 1, number=5, final=True) == TOO_LONG
    assert [part(counter, 0, "empty", number=number) for number in range(20)].count(None) == 1 + 1000 // 64


def test_parts_come_in_any_order_and_again() -> None:
    """A message of three parts, in every order and each of them twice, a hundred messages: none is dropped."""
    counter, orders = PartCounter(), list(permutations(range(3)))
    for message in range(100):
        for number in orders[message % len(orders)]:
            says: dict[str, Any] = {"number": number, "final": number == 2}
            assert part(counter, 250, str(message), **says) is None
            assert part(counter, 250, str(message), **says) in (None, AGAIN)  # AGAIN once the message is whole
        assert part(counter, 250, str(message)) == AGAIN
    assert part(counter, 1000, "next") is None


def test_several_threads_count_the_parts_of_one_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    """As FLARE hands them over: none is lost and none stays behind, or honest messages would be dropped in the end."""
    monkeypatch.setattr(message_limit, "_BEGUN", 8)  # each of the threads may be late with a part
    monkeypatch.setattr(message_limit, "_FAST", 500)
    counter = PartCounter()
    parts = [(str(message), number) for message in range(400) for number in range(4)]

    def check(one: tuple[str, int]) -> str | None:
        message, number = one
        return counter.check("south", Part(200, message, number, number == 3), 10_000)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            assert set(threads.map(check, parts)) == {None}
    finally:
        sys.setswitchinterval(interval)
    assert part(counter, 1000, "next", final=True) is None
    assert not counter._open["south"]


def test_what_came_whole_is_not_let_on_again() -> None:
    """Else a sender could leave as many parts of it with the receiver as it likes."""
    counter = PartCounter()
    for message in range(50):
        assert part(counter, 500, str(message)) is None
        assert part(counter, 400, str(message), number=1, final=True) is None
    assert {part(counter, 500, str(message)) for message in range(50)} == {AGAIN}


def test_many_messages_at_once_have_two_whole_ones_room() -> None:
    counter = PartCounter()
    answers = [part(counter, 900, str(number)) for number in range(4)]
    assert answers == [None, None, TOO_MUCH, TOO_MUCH]
    assert part(counter, 30, "0", number=1, final=True) is None
    assert part(counter, 900, "5") is None


def begin(counter: PartCounter, names: Iterable[object]) -> int:
    """How many messages of so many a sender may begin, of which a byte comes and no more."""
    return [part(counter, 1, str(name), declared=2) for name in names].count(None)


def test_a_sender_can_have_few_messages_begun_and_not_ended() -> None:
    """A thread of the receiver waits for each, of which there are 64: others' messages would wait for one."""
    counter = PartCounter()
    assert begin(counter, range(200)) == 4
    assert part(counter, 1, "new") == "4 of its messages have begun and not ended"
    assert part(counter, 1, "short", final=True) is None  # which nobody waits for
    assert part(counter, 1, "other", sender="north") is None
    assert part(counter, 1, "0", number=1, final=True) is None
    assert begin(counter, ["next", "and another"]) == 1


def test_nor_by_beginning_them_with_a_later_part_or_keeping_them_from_being_given_up() -> None:
    now = [0.0]
    counter = PartCounter(lambda: now[0])
    assert [part(counter, 1, str(name), number=1) for name in range(10)] == [None] * 10  # nobody waits for these yet
    assert begin(counter, range(10)) == 4
    for number in range(2, 5):
        now[0] += READ_TIMEOUT - 1
        assert [part(counter, 0, str(name), number=number) for name in range(4)] == [None] * 4
        assert begin(counter, [f"new {number}"]) == 0


def test_who_loses_its_process_ever_again_can_go_on() -> None:
    """Three in a time in which the receiver gives up what none of them will end."""
    now = [0.0]
    counter = PartCounter(lambda: now[0])
    for loss in range(50):
        assert begin(counter, [loss]) == 1
        now[0] += 2 * READ_TIMEOUT / 3
        assert part(counter, 500, f"again {loss}") is None
        assert part(counter, 400, f"again {loss}", number=1, final=True) is None


def test_what_is_never_finished_is_given_up() -> None:
    now = [0.0]
    counter = PartCounter(lambda: now[0])
    assert [part(counter, 900, str(number)) for number in range(3)] == [None, None, TOO_MUCH]
    now[0] = 601.0
    assert part(counter, 900, "4") is None


def test_a_sender_cannot_fill_the_memory_with_names() -> None:
    counter = PartCounter()
    for number in range(3000):
        part(counter, 1001, str(number))
    assert sum(map(len, counter._open.values())) <= 1000


def test_a_message_under_way_is_not_forgotten_for_others_that_are_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a sender could have as much again under way, and again."""
    monkeypatch.setattr(message_limit, "_FAST", 10_000)
    counter, held = PartCounter(), 0
    for turn in range(4):
        held += 900 * (part(counter, 900, f"long {turn}") is None)
        for number in range(1001):
            part(counter, 0, f"empty {turn} {number}")
    assert held <= 2000
    assert part(counter, 0, "new") == "more than 1,000 of its messages are under way"
    assert part(counter, 10, "long 0", number=1, final=True) is None
    assert part(counter, 1000, "new", sender="north") is None


def test_a_sender_begins_so_many_messages_in_a_minute() -> None:
    """Each of them has a thread of its receiver wait for a minute, lest a part comes again."""
    now = [0.0]
    counter = PartCounter(lambda: now[0])

    def begun(names: range) -> int:
        return sum(part(counter, 10, str(name), final=True) is None for name in names)

    assert begun(range(1000)) == 300
    assert part(counter, 10, "long") == "300 of its messages have begun within a minute"
    assert part(counter, 10, "") is None  # one that is no stream
    assert part(counter, 10, "long", "north") is None
    now[0] = 61.0
    assert begun(range(1000, 2000)) == 300


def held(counter: PartCounter, parts: list[Part]) -> int:
    """The bytes that were let on of these parts."""
    return sum(part.length for part in parts if counter.check("south", part, limit=1000) is None)


def test_what_was_let_on_of_a_message_is_counted_when_the_rest_is_dropped() -> None:
    """Its receiver holds it still: else a sender could have 900 bytes held by each of any number of messages."""
    counter = PartCounter()
    parts = [
        Part(length, str(message), number, False) for message in range(50) for number, length in ((0, 900), (1, 200))
    ]
    assert held(counter, parts) <= 2000


@pytest.mark.parametrize(
    "parts",
    [
        [(5, 900, False), (0, 0, True)],  # parts beyond the end, which came before it
        [(5, 900, False), (1, 0, True)],
        [(0, 900, False), (0, 0, True)],  # an end in place of what is no end
        [(1, 900, False), (3, 0, True), (0, 0, True), (2, 0, True)],  # three ends
    ],
)
def test_parts_that_do_not_fit_together_are_no_whole_message(parts: list[tuple[int, int, bool]]) -> None:
    """Their receiver waits for others, and holds these: they take room as long as it does."""
    counter = PartCounter()
    every = [Part(length, str(name), number, final) for name in range(50) for number, length, final in parts]
    assert held(counter, every) <= 2000


def test_a_message_takes_the_room_that_it_says_it_needs() -> None:
    """Its receiver takes that memory with the first part, however little has come."""
    counter = PartCounter()
    answers = [part(counter, 1, str(number), declared=1000) for number in range(4)]
    assert answers == [None, None, TOO_MUCH, TOO_MUCH]
    assert part(counter, 999, "0", number=1, final=True, declared=1000) == TOO_LONG  # and 64 that are remembered
    assert part(counter, 10, "1", number=1, final=True, declared=1000) is None
    assert part(counter, 1, "5", declared=1000) is None


def test_parts_whose_beginning_never_comes_are_counted_for_longer() -> None:
    """Nobody reads them, so that their receiver does not give them up, as it does those of a message that has begun."""
    now = [0.0]
    counter = PartCounter(lambda: now[0])
    assert [part(counter, 900, str(number), number=1) for number in range(3)] == [None, None, TOO_MUCH]
    now[0] = 601.0
    assert part(counter, 900, "4") == TOO_MUCH
    now[0] = 86_401.0
    assert part(counter, 900, "5") is None


def test_a_part_costs_no_more_time_than_those_before_it() -> None:
    """Parts that are empty come cheap: what all of them hold is not added up again with each."""

    class Lengths(dict[int, int]):
        def values(self) -> Any:
            raise AssertionError("every part was looked at")

    counter = PartCounter()
    assert part(counter, 0) is None
    counter._open["south"]["1"].lengths = Lengths(counter._open["south"]["1"].lengths)
    assert part(counter, 0, number=1) is None


def test_the_limit_is_that_of_the_latest_run(tmp_path: Path) -> None:
    unknown = read_limit(tmp_path)
    write_limit(tmp_path, 8_000_000)
    assert 8_000_000 < read_limit(tmp_path) < unknown
    (tmp_path / LIMIT).write_text("damaged")
    assert read_limit(tmp_path) == unknown
