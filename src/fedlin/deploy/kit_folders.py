"""Whose folder a folder is: the server's, a site's, or a whole federation's."""

import json
from pathlib import Path

from fedlin.errors import DeployError


def is_server(kit: Path) -> bool:
    """Whether this is the server's folder."""
    return (kit / "startup" / "fed_server.json").is_file()


def is_site(kit: Path) -> bool:
    """Whether this is a site's folder."""
    return (kit / "startup" / "fed_client.json").is_file()


def server_folder(folder: Path) -> Path:
    """The server's kit in a federation's folder, or the folder itself where it is that kit."""
    for candidate in (folder / "server", folder):
        if is_server(candidate):
            return candidate
    raise DeployError(f"{folder} is neither a federation nor its server's folder.")


def site_name(kit: Path) -> str:
    """The name of the site whose kit this is."""
    try:
        settings = json.loads((kit / "startup" / "fed_client.json").read_text(encoding="utf-8"))
        return str(settings["client"]["fqsn"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DeployError(f"{kit} is not a site's folder: copy one that fedlin federation init wrote.") from error
