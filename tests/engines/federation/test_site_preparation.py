"""Tables of sites prepared over a transport: the features, the model and the bytes are those of one process."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

import fedlin
from fedlin import data
from fedlin.audit import AuditTrail
from fedlin.data import Preparation, RawTable, Recipe
from fedlin.data.preparation import PreparedColumn
from fedlin.engines.federation import Client, Policy, site_preparation, wire
from fedlin.engines.federation.limits import Limits
from fedlin.engines.federation.site_preparation import FILE, TableClient, prepare_sites
from fedlin.engines.federation.table_agreement import AGREED
from fedlin.engines.federation.wire import Header, Kind, ReplyHeader
from fedlin.errors import CheckpointError, FederationError
from fedlin.transports.loopback import Loopback
from hospital_table import hospital_rows

ROWS = hospital_rows()[:400]
COLUMNS = {name: np.array([row[name] for row in ROWS], object) for name in ROWS[0]}
OUTCOMES, SITES = COLUMNS.pop("outcome"), COLUMNS.pop("hospital").astype(str)
TABLE = RawTable(COLUMNS, OUTCOMES, SITES)
PART = data.by_column(SITES)
ALGORITHM = fedlin.fedlin()
PREPARATION = data.prepare(TABLE).preparation
OTHER = replace(PREPARATION, intercept=False)
PATIENCE = Policy.everyone(timeout=1.0, patience=0.2)


def site(rows: Any, folder: Path | None = None, recipe: Recipe | None = None) -> TableClient:
    """A site with these rows, whose problem is softmax regression."""
    table = TABLE.take(rows)

    def build(preparation: Preparation) -> Client:
        return Client(ALGORITHM, preparation.problem("softmax", [table], l2=0.01), weight=float(table.rows))

    return TableClient(table, build, recipe=recipe, folder=folder)


def sites(folder: Path | None = None) -> dict[str, TableClient]:
    return {
        name: site(rows, None if folder is None else folder / name)
        for name, rows in zip(PART.names, PART.indices, strict=True)
    }


def test_a_federation_prepares_and_learns_what_one_process_does() -> None:
    own = sites()
    transport = Loopback({name: client.handle for name, client in own.items()})
    made = prepare_sites(transport, Recipe(), expect=PART.names)
    pooled = data.prepare(TABLE)
    assert made.preparation == pooled.preparation
    assert made.preparation.classes == ("home", "rehabilitation", "transferred")
    problem = pooled.preparation.problem("softmax", [TABLE.take(rows) for rows in PART.indices], l2=0.01)
    assert made.dim == problem.dim
    # What travels is what one process counts, and the few bytes that frame every message.
    framed = 2 * len(PART.names) * 200
    assert pooled.bytes_up < made.bytes_up < pooled.bytes_up + framed
    assert pooled.bytes_down < made.bytes_down < pooled.bytes_down + framed + 300 * len(PART.names)
    plan = fedlin.Plan.scaled(2, 0.5 / problem.smoothness)
    served = fedlin.serve(ALGORITHM, transport, plan, 5, dim=made.dim, expect=list(PART.names))
    simulated = fedlin.simulate(ALGORITHM, problem, plan, 5)
    np.testing.assert_allclose(served.x, simulated.x, atol=1e-12)


def test_a_restarted_site_and_a_restarted_server_go_on_with_the_same_features(tmp_path: Path) -> None:
    own = sites(tmp_path)
    transport = Loopback({name: client.handle for name, client in own.items()})
    first = prepare_sites(transport, Recipe(), expect=PART.names, folder=tmp_path / "server")
    again = sites(tmp_path)
    assert all(client.client is not None for client in again.values()), "each has its problem from its own disk"
    assert (tmp_path / PART.names[0] / FILE).stat().st_mode & 0o077 == 0
    other = Loopback({name: client.handle for name, client in again.items()})
    second = prepare_sites(other, Recipe(scale="none"), expect=PART.names, folder=tmp_path / "server")
    assert second.preparation == first.preparation, "what was begun goes on"
    assert second.bytes_up < first.bytes_up


def test_rounds_before_preparing_are_refused_and_no_row_is_in_an_error() -> None:
    client = site(PART.indices[0])
    reply = client.handle("hello", wire.write_message(Header(Kind.HELLO, bytes(8)), wire.write_facts({})))
    header, rest = wire.read_message(reply)
    assert header.kind == Kind.REFUSED
    assert "not prepared yet" in wire.read_facts(wire.read_reply(rest)[1])["reason"]
    for body in (b"", b"{}x", b'{"columns": 3}'):
        reply = client.handle("prepare", wire.write_message(Header(Kind.PREPARE, bytes(8)), body))
        header, rest = wire.read_message(reply)
        assert header.kind == Kind.REFUSED
        assert "DataError" in wire.read_facts(wire.read_reply(rest)[1])["reason"]


def test_a_site_with_a_privacy_budget_tells_no_summary_and_writes_down_what_was_asked(tmp_path: Path) -> None:
    client = site(PART.indices[0])
    client.audit, client.limits = AuditTrail(tmp_path), Limits(epsilon=1.0)
    with pytest.raises(FederationError, match="first does not prepare its table: summaries are sent without noise"):
        prepare_sites(Loopback({"first": client.handle}), Recipe(), expect=["first"], policy=PATIENCE)
    (entry,) = client.audit.entries()
    assert (entry.facts["kind"], entry.facts["answer"]) == ("SUMMARISE", "REFUSED")


def test_a_site_that_is_not_there_or_differs_is_named() -> None:
    own = {name: client.handle for name, client in sites().items()}
    with pytest.raises(FederationError, match=r"no answer from absent within 0\.2 s: start these sites"):
        prepare_sites(Loopback(own), Recipe(), expect=[*PART.names, "absent"], policy=PATIENCE)

    def wide(preparation: Preparation) -> Client:
        return Client(ALGORITHM, fedlin.problems.least_squares(clients=1, dim=3, samples=5))

    odd = {**own, PART.names[0]: TableClient(TABLE.take(PART.indices[0]), wide).handle}
    with pytest.raises(FederationError, match=f"models of different sizes.*{PART.names[0]} 3"):
        prepare_sites(Loopback(odd), Recipe(), expect=PART.names, policy=PATIENCE)
    fewer = RawTable({"age": COLUMNS["age"]}, OUTCOMES, SITES)
    unlike = {**own, PART.names[0]: TableClient(fewer.take(PART.indices[0]), wide).handle}
    with pytest.raises(fedlin.FedLinError, match="is not at every client"):
        prepare_sites(Loopback(unlike), Recipe(), expect=PART.names, policy=PATIENCE)


def answering(own: dict[str, Any], change: Callable[[str, bytes, bytes], bytes]) -> Loopback:
    """The first site's answers are changed, by the phase and the message."""
    first = PART.names[0]
    return Loopback(
        {**own, first: lambda phase, payload: change(phase, payload, own[first](phase, payload))},
    )


