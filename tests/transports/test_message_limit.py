"""A message that is too long is dropped while it arrives, and its sender's other messages are not."""

from pathlib import Path

import pytest

from fedlin.transports.message_limit import LIMIT, PartCounter, read_limit, write_limit

TOO_LONG, TOO_MUCH = "it is longer than 1,000 bytes", "more than 2,000 bytes of its messages are under way"


def part(counter: PartCounter, length: int, message: str = "1", sender: str = "south", **says: int) -> str | None:
    declared, final = says.get("declared", 0), bool(says.get("final", False))
    return counter.check(sender, message, length, declared=declared, final=final, limit=1000)


@pytest.mark.parametrize("message", ["", "1"])
def test_what_a_message_says_of_its_length_is_believed_where_it_is_too_long(message: str) -> None:
    assert part(PartCounter(), 10, message, declared=1001) == TOO_LONG
    assert part(PartCounter(), 1001, message, declared=10) == TOO_LONG
    assert part(PartCounter(), 1000, message, declared=1000) is None


def test_parts_are_counted_whatever_they_say() -> None:
    """A message that was dropped stays dropped; the sender's other messages and other senders' go on."""
    counter = PartCounter()
    assert [part(counter, 400, declared=10) for _ in range(5)] == [None, None, TOO_LONG, TOO_LONG, TOO_LONG]
    assert part(counter, 1000, "2", final=1) is None
    assert part(counter, 1000, sender="north") is None
    assert part(counter, 1, final=1) == TOO_LONG
    assert part(counter, 400) is None  # a new message under a name that is over


def test_many_messages_at_once_have_two_whole_ones_room() -> None:
    counter = PartCounter()
    found = [part(counter, 900, str(number)) for number in range(4)]
    assert found == [None, None, TOO_MUCH, TOO_MUCH]
    assert part(counter, 50, "0", final=1) is None
    assert part(counter, 900, "5") is None


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


def test_a_message_under_way_is_not_forgotten_for_others_that_are_empty() -> None:
    """Else a sender could have as much again under way, and again."""
    counter, held = PartCounter(), 0
    for turn in range(4):
        held += 900 * (part(counter, 900, f"long {turn}") is None)
        for number in range(1001):
            part(counter, 0, f"empty {turn} {number}")
    assert held <= 2000
    assert part(counter, 0, "new") == "more than 1,000 of its messages are under way"
    assert part(counter, 10, "long 0", final=1) is None
    assert part(counter, 1000, "new", sender="north") is None


def test_the_limit_is_that_of_the_latest_run(tmp_path: Path) -> None:
    unknown = read_limit(tmp_path)
    write_limit(tmp_path, 8_000_000)
    assert 8_000_000 < read_limit(tmp_path) < unknown
    (tmp_path / LIMIT).write_text("damaged")
    assert read_limit(tmp_path) == unknown
