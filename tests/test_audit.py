"""A trail that was changed, shortened or added to shows it."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import fedlin
from fedlin import audit
from fedlin.audit import TRAIL, AuditTrail, verify
from fedlin.transports.loopback import Loopback
from quadratics import A, B

WRITE = """
import sys
from pathlib import Path
from fedlin.audit import AuditTrail

trail = AuditTrail(Path(sys.argv[1]))
for number in range(40):
    trail.record("asked", of=sys.argv[2], number_of_its_own=number)
"""


@pytest.fixture
def trail(tmp_path: Path) -> AuditTrail:
    made = AuditTrail(tmp_path)
    for number in range(6):
        made.record("asked", round=number, phase="gradient")
    return made


def problem(trail: AuditTrail) -> str:
    (verdict,) = verify({"north": trail})
    return verdict.problem or ""


def test_a_trail_that_is_left_alone_is_whole(trail: AuditTrail) -> None:
    assert [entry.facts["round"] for entry in trail.entries()] == list(range(6))
    assert problem(trail) == ""
    assert problem(AuditTrail(trail.folder)) == ""
    assert trail.path.stat().st_mode & 0o077 == 0


Lines = list[str]


def change(lines: Lines) -> Lines:
    return [line.replace('"round": 3', '"round": 4') for line in lines]


def remove(lines: Lines) -> Lines:
    return [*lines[:2], *lines[3:]]


def insert(lines: Lines) -> Lines:
    return [*lines[:3], lines[2], *lines[3:]]


def swap(lines: Lines) -> Lines:
    return [*lines[:2], lines[3], lines[2], *lines[4:]]


def begin_later(lines: Lines) -> Lines:
    return lines[1:]


def garble(lines: Lines) -> Lines:
    return [*lines[:4], "{", *lines[5:]]


@pytest.mark.parametrize("tamper", [change, remove, insert, swap, begin_later, garble])
def test_whoever_tampers_breaks_the_chain(trail: AuditTrail, tamper: Callable[[Lines], Lines]) -> None:
    lines = trail.path.read_text().splitlines()
    trail.path.write_text("\n".join(tamper(lines)) + "\n")
    assert "the chain breaks at line" in problem(trail)
    AuditTrail(trail.folder).record("more")  # going on does not hide it
    assert "the chain breaks at line" in problem(trail)


def test_lines_cut_off_at_the_end_are_missed_by_who_was_told_of_them(trail: AuditTrail, tmp_path: Path) -> None:
    server = AuditTrail(tmp_path / "server")
    server.record("trail", of="north", digest=trail.head())
    trails = {"north": trail, "server": server}
    assert [verdict.problem for verdict in verify(trails)] == [None, None]
    lines = trail.path.read_text().splitlines()
    trail.path.write_text("\n".join(lines[:-1]) + "\n")
    assert problem(trail) == ""  # which it cannot show alone
    assert [verdict.problem for verdict in verify(trails)] == ["lines are missing that server was told of.", None]
    trail.path.unlink()
    assert "lines are missing" in (verify(trails)[0].problem or "")


def test_several_processes_write_one_trail(tmp_path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITE, str(tmp_path), name]) for name in "abc"]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0]
    entries = list(AuditTrail(tmp_path).entries())
    assert len(entries) == 120
    for name in "abc":
        assert [e.facts["number_of_its_own"] for e in entries if e.facts["of"] == name] == list(range(40))


def test_a_long_trail_goes_on_in_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "_SIZE", 500)
    trail = AuditTrail(tmp_path)
    for number in range(30):
        trail.record("asked", round=number)
    assert len(list(tmp_path.glob("audit*.jsonl"))) > 3
    assert [entry.facts["round"] for entry in AuditTrail(tmp_path).entries()] == list(range(30))
    text = trail.path.read_text()
    trail.path.write_text("garbled\n" + text.partition("\n")[2])
    number = 30 - text.count("\n") + 1
    expected = (
        f"audit.jsonl is not what was written: the chain breaks at line {number} of the trail, which is line 1 of"
    )
    assert expected in problem(AuditTrail(tmp_path))
    first = min(tmp_path.glob("audit-*.jsonl"))
    first.unlink()
    assert "the chain breaks" in problem(AuditTrail(tmp_path))


def test_a_line_may_be_of_any_length(tmp_path: Path) -> None:
    """Many sites with many metrics make a long one; whoever opens the trail anew goes on after it."""
    for length in (10, 1 << 17, 10, 1 << 20):
        AuditTrail(tmp_path).record("evaluation", metrics="m" * length)
    AuditTrail(tmp_path).record("asked", round=1)
    assert problem(AuditTrail(tmp_path)) == ""
    assert [entry.number for entry in AuditTrail(tmp_path).entries()] == [1, 2, 3, 4, 5]


def test_no_fact_takes_the_place_of_what_the_chain_is_read_by(tmp_path: Path) -> None:
    """A metric may have any name."""
    trail = AuditTrail(tmp_path)
    for value in (0.5, 0.7):
        trail.record("metrics", round=1, number=value, before=value, time=value)
    assert problem(AuditTrail(tmp_path)) == ""
    assert [entry.facts["round"] for entry in trail.entries()] == [1, 1]


def test_a_line_cut_off_by_a_crash_stays_visible_and_what_follows_is_whole(trail: AuditTrail) -> None:
    with open(trail.path, "a") as file:
        file.write('{"number": 7, "ti')
    AuditTrail(trail.folder).record("more", round=9)
    assert json.loads(trail.path.read_text().splitlines()[-1])["round"] == 9
    assert "the chain breaks at line 7" in problem(trail)


def test_server_and_sites_write_down_what_was_asked_and_vouch_for_each_other(tmp_path: Path) -> None:
    """Who asked what of whom, in which round, and what was refused; a site that shortens its trail is found out."""
    quadratic = fedlin.problems.quadratic(A[:2], B[:2])
    trails = {name: AuditTrail(tmp_path / name) for name in ("server", "north", "south")}
    limits = {"north": fedlin.Limits(), "south": fedlin.Limits(tau=1)}
    clients = {
        name: fedlin.Client(fedlin.fedlin(), quadratic.client(i), audit=trails[name], limits=limits[name])
        for i, name in enumerate(("north", "south"))
    }
    carrier = Loopback({name: client.handle for name, client in clients.items()})

    def run(**options: object) -> fedlin.FederationResult:
        plan = fedlin.Plan(2, 0.01)
        dim = A.shape[-1]
        return fedlin.serve(fedlin.fedlin(), carrier, plan, 3, dim=dim, audit=trails["server"], **options)  # type: ignore[arg-type]

    with pytest.raises(fedlin.FedLinError, match="tau = 2"):
        run()
    clients["south"].limits = fedlin.Limits()
    run()
    assert [verdict.problem for verdict in verify(trails)] == [None, None, None]
    asked = [entry.facts for entry in trails["south"].entries() if entry.facts["event"] == "asked"]
    assert [(one["kind"], one["answer"]) for one in asked[:3]] == [
        ("HELLO", "REFUSED"),
        ("HELLO", "GREETING"),
        ("BEGIN", "BEGUN"),
    ]
    assert asked[0]["reason"] == "tau = 2 is beyond this site's limit of 1."
    tasks = [(one["round"], one["phase"]) for one in asked if one["kind"] == "TASK"]
    assert tasks == [(number, phase) for number in range(3) for phase in ("gradient", "model")]
    events = [entry.facts["event"] for entry in trails["server"].entries()]
    assert {"trail", "began", "round", "delivered"} <= set(events)
    assert events.count("round") == 3
    path = trails["north"].folder / TRAIL
    path.write_text(path.read_text().splitlines()[0] + "\n")
    assert "lines are missing that server was told of" in (verify(trails)[1].problem or "")
