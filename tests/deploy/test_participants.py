"""Who belongs to a federation: added, removed, certified by requests, renewed; without starting anything."""

import stat
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

from cryptography import x509

from federation_command import invoke, two_sites
from fedlin.deploy.flare.authority import Authority, make_key, write_request
from fedlin.deploy.flare.certificates import check_certificate, check_same_authority
from fedlin.deploy.flare.kits import ADMIN
from fedlin.deploy.project import AUTHORITY, Project, create
from fedlin.deploy.settings import NAME, read_settings
from fedlin.errors import DeployError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return two_sites(tmp_path)


def keys(folder: Path) -> set[str]:
    """Every private key below a folder, by what it begins with."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and b"PRIVATE KEY" in path.read_bytes()
    }


def test_the_authority_holds_its_own_key_alone(folder: Path) -> None:
    assert keys(folder / AUTHORITY) == {"root.key"}
    root = x509.load_pem_x509_certificate((folder / AUTHORITY / "rootCA.pem").read_bytes())
    assert root.not_valid_after_utc - datetime.now(UTC) > timedelta(days=3000)  # longer than what it signs


def test_a_site_s_key_never_leaves_the_site(tmp_path: Path) -> None:
    """The kit comes without one; the site makes it and sends a request, and the authority signs that."""
    folder = tmp_path / "federation"
    assert invoke("init", "north", "south", "--out", folder, "--keys-at-sites")[0] == 0
    assert keys(folder) == {"authority/root.key", "server/startup/server.key", "admin/startup/client.key"}
    kit = tmp_path / "at-north"
    (folder / "sites" / "north").rename(kit)  # copied to the site's machine
    code, said = invoke("join", kit)
    assert (code, "send a request and have it signed" in said) == (2, True)
    assert invoke("request", kit)[0] == 0
    assert stat.S_IMODE((kit / "startup" / "client.key").stat().st_mode) == 0o600
    first = (kit / "startup" / "client.key").read_bytes()
    request = tmp_path / "north.csr"
    (kit / "north.csr").rename(request)  # sent
    assert "PRIVATE" not in request.read_text()
    (folder / "sites" / "north").mkdir()
    assert invoke("sign", request, folder)[0] == 0
    code, said = invoke("install", kit, tmp_path / "north.crt")
    assert (code, "can take part" in said) == (0, True)
    check_certificate(kit)
    assert (kit / "startup" / "client.key").read_bytes() == first
    assert invoke("request", kit)[0] == 0  # again, for the same key
    assert (kit / "startup" / "client.key").read_bytes() == first
    assert not {path for path in keys(folder) if "north" in path}


def test_a_request_that_is_not_a_site_s_is_not_signed(folder: Path, tmp_path: Path) -> None:
    """In the server's name, in that of nobody, or not a request at all."""
    (tmp_path / "startup").mkdir()
    for name, told in (("localhost", "in the name of"), ("west", "its sites are|federation's sites are"), ("", "")):
        path = tmp_path / "some.csr"
        path.write_bytes(write_request(tmp_path / "startup", name) if name else b"no request")
        code, said = invoke("sign", path, folder)
        assert code == 2
        assert any(part in said for part in (told or "cannot be read").split("|"))
    assert invoke("sign", tmp_path / "nowhere.csr", folder)[0] == 2


def test_a_certificate_for_another_key_is_not_installed(folder: Path, tmp_path: Path) -> None:
    kit = folder / "sites" / "north"
    before = (kit / "startup" / "client.crt").read_bytes()
    other = tmp_path / "north.crt"
    other.write_bytes(Authority(folder / AUTHORITY).issue("north", make_key()[0].public_key()))
    code, said = invoke("install", kit, other)
    assert code == 2
    assert "is not for the key beside it" in said
    assert (kit / "startup" / "client.crt").read_bytes() == before


def test_a_site_is_added_and_removed(folder: Path) -> None:
    """A kit of its own and a line in the settings, whose comments stay; the job has the new sites."""
    (folder / NAME).write_text("# ours\n" + (folder / NAME).read_text())
    code, said = invoke("add", "west", folder)
    assert code == 0, said
    kit = folder / "sites" / "west"
    check_certificate(kit)
    check_same_authority([folder / "server", kit])
    assert (kit / "client.py").is_file()
    assert (kit / "site.toml").is_file()
    settings = read_settings(folder)
    assert settings.sites == ("north", "south", "west")
    assert settings.plan.tau.tolist() == [8, 5, 8]
    assert (folder / NAME).read_text().startswith("# ours\n")
    sent = tomllib.loads((folder / "job" / "app" / "config" / NAME).read_text())
    assert set(sent["sites"]) == {"north", "south", "west"}
    assert Project.read(folder).needed == 3
    assert invoke("remove", "south", folder)[0] == 0
    assert read_settings(folder).sites == ("north", "west")
    assert "# ours" in (folder / NAME).read_text()
    for words, told in (
        (("add", "west", folder), "is not allowed"),
        (("add", "south", folder), "of a site that was removed"),
        (("add", "Server", folder), "is not allowed"),
        (("remove", "south", folder), "its sites are north, west"),
    ):
        code, said = invoke(*words)
        assert code == 2
        assert told in said
    (folder / "server" / NAME).write_text("# of the run that goes on")
    invoke("remove", "west", folder)
    assert (folder / "server" / NAME).read_text() == "# of the run that goes on"
    assert "the only site" in invoke("remove", "north", folder)[1]


def test_renewed_certificates_are_for_the_same_keys(folder: Path) -> None:
    """Also of a site whose key is elsewhere; the new ones last longer."""
    project = Project.read(folder)
    before = {kit: (kit / "startup" / "client.crt").read_bytes() for kit in (project.admin, project.site("north"))}
    key = (project.site("north") / "startup" / "client.key").read_bytes()
    (project.site("south") / "startup" / "client.key").unlink()
    code, said = invoke("renew", folder)
    assert code == 0, said
    for kit in (project.server, project.admin, project.site("north")):
        check_certificate(kit)
    for kit, old in before.items():
        new = (kit / "startup" / "client.crt").read_bytes()
        assert new != old
        assert x509.load_pem_x509_certificate(new).public_key() == x509.load_pem_x509_certificate(old).public_key()
    assert (project.site("north") / "startup" / "client.key").read_bytes() == key
    role = [
        str(entry.value)
        for entry in x509.load_pem_x509_certificate((project.admin / "startup" / "client.crt").read_bytes()).subject
    ]
    assert role == [ADMIN, "fedlin", "project_admin"]
    issued = folder / AUTHORITY / "issued" / "south.crt"
    assert str(issued) in said


def test_kits_of_two_federations_do_not_start_together(folder: Path, tmp_path: Path) -> None:
    """One site's startup/ is another federation's: told at once, and by name."""
    other = create(tmp_path / "other", ["north"], "localhost", 8003)
    kit = Project.read(folder).site("north")
    for name in ("rootCA.pem", "client.crt", "client.key"):
        (kit / "startup" / name).write_bytes((other.site("north") / "startup" / name).read_bytes())
    code, said = invoke("start", "--local", folder)
    assert code == 2
    assert "sites/north/startup is of another federation" in said


def test_the_authority_s_folder_may_be_elsewhere(folder: Path, tmp_path: Path) -> None:
    (folder / AUTHORITY).rename(tmp_path / "offline")
    code, said = invoke("renew", folder)
    assert code == 2
    assert "does not hold the authority's root.key" in said
    with pytest.raises(DeployError, match="Bring them here"):
        Authority(folder / AUTHORITY)
