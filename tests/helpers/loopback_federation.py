"""The template's server and sites in one process, without a network, in folders as `init` writes them."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import fedlin
from fedlin.deploy.flare.programs import make_client, run_server
from fedlin.deploy.runs import outcome
from fedlin.deploy.settings import NAME
from fedlin.deploy.site_template import client_text, settings_text, site_text
from fedlin.transports.loopback import Loopback

SITES = ("north", "south")


class Federation:
    """The template's server and sites, without a network: `job` is what would be sent."""

    def __init__(self, folder: Path) -> None:
        self.server, self.job = folder / "server", folder / "job"
        self.sites = {name: folder / "sites" / name for name in SITES}
        for place in (self.server, self.job, *self.sites.values()):
            place.mkdir(parents=True)
        for number, (name, kit) in enumerate(self.sites.items()):
            (kit / "client.py").write_text(client_text(name, number))
            (kit / "site.toml").write_text(site_text(name))
        self.write()

    def write(self, rounds: int = 5, **run: Any) -> None:
        """The settings of the job."""
        text = settings_text(SITES).replace("rounds = 200", f"rounds = {rounds}")
        for key, value in run.items():
            text = text.replace("[run]\n", f"[run]\n{key} = {json.dumps(value)}\n")
        (self.job / NAME).write_text(text)

    def run(self) -> dict[str, Any]:
        """Play the job; how it ended."""
        handlers = {name: make_client(name, str(kit), str(self.job)) for name, kit in self.sites.items()}
        with suppress(fedlin.FedLinError):
            run_server(Loopback(handlers), str(self.server), str(self.job))
        end = outcome(self.job)
        assert end is not None
        return end
