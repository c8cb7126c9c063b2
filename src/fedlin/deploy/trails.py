"""Where a federation's audit trails are: one for each participant, in its folder."""

from pathlib import Path

from fedlin.audit import TRAIL, AuditTrail
from fedlin.deploy.kit_folders import is_server, is_site, site_name
from fedlin.errors import DeployError


def find_trails(folder: Path) -> dict[str, AuditTrail]:
    """The trails at hand by whose they are: of the server, of every site that is here, and of the federation itself."""
    if not folder.is_dir():
        raise DeployError(f"{folder} is not there.")
    kits: dict[str, Path] = {}
    for kit in (folder, folder / "server", *sorted((folder / "sites").glob("*"))):
        if not (kit / TRAIL).exists():
            continue
        if is_server(kit):
            kits["server"] = kit
        elif is_site(kit):
            kits[site_name(kit)] = kit
        else:
            kits["federation"] = kit
    if not kits:
        raise DeployError(f"{folder} has no audit trail: nothing has run there yet.")
    return {name: AuditTrail(kit) for name, kit in kits.items()}