def test_an_answer_that_was_damaged_on_the_way_is_asked_for_again() -> None:
    own, damaged = {name: client.handle for name, client in sites().items()}, list[str]()

    def once(phase: str, payload: bytes, reply: bytes) -> bytes:
        if phase in damaged:
            return reply
        damaged.append(phase)
        return reply[:-3]

    policy = Policy.everyone(timeout=1.0, patience=20.0, pause=0.0)
    made = prepare_sites(answering(own, once), Recipe(), expect=PART.names, policy=policy)
    assert made.preparation == data.prepare(TABLE).preparation
    assert damaged == ["summarise", "prepare"]
    never = answering(own, lambda phase, payload, reply: b"?")
    with pytest.raises(FederationError, match=f"{PART.names[0]} sent what is none: a message of 1 bytes is too short"):
        prepare_sites(never, Recipe(), expect=PART.names, policy=PATIENCE)


@pytest.mark.parametrize("dim", ["abc", [], 1e400, 0, -1, 2.5, True, None])
def test_who_says_that_its_model_is_of_no_size_is_named(dim: Any) -> None:
    own = {name: client.handle for name, client in sites().items()}

    def change(phase: str, payload: bytes, reply: bytes) -> bytes:
        return reply if phase == "summarise" else answer(Kind.PREPARED, payload, wire.write_facts({"dim": dim}))

    with pytest.raises(FederationError, match=f"{PART.names[0]} says that its model has"):
        prepare_sites(answering(own, change), Recipe(), expect=PART.names, policy=PATIENCE)


def test_whose_summary_cannot_be_read_is_named() -> None:
    own = {name: client.handle for name, client in sites().items()}

    def change(phase: str, payload: bytes, reply: bytes) -> bytes:
        return answer(Kind.SUMMARY, payload, b"[]x") if phase == "summarise" else reply

    with pytest.raises(FederationError, match=f"{PART.names[0]}: a client's summary of its columns cannot be read"):
        prepare_sites(answering(own, change), Recipe(), expect=PART.names, policy=PATIENCE)


def answer(kind: Kind, payload: bytes, body: bytes) -> bytes:
    return wire.write_reply(Header(kind, bytes(8)), ReplyHeader(wire.identify(payload), 0), body)


