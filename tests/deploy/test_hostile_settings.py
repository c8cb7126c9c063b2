"""Settings travel with a job to every site, so that whoever sends one may write what it likes in them."""

import json
from pathlib import Path

import pytest

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
