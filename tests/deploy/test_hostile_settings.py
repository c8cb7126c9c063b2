"""Settings travel with a job to every site, so that whoever sends one may write what it likes in them."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from fedlin.data import Recipe
from fedlin.deploy.flare.programs import make_client
from fedlin.deploy.settings import NAME, parse_settings
from fedlin.engines.federation import wire
from fedlin.engines.federation.wire import Header, Kind
from fedlin.errors import DeployError
from loopback_federation import Federation

CODE = (
    "from pathlib import Path\nPath({mark!r}).touch()\n\ndef make():\n    import fedlin\n    return fedlin.fedlin()\n"
)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A file that came with a job, as any file may; `mark` beside it is there once the file was run."""
    path = tmp_path / "made.py"
    path.write_text(CODE.format(mark=str(tmp_path / "mark")))
    return path


def test_settings_that_name_code_are_refused_and_nothing_is_run(code: Path) -> None:
    """An experiment file may name a function of one's own; a job that did would run code at every site."""
    site = {"tau": 1, "eta": 0.1}
    tables = {"run": {"rounds": 1, "dim": 3}, "algorithm": {"name": f"{code}:make"}, "sites": {"a": site}}
    with pytest.raises(DeployError, match="the settings of a federation name no code"):
        parse_settings(tables)
    assert not (code.parent / "mark").exists()


def test_a_site_refuses_a_job_whose_settings_name_code(code: Path) -> None:
    federation = Federation(code.parent)
    text = (federation.job / NAME).read_text()
    named = text.replace('name = "fedlin"', f"name = {json.dumps(f'{code}:make')}")
    assert named != text
    (federation.job / NAME).write_text(named)
    handler = make_client("north", str(federation.sites["north"]), str(federation.job))
    reply, _ = wire.read_message(handler("hello", wire.write_message(Header(Kind.HELLO, bytes(8)))))
    assert reply.kind == Kind.REFUSED
    assert not (code.parent / "mark").exists()


TABLE = """
import numpy as np
from fedlin.data import RawTable

def table():
    return RawTable({"patient": np.array(["P1", "P2"], object)}, np.array(["ill", "well"], object), None)

def problem(preparation):
    raise AssertionError
"""


def test_the_recipe_of_an_owner_s_own_settings_is_the_one_that_a_site_agrees_to(tmp_path: Path) -> None:
    """Settings that come with a job say what the server likes, and another recipe may come in the message."""
    federation = Federation(tmp_path)
    kit = federation.sites["north"]
    (kit / "client.py").write_text(TABLE)
    text = (federation.job / NAME).read_text() + '\n[prepare]\nkeep = ["patient"]\n'
    for place in (federation.job, kit):
        (place / NAME).write_text(text)
    handler = make_client("north", str(kit), str(federation.job))
    answers = []
    for recipe in (Recipe(), Recipe(keep=("patient",)), Recipe()):
        body = json.dumps(asdict(recipe)).encode()
        reply = handler("summarise", wire.write_message(Header(Kind.SUMMARISE, bytes(8)), body))
        answers.append(wire.read_message(reply)[0].kind)
    assert answers == [Kind.REFUSED, Kind.SUMMARY, Kind.REFUSED]