def ask(client: TableClient, request: Recipe | Preparation) -> str:
    """The kind of a site's answer, or why it refuses."""
    kind, body = (
        (Kind.SUMMARISE, json.dumps(asdict(request)).encode())
        if isinstance(request, Recipe)
        else (Kind.PREPARE, request.to_bytes())
    )
    header, rest = wire.read_message(client.handle("x", wire.write_message(Header(kind, bytes(8)), body)))
    body = bytes(wire.read_reply(rest)[1])
    return str(wire.read_facts(body)["reason"]) if header.kind == Kind.REFUSED else header.kind.name


def of_words(column: str) -> Preparation:
    """Of all columns, this one as words of its own."""
    return replace(PREPARATION, columns=(*PREPARATION.columns, PreparedColumn(column, "words", levels=("P0",))))


def test_a_site_tells_of_its_table_by_the_recipe_of_its_owner_alone() -> None:
    client = site(PART.indices[0], recipe=Recipe(drop=("patient",)))
    for other in (Recipe(), Recipe(drop=("patient",), scale="robust"), Recipe(drop=("patient",), most_words=51)):
        assert "in the recipe, and this site agrees to" in ask(client, other)
    assert ask(client, Recipe(scale="robust")) == (
        "drop is () in the recipe, and this site agrees to ('patient',), "
        "scale is 'robust' in the recipe, and this site agrees to 'standard': "
        "ask for that, or have the site's owner agree to another."
    )
    for _ in range(3):
        assert ask(client, Recipe(drop=("patient",))) == "SUMMARY"
    assert "the column 'patient', which the recipe that this site agrees to leaves" in ask(client, of_words("patient"))


def test_without_one_the_first_recipe_is_agreed_to_also_after_a_restart(tmp_path: Path) -> None:
    """Unless the table could not be summarised by it, as where a column is misspelt."""
    client = site(PART.indices[0], tmp_path)
    assert "DataError" in ask(client, Recipe(drop=("pateint",)))
    assert ask(client, Recipe(drop=("patient",))) == "SUMMARY"
    for again in (client, site(PART.indices[0], tmp_path)):
        assert f"have the site's owner remove {AGREED}" in ask(again, Recipe())
        assert "the column 'patient', which" in ask(again, of_words("patient"))
        assert ask(again, Recipe(drop=["patient"])) == "SUMMARY"  # type: ignore[arg-type] # as it is on its way
    (tmp_path / AGREED).unlink()
    assert ask(site(PART.indices[0], tmp_path), Recipe()) == "SUMMARY"
    (tmp_path / AGREED).write_text('{"recipe": {}}')
    with pytest.raises(CheckpointError, match=r"agreed\.json cannot be read"):
        site(PART.indices[0], tmp_path)


def test_a_site_of_secure_sums_tells_no_summary() -> None:
    client = site(PART.indices[0])
    client.limits = Limits(secure=True)
    assert "this site takes part in secure sums alone" in ask(client, Recipe())


def test_requests_about_a_table_are_counted_also_after_a_restart(tmp_path: Path) -> None:
    """Those that were made before are answered again, and count once."""
    for _ in range(2):
        client = site(PART.indices[0], tmp_path)
        client.limits = Limits(requests=2)
        for _ in range(3):
            assert ask(client, Recipe()) == "SUMMARY"
            assert ask(client, PREPARATION) == "PREPARED"
            assert ask(client, OTHER) == "requests = 3 is beyond this site's limit of 2."


@pytest.mark.parametrize("limits", [Limits(runs=("0011223344556677",)), Limits(epsilon=1.0)])
def test_a_preparation_takes_the_place_of_another_unless_limits_are_for_that_one(limits: Limits) -> None:
    client = site(PART.indices[0])
    assert [ask(client, made) for made in (OTHER, PREPARATION)] == ["PREPARED", "PREPARED"]
    built, client.limits = client.client, limits
    assert "the preparation is another one than this site has" in ask(client, OTHER)
    assert ask(client, PREPARATION) == "PREPARED"
    assert client.client is built, "the same problem, with what was spent of its limits"


def test_a_preparation_that_could_not_be_written_down_is_written_with_the_next_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = site(PART.indices[0], tmp_path)
    with monkeypatch.context() as full:
        full.setattr(site_preparation, "write_whole", MagicMock(side_effect=OSError(28, "full")))
        assert "No space left" in ask(client, PREPARATION)
    assert ask(client, PREPARATION) == "PREPARED"
    assert (tmp_path / FILE).read_bytes() == PREPARATION.to_bytes()
